#include "core/base/child_process.h"

#include <poll.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <csignal>

namespace scriptorium {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kKillPatience{100};
constexpr int kReapPaceMs = 2;

bool reap(pid_t pid) noexcept {
  const pid_t got = ::waitpid(pid, nullptr, WNOHANG);
  return got == pid || (got < 0 && errno == ECHILD);
}

}  // namespace

ChildProcess::~ChildProcess() {
  // The whole group before the leader is reaped: until then its id cannot be reused.
  if (kills_group_) {
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);
  }
  const auto until = steady_clock::now() + kKillPatience;
  while (!reap(pid_)) {
    if (steady_clock::now() >= until) {
      stuck_.push_back(pid_);
      return;
    }
    ::poll(nullptr, 0, kReapPaceMs);
  }
}

std::optional<int> ChildProcess::ended() const noexcept {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0)
    return 255;  // another part of the process reaped it
  if (info.si_pid == 0) return std::nullopt;
  return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

void reap_ended(std::vector<pid_t>& stuck) noexcept {
  std::erase_if(stuck, [](pid_t pid) { return reap(pid); });
}

}  // namespace scriptorium
