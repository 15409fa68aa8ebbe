#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace scriptorium {

// The largest request size, in bytes, learned from the destination's refusals. A refusal halves it;
// `raise_after` accepted requests in a row double it, because the destination's limit may have been
// raised. Pure; not thread-safe.
class LearnedSize {
 public:
  struct Limits {
    std::size_t least = 0;          // the size is never reduced below this
    std::size_t most = 0;           // the configured size
    std::uint32_t raise_after = 0;  // 0 = never
  };
  explicit LearnedSize(Limits limits) : limits_(limits), value_(limits.most) {}

  std::size_t value() const noexcept { return std::min(value_, limits_.most); }
  // Changes the configured size and keeps what was learned.
  void set_most(std::size_t most) noexcept {
    if (value_ == limits_.most) value_ = most;
    limits_.most = most;
  }

  // A request of `bytes` was refused because of its size.
  void refused(std::size_t bytes) noexcept {
    taken_in_a_row_ = 0;
    value_ = std::min(value(), std::max(bytes / 2, limits_.least));
  }
  // A request was accepted. True if the size was raised.
  bool taken() noexcept {
    if (limits_.raise_after == 0 || ++taken_in_a_row_ < limits_.raise_after) return false;
    taken_in_a_row_ = 0;
    const std::size_t before = value();
    value_ = std::min(before * 2, limits_.most);
    return value_ != before;
  }

 private:
  Limits limits_;
  std::size_t value_;
  std::uint32_t taken_in_a_row_ = 0;
};

}  // namespace scriptorium
