#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace scriptorium {

// A Prometheus histogram of durations in seconds, with fixed buckets. Not thread-safe.
class Histogram {
 public:
  // Inclusive upper bounds; longer durations are counted beyond the last. They are close together
  // around our promises (20 ms from closed to durable, 100 ms to a Kafka broker).
  static constexpr std::array<double, 18> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.05,
                                                     0.1,   0.25,   0.5,   1,    2.5,  5,
                                                     10,    30,     60,    300,  1800, 3600};

  // A negative duration (two machines' clocks differ, or a clock was set) counts as 0.
  void add(double seconds) noexcept {
    std::size_t bucket = 0;
    while (bucket < kBounds.size() && seconds > kBounds[bucket]) ++bucket;
    ++counts_[bucket];
    ++count_;
    if (seconds > 0) sum_ += seconds;
  }

  std::uint64_t count() const noexcept { return count_; }
  double sum() const noexcept { return sum_; }
  // The count of one bucket, not cumulative, by its index in kBounds; kBounds.size() = beyond the
  // last bound.
  std::uint64_t in_bucket(std::size_t bucket) const noexcept { return counts_[bucket]; }

 private:
  std::array<std::uint64_t, kBounds.size() + 1> counts_{};
  std::uint64_t count_ = 0;
  double sum_ = 0;
};

}  // namespace scriptorium
