#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/file/access.h"
#include "backends/file/config.h"
#include "core/api/delivery.h"
#include "core/base/file.h"
#include "core/base/guarded.h"

namespace scriptorium::file {

// The archive's root directory: made and tried out before the first batch.
// Owns:    nothing but what it found out; borrows the rest for its life.
// Threads: any.
class Root {
 public:
  // `acknowledged`: PluginContext::acknowledged.
  Root(Access& access, std::uint64_t acknowledged) : access_(access), acknowledged_(acknowledged) {}

  Result<UniqueFd> open() const;
  // Without listing it: an owner may pass through the root, but not list it.
  Result<UniqueFd> open_or_pass() const;
  // The first call makes the root, if it is not there, and tries what its file system can do; the
  // next ones give the same answer.
  Result<std::shared_ptr<const Prepared>> prepare();
  void forget() {
    prepared_.with([](std::shared_ptr<const Prepared>& p) { p.reset(); });
  }
  // All of prepare() that leaves nothing behind, for `scriptorium check`.
  Result<void> check();
  // Whether the root that was opened is the prepared tree, and not what lies below its mount point.
  Result<void> require_tree(int root) const;
  // Whether min_free_bytes would still be free with all that is written for this batch.
  bool leaves_room(int root, const std::vector<Delivery>& batch) const;

 private:
  Result<void> make(const Readers& readers);
  // An archive that has vanished from where events were stored is not made there a second time.
  Result<void> expect_tree() const;
  // Writes and removes a file in an open directory.
  Result<Prepared> probe(int directory, Readers readers);
  Result<bool> probe_access_lists(int fd, const Readers& readers) const;

  Access& access_;
  const std::uint64_t acknowledged_;
  // Two workers must not prepare at once; held over the file system's calls.
  std::mutex preparing_;
  Guarded<std::shared_ptr<const Prepared>> prepared_;
  RepeatLimit logged_;
};

}  // namespace scriptorium::file
