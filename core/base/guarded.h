#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

namespace scriptorium {

// Data that can only be accessed under its lock.
// Threads: every member from any thread. Do no I/O, no logging and no plugin call inside with().
template <typename T>
class Guarded {
 public:
  Guarded() = default;
  explicit Guarded(T value) : value_(std::move(value)) {}

  template <typename F>
  decltype(auto) with(F&& f) {
    std::lock_guard lock(mutex_);
    return std::forward<F>(f)(value_);
  }
  template <typename F>
  decltype(auto) with(F&& f) const {
    std::lock_guard lock(mutex_);
    return std::forward<F>(f)(value_);
  }

  // Like with(), then wakes all threads in wait().
  template <typename F>
  decltype(auto) with_notify(F&& f) {
    struct Notify {
      std::condition_variable_any& cv;
      ~Notify() { cv.notify_all(); }
    } notify{changed_};
    std::lock_guard lock(mutex_);
    return std::forward<F>(f)(value_);
  }

  // Waits until `ready(value)` or a stop is requested; returns what ready() last said.
  template <typename Ready>
  bool wait(const std::stop_token& stop, Ready ready) {
    std::unique_lock lock(mutex_);
    return changed_.wait(lock, stop, [&] { return ready(value_); });
  }
  // The same, but returns at `deadline` at the latest.
  template <typename Clock, typename Duration, typename Ready>
  bool wait_until(const std::stop_token& stop, std::chrono::time_point<Clock, Duration> deadline,
                  Ready ready) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, stop, deadline, [&] { return ready(value_); });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  T value_{};
};

}  // namespace scriptorium
