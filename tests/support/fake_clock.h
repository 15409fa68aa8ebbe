#pragma once

#include <chrono>
#include <mutex>

#include "core/base/time.h"

namespace scriptorium::test {

// A clock that moves only when a test says so. It starts at 2026-11-21T00:00:00Z, and an hour after
// the steady clock's epoch. A class that *waits* needs the real clock: a condition variable does
// not know this one. Threads: any.
class FakeClock : public Clock {
 public:
  static constexpr Timestamp kStart{1795219200LL * 1'000'000'000};

  Timestamp now() const override {
    std::lock_guard lock(mutex_);
    return now_;
  }
  SteadyTime steady() const override {
    std::lock_guard lock(mutex_);
    return steady_;
  }

  // Both clocks go on.
  void advance(std::chrono::nanoseconds step) {
    std::lock_guard lock(mutex_);
    now_.nanoseconds += step.count();
    steady_ += std::chrono::duration_cast<SteadyTime::duration>(step);
  }
  // The civil clock alone jumps, as when somebody sets it.
  void jump_to(Timestamp time) {
    std::lock_guard lock(mutex_);
    now_ = time;
  }

 private:
  mutable std::mutex mutex_;
  Timestamp now_ = kStart;
  SteadyTime steady_{std::chrono::hours(1)};
};

}  // namespace scriptorium::test
