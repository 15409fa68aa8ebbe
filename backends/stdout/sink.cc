#include "backends/stdout/sink.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "backends/stdout/outcome.h"
#include "core/api/event.h"

namespace scriptorium::stdout_sink {
namespace {

// write() to a pipe without a reader raises SIGPIPE, whose default ends the process. The daemon's
// disposition is not ours to change, so the signal is held back in this thread and taken away
// again.
class HoldSigpipe {
 public:
  HoldSigpipe() {
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~HoldSigpipe() {
    const timespec none{};
    if (!was_pending_) {
      while (sigtimedwait(&pipe_, nullptr, &none) < 0 && errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  HoldSigpipe(const HoldSigpipe&) = delete;
  HoldSigpipe& operator=(const HoldSigpipe&) = delete;

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

}  // namespace

StdoutSink::StdoutSink(const StdoutConfig& config, int fd, std::chrono::milliseconds patience)
    : config_(config), fd_(fd), patience_(patience) {}

Result<void> StdoutSink::check() {
  const int flags = ::fcntl(fd_, F_GETFL);
  if (flags < 0) return write_error(errno);
  if ((flags & O_ACCMODE) == O_RDONLY)
    return Error{ErrorKind::kInvalidConfig, "standard output is open for reading only"};
  return {};
}

Result<void> StdoutSink::write_rest() {
  SteadyTime give_up = std::chrono::steady_clock::now() + patience_;
  std::size_t done = 0;
  Result<void> result;
  while (done < unfinished_.size()) {
    // A blocking pipe would hold write() for ever when its reader sleeps; so ask first, and write
    // no more at once than a pipe that is ready takes without waiting.
    pollfd ready{.fd = fd_, .events = POLLOUT, .revents = 0};
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(give_up - std::chrono::steady_clock::now())
            .count();
    const int polled = ::poll(&ready, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 100)));
    if (polled < 0 && errno != EINTR) {
      result = write_error(errno);
      break;
    }
    if (polled <= 0) {
      if (left <= 0 || stopping_.load()) {
        result = write_error(EAGAIN);
        break;
      }
      continue;
    }
    const std::size_t chunk = std::min<std::size_t>(unfinished_.size() - done, 4096);  // PIPE_BUF
    const ssize_t n = ::write(fd_, unfinished_.data() + done, chunk);
    if (n >= 0) {
      done += static_cast<std::size_t>(n);
      give_up = std::chrono::steady_clock::now() + patience_;  // a slow reader is a reader
    } else if (errno != EINTR && errno != EAGAIN) {
      result = write_error(errno);
      break;
    } else if (errno == EAGAIN && left <= 0) {
      result = write_error(EAGAIN);
      break;
    }
  }
  unfinished_.erase(0, done);
  return result;
}

Result<void> StdoutSink::write_line(std::string line) {
  const std::lock_guard lock(mutex_);
  if (!unfinished_.empty()) {
    if (auto written = write_rest(); !written) return written.error();
  }
  const std::size_t size = line.size();
  unfinished_ = std::move(line);
  auto written = write_rest();
  // Not a byte of it is out: forget it, its delivery will bring it again.
  if (!written && unfinished_.size() == size) unfinished_.clear();
  return written;
}

void StdoutSink::deliver(std::vector<Delivery> batch) {
  const HoldSigpipe hold;
  for (auto d = batch.begin(); d != batch.end(); ++d) {
    std::string line = event_json(d->event(), {.script_text = config_.script_text,
                                               .environment = config_.environment}) +
                       '\n';
    if (auto written = write_line(std::move(line)); !written) {
      // The next ones would only wait for the same reader.
      for (; d != batch.end(); ++d) d->retry(written.error().message());
      return;
    }
    d->acknowledge();
  }
}

void StdoutSink::stop(SteadyTime deadline) {
  static_cast<void>(deadline);
  stopping_.store(true);
}

}  // namespace scriptorium::stdout_sink
