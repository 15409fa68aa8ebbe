#pragma once

#include <string>
#include <vector>

#include "core/api/logger.h"
#include "core/base/file.h"
#include "core/base/result.h"

namespace scriptorium::cli {

// Whether one of two existing directories is, or lies within, the other; after resolving links.
bool directories_overlap(const std::string& one, const std::string& other);

// Keeps the daemon and every import from starting while an archive of theirs changes, and makes
// sure that their journals do not need its events as they are: an event that was released to the
// archive is fetched from there by its id.
//
// Owns: the locks of state_dir and of the imports' directories, until it is destroyed.
class ArchiveGuard {
 public:
  // kExhausted: a daemon or an import runs; kTransient: a journal needs the archive. The message
  // says what to do.
  static Result<ArchiveGuard> take(const std::string& state_dir, Logger& log);

  // Events in the journals that were captured earlier and are still to be delivered.
  std::uint64_t waiting() const noexcept { return waiting_; }

 private:
  Result<void> take_one(const std::string& directory, const std::string& who, Logger& log);

  std::vector<UniqueFd> locks_;
  std::uint64_t waiting_ = 0;
};

}  // namespace scriptorium::cli
