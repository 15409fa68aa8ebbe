#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "backends/file/access.h"
#include "backends/file/batch.h"
#include "core/base/guarded.h"

namespace scriptorium::file {

// Opens the directories of a batch, and makes those that are not there.
// Owns:    the list of directories whose names are durable; borrows the rest for its life.
// Threads: any.
class Directories {
 public:
  explicit Directories(Access& access) : access_(access) {}

  // The directory of an item, once for all items of the batch that share it. Notes in the batch
  // what must be synced for its name to be durable.
  Result<std::shared_ptr<Directory>> open(Batch& batch, const Item& item);
  // These would survive a power cut.
  void note_durable(const std::vector<std::string>& paths);

  std::uint64_t stale_removed() const noexcept { return stale_removed_; }

 private:
  Result<UniqueFd> walk(Batch& batch, const Item& item);
  Result<UniqueFd> open_or_make(const Batch& batch, int parent, const std::string& name,
                                const std::string& path, std::optional<uid_t> reader);
  bool is_durable(const std::string& path) const;

  Access& access_;
  // Directories that are known to be durable and free of stale temporaries. Bounded: when full it
  // is emptied.
  Guarded<std::unordered_set<std::string>> durable_;
  std::atomic<std::uint64_t> stale_removed_{0};
};

}  // namespace scriptorium::file
