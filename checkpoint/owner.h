#pragma once

#include <string>
#include <vector>

#include "core/base/accounts.h"
#include "core/base/result.h"

// Becoming the owner of a job, in a process that was forked for one request. Everything below the
// user's directory is done after this, so that no link and no image can reach what its owner
// cannot. Threads: the process has one.
namespace scriptorium::checkpoint {

// For good: all user and group ids, no new privileges, an empty bounding set but for what criu
// needs: CAP_CHECKPOINT_RESTORE, CAP_SETPCAP and, where Yama restricts ptrace, CAP_SYS_PTRACE.
// Those stay permitted, for allow_engine().
Result<void> become_owner(const UserRecord& user);

// The program that this process executes next has the engine's capabilities. Call it in a child.
Result<void> allow_engine();

// Gives the engine's capabilities up as well, for good.
Result<void> drop_capabilities();

}  // namespace scriptorium::checkpoint
