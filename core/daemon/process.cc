#include "core/daemon/process.h"

#include <malloc.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>

#ifdef SCRIPTORIUM_HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

namespace scriptorium::process {

namespace {

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  return set;
}

}  // namespace

void prepare() {
  // No file of ours is for others; sinks set their own modes and ACLs.
  ::umask(0077);
  // Memory of a large script must go back to the kernel. By default glibc raises the threshold with
  // each large block that is freed, up to 32 MiB, and keeps such blocks, in an arena for each
  // thread (mallopt(3)).
  ::mallopt(M_MMAP_THRESHOLD, 256 << 10);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 20);
  // A core dump would hold scripts as they were before any rule. 1 is the limit at which the kernel
  // gives nothing to a program in core_pattern either (core(5)).
  struct rlimit core{};
  if (::getrlimit(RLIMIT_CORE, &core) == 0) {
    core.rlim_cur = std::min<rlim_t>(core.rlim_max, 1);
    ::setrlimit(RLIMIT_CORE, &core);
  }
  ::signal(SIGPIPE, SIG_IGN);
  const sigset_t set = handled_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

UniqueFd open_signals() {
  const sigset_t set = handled_signals();
  return UniqueFd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

void notify([[maybe_unused]] const char* state) noexcept {
#ifdef SCRIPTORIUM_HAVE_SYSTEMD
  ::sd_notify(0, state);
#endif
}

std::chrono::microseconds watchdog_period() noexcept {
#ifdef SCRIPTORIUM_HAVE_SYSTEMD
  std::uint64_t period = 0;
  if (::sd_watchdog_enabled(0, &period) > 0)
    return std::chrono::microseconds(static_cast<std::int64_t>(period));
#endif
  return {};
}

}  // namespace scriptorium::process
