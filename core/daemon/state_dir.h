#pragma once

#include <sys/types.h>

#include <string>

#include "core/base/file.h"
#include "core/base/result.h"

namespace scriptorium {

// Makes state_dir (0750) if it is missing and takes its lock (STATE_DIR/lock, flock(2)). The lock
// lasts as long as the descriptor, so it ends with the process however that ends. kExhausted, with
// the owner's pid, if another process holds it; kTransient if the directory cannot be made or
// written.
Result<UniqueFd> lock_state_dir(const std::string& state_dir);

struct StateDirOwner {
  std::string name;
  uid_t uid = 0;
  gid_t gid = 0;
};
// Makes sure that state_dir exists and belongs to the user. Returns what was done, or for `dry_run`
// would be done; "" = nothing. Gives away only a directory that is ours and holds nothing but a
// daemon's files; kInvalidConfig otherwise.
Result<std::string> give_state_dir(std::string directory, const StateDirOwner& user, bool dry_run);

}  // namespace scriptorium
