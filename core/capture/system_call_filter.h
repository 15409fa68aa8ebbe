#pragma once

#include "core/base/result.h"

namespace scriptorium {

// Denies this process, the plugins that it loads and every program that it starts the system calls
// that only the spool opener needs, and those that reach into other processes, other mounts or deep
// into the kernel. Each fails with EPERM, for good. Missing capabilities are not enough, because a
// descriptor can carry rights that its holder lacks: the kernel accepts marks on the opener's
// fanotify group from any process that holds its descriptor.
//
// Threads: affects the calling thread and those that it starts later, so call it while there is no
//          other.
// Fails:   kTransient if no_new_privs is not set and there is no CAP_SYS_ADMIN, or if the kernel
// has
//          no filters.
Result<void> deny_privileged_system_calls();

}  // namespace scriptorium
