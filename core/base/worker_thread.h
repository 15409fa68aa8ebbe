#pragma once

#include <chrono>
#include <functional>
#include <stop_token>
#include <thread>
#include <utility>

#include "core/base/guarded.h"
#include "core/base/time.h"

namespace scriptorium {

// A thread whose end can be waited for until a deadline, for work that may be stuck in a call that
// nothing can interrupt, such as a read from a file system that is gone.
// Owns:    the thread. Declare it as the last member of a class, so that it ends before what it
//          uses: the destructor requests a stop and waits without limit.
// Threads: start() and stop() from one.
class WorkerThread {
 public:
  // `work` must not throw, and must return soon after a stop is requested. A thread that runs stays
  // the only one: a second start() without a stop() between does nothing.
  void start(std::function<void(const std::stop_token&)> work) {
    if (thread_.joinable()) return;
    ended_.with([](bool& ended) { ended = false; });
    thread_ = std::jthread([this, work = std::move(work)](const std::stop_token& stop) noexcept {
      work(stop);
      ended_.with_notify([](bool& ended) { ended = true; });
    });
  }

  // Requests a stop and waits for the end. False: it did not end by `deadline`, so the process has
  // to leave with _exit(), as the destructor would wait for ever.
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
