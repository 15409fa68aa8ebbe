#include "checkpoint/run/shells.h"

#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <optional>

namespace scriptorium::checkpoint {
namespace {

void* as_data(std::uintptr_t value) {
  return reinterpret_cast<void*>(value);  // NOLINT(performance-no-int-to-ptr): as ptrace takes it
}

void continue_with(pid_t pid, int signal) {
  ::ptrace(PTRACE_CONT, pid, nullptr, as_data(static_cast<std::uintptr_t>(signal)));
}

bool is_event_stop(int status) { return status >> 16 == PTRACE_EVENT_STOP; }

bool is_stop_signal(int signal) {
  return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

// Nothing: it has ended.
std::optional<int> wait_stopped(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, __WALL) < 0) {
    if (errno != EINTR) return std::nullopt;
  }
  if (!WIFSTOPPED(status)) return std::nullopt;
  return status;
}

void kill_and_reap(pid_t pid) {
  ::kill(pid, SIGKILL);
  while (wait_stopped(pid)) {
  }
}

// A stopped process makes the system call exit_group(code) next. Its memory does not matter any
// more, so the instruction is written where it is about to continue.
Result<void> make_exit(pid_t pid, int code) {
#if defined(__x86_64__)
  constexpr std::uint64_t kSyscall = 0x050f;
  user_regs_struct registers{};
  if (::ptrace(PTRACE_GETREGS, pid, nullptr, &registers) != 0) return system_error("ptrace", errno);
  errno = 0;
  const auto word =
      static_cast<std::uint64_t>(::ptrace(PTRACE_PEEKTEXT, pid, as_data(registers.rip), nullptr));
  if (errno != 0) return system_error("ptrace", errno);
  if (::ptrace(PTRACE_POKETEXT, pid, as_data(registers.rip),
               as_data((word & ~std::uint64_t{0xffff}) | kSyscall)) != 0)
    return system_error("ptrace", errno);
  registers.rax = SYS_exit_group;
  registers.orig_rax = ~0ULL;  // the call that was interrupted is not made again
  registers.rdi = static_cast<std::uint64_t>(code);
  if (::ptrace(PTRACE_SETREGS, pid, nullptr, &registers) != 0) return system_error("ptrace", errno);
  return {};
#else
  static_cast<void>(pid);
  static_cast<void>(code);
  return Error{ErrorKind::kPermanent, "not known for this processor"};
#endif
}

}  // namespace

Result<Shells> Shells::hold(const std::vector<pid_t>& pids) {
  Shells shells;
#if !defined(__x86_64__)
  if (!pids.empty()) return Error{ErrorKind::kPermanent, "not known for this processor"};
#endif
  for (const pid_t pid : pids) {
    if (::ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) == 0) {
      shells.pids_.push_back(pid);
      continue;
    }
    const Error error = system_error("ptrace", errno);
    for (const pid_t held : shells.pids_) {
      ::ptrace(PTRACE_INTERRUPT, held, nullptr, nullptr);
      // It may be about to be given a signal, which it then gets.
      if (const auto status = wait_stopped(held)) {
        const int signal = is_event_stop(*status) ? 0 : WSTOPSIG(*status);
        ::ptrace(PTRACE_DETACH, held, nullptr, as_data(static_cast<std::uintptr_t>(signal)));
      }
    }
    return error;
  }
  return shells;
}

Shells::Event Shells::handle(pid_t pid, int status) {
  const auto shell = std::find(pids_.begin(), pids_.end(), pid);
  if (shell == pids_.end()) return Event::kNotAShell;
  if (!WIFSTOPPED(status)) {
    pids_.erase(shell);
    return Event::kNone;
  }
  const int signal = WSTOPSIG(status);
  if (is_event_stop(status)) {
    // In a stop of job control it must remain, but notice SIGCONT.
    if (is_stop_signal(signal))
      ::ptrace(PTRACE_LISTEN, pid, nullptr, nullptr);
    else
      continue_with(pid, 0);
    return Event::kNone;
  }
  continue_with(pid, signal == SIGUSR2 ? 0 : signal);
  return signal == SIGUSR2 ? Event::kSave : Event::kNone;
}

Result<void> Shells::end_with(int code) {
  if (pids_.empty()) return {};
  // All are stopped before one ends: none runs its next command because another one has ended.
  for (const pid_t pid : pids_) ::ptrace(PTRACE_INTERRUPT, pid, nullptr, nullptr);
  std::vector<pid_t> stopped;
  for (const pid_t pid : pids_) {
    if (wait_stopped(pid)) stopped.push_back(pid);
  }
  const pid_t first = pids_.back();
  pids_.clear();
  if (stopped.empty() || stopped.back() != first) return {};  // the job ends already
  stopped.pop_back();
  auto made = make_exit(first, code);
  if (!made) {
    stopped.push_back(first);
    for (const pid_t pid : stopped) continue_with(pid, 0);
    pids_ = std::move(stopped);
    return made;
  }
  continue_with(first, 0);
  while (wait_stopped(first)) continue_with(first, 0);
  for (const pid_t pid : stopped) kill_and_reap(pid);
  return {};
}

}  // namespace scriptorium::checkpoint
