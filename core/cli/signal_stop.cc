#include "core/cli/signal_stop.h"

#include <poll.h>
#include <sys/signalfd.h>

#include <csignal>

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
  pollfd fd{signals_.get(), POLLIN, 0};
  // Maximum delay before the thread notices its own stop; only the end of the command waits for
  // that.
  constexpr int kTickMs = 100;
  while (!end.stop_requested()) {
    if (::poll(&fd, 1, kTickMs) <= 0) continue;
    source_.request_stop();
    return;
  }
}

}  // namespace scriptorium::cli
