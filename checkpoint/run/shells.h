#pragma once

#include <sys/types.h>

#include <vector>

#include "core/base/result.h"

namespace scriptorium::checkpoint {

// The shells that run the job's script, held by ptrace. The scheduler signals only the job's first
// process, and a shell without a trap dies of SIGUSR2: here that signal does not reach it. The
// shells notice nothing, every other signal and stop is passed on. When this process ends, however
// it ends, the kernel lets them go.
// Threads: one, as ptrace demands.
class Shells {
 public:
  // From the innermost to the job's first process. kPermanent: ptrace is refused; none is held.
  static Result<Shells> hold(const std::vector<pid_t>& pids);

  bool empty() const noexcept { return pids_.empty(); }

  // What waitpid(-1, ..., __WALL) has returned. kSave: a shell was signalled.
  enum class Event { kNone, kSave, kNotAShell };
  Event handle(pid_t pid, int status);

  // Ends the job's script where it is: no shell runs a further command, no exit trap, and the first
  // process ends with that exit code. Blocks until it has ended. kPermanent: nothing was done.
  Result<void> end_with(int code);

 private:
  std::vector<pid_t> pids_;
};

}  // namespace scriptorium::checkpoint
