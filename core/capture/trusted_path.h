#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/base/result.h"

namespace scriptorium {

// Fails if a user can make `path` lead to something else: if he may write a directory on the way to
// it (links followed), unless that is sticky and the name in it is not his; and with `and_itself`
// if he may write the file or directory at its end. Owner, group and mode decide; access control
// lists do not count. uid 0 can change everything, so it is not checked. The error names the place
// and says what to do.
Result<void> check_not_writable_by(const std::string& path, uid_t uid,
                                   const std::vector<gid_t>& groups, bool and_itself);

}  // namespace scriptorium
