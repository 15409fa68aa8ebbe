#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/base/result.h"

namespace scriptorium {

// Can a user make `path` mean something else than it does? True for a directory on the way to it
// (links followed) that he may write, unless it is sticky and the name in it is not his; and with
// `and_itself` for the file or directory at the end that he may write. By owner, group and mode;
// access control lists do not count. uid 0 can change everything, so it is not asked of. The error
// names the place and says what to do.
Result<void> check_not_writable_by(const std::string& path, uid_t uid,
                                   const std::vector<gid_t>& groups, bool and_itself);

}  // namespace scriptorium
