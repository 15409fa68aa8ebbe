#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>

namespace scriptorium {

// Blocks the calling thread until `deadline` or until a stop is requested, whichever comes first.
// False: a stop was requested.
template <typename Clock, typename Duration>
bool pause_until(const std::stop_token& stop, std::chrono::time_point<Clock, Duration> deadline) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_until(lock, stop, deadline, [] { return false; });
  return !stop.stop_requested();
}

template <typename Rep, typename Period>
bool pause_for(const std::stop_token& stop, std::chrono::duration<Rep, Period> time) {
  return pause_until(stop, std::chrono::steady_clock::now() + time);
}

}  // namespace scriptorium
