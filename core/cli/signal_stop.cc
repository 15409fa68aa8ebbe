#include "core/cli/signal_stop.h"

#include <poll.h>
#include <sys/signalfd.h>

#include <array>
#include <csignal>

#include "core/base/stop_signal.h"

namespace scriptorium::cli {

SignalStop::SignalStop(bool active) {
  if (!active) return;
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (signals_) thread_ = std::jthread([this](const std::stop_token& end) { run(end); });
}

void SignalStop::run(const std::stop_token& end) noexcept {
  const StopSignal ended(end);
  std::array<pollfd, 2> fds{{{signals_.get(), POLLIN, 0}, {ended.fd(), POLLIN, 0}}};
  // Every command waits for this thread at its end, so that must not be a tick away.
  const int tick_ms = ended.fd() < 0 ? 100 : -1;
  while (!end.stop_requested()) {
    if (::poll(fds.data(), fds.size(), tick_ms) <= 0 || fds[0].revents == 0) continue;
    source_.request_stop();
    return;
  }
}

}  // namespace scriptorium::cli
