#pragma once

// Named places where a test build can kill, fail or delay the process, so that a test can prove
// that nothing is lost between two steps (docs/testing.md lists the names).
//
//   FAULT_POINT("journal.before_commit");                       // kill, delay
//   if (int e = FAULT_ERROR("file.rename")) return system_error("rename", e);   // error=ENOSPC
//
// SCRIPTORIUM_FAULT="name[:nth][:kill|error=ENOSPC|delay=ms],..." in the environment arms them; nth
// counts from 1 and means "at the nth time only" ("nth+" = from then on). Default action: kill
// (SIGKILL to ourselves). SCRIPTORIUM_FAULT_LOG=FILE receives the name of each armed point that was
// reached, so that a test can check that its point was reached. In a build without
// SCRIPTORIUM_FAULTS both macros cost nothing.

#ifdef SCRIPTORIUM_FAULTS
namespace scriptorium::fault {
int reach(const char* name) noexcept;  // 0, or the errno of the armed action
}
#define FAULT_POINT(name) static_cast<void>(::scriptorium::fault::reach(name))
#define FAULT_ERROR(name) (::scriptorium::fault::reach(name))
#else
#define FAULT_POINT(name) static_cast<void>(0)
#define FAULT_ERROR(name) 0
#endif
