#pragma once

#include <string>

#include "core/base/file.h"
#include "core/base/result.h"

namespace scriptorium {

// Makes state_dir (0750) if it is missing and takes its lock (STATE_DIR/lock, flock(2)). The lock
// lasts as long as the descriptor, and ends with the process however that ends. kExhausted with the
// owner's pid if another process has it; kTransient if the directory cannot be made or written.
Result<UniqueFd> lock_state_dir(const std::string& state_dir);

}  // namespace scriptorium
