#pragma once

#include <chrono>
#include <functional>
#include <stop_token>
#include <thread>
#include <utility>

#include "core/base/guarded.h"
#include "core/base/time.h"

namespace scriptorium {

// A thread that can be joined with a deadline, for work that may block in a call that cannot be
// interrupted, such as a read from an unreachable network file system.
// Owns:    the thread. Declare it as the last member of a class, so that it ends before the members
//          it uses: the destructor requests a stop and waits without limit.
// Threads: call start() and stop() from one thread.
class WorkerThread {
 public:
  // `work` must not throw, and must return soon after a stop is requested. While the thread runs, a
  // second start() without stop() in between does nothing.
  void start(std::function<void(const std::stop_token&)> work) {
    if (thread_.joinable()) return;
    ended_.with([](bool& ended) { ended = false; });
    thread_ = std::jthread([this, work = std::move(work)](const std::stop_token& stop) noexcept {
      work(stop);
      ended_.with_notify([](bool& ended) { ended = true; });
    });
  }

  // Requests a stop and waits for the thread to end. False: it did not end by `deadline`; the
  // process must then leave with _exit(), because the destructor would wait forever.
  bool stop(SteadyTime deadline) {
    if (!thread_.joinable()) return true;
    thread_.request_stop();
    const bool ended = ended_.wait_until(std::stop_token{}, deadline, [](bool e) { return e; });
    if (ended) thread_.join();
    return ended;
  }

 private:
  Guarded<bool> ended_;
  std::jthread thread_;
};

}  // namespace scriptorium
