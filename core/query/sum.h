#pragma once

#include <cstdint>
#include <string>

#include "core/api/query.h"

namespace scriptorium::query {

// GPUs are expensive: an idle GPU hour counts as ten core hours.
inline constexpr double kCoreHoursOfGpuHour = 10;

// What jobs had, and the part of it that they did not use. Whole seconds of a core, of a GPU.
struct Sum {
  std::uint64_t jobs = 0;
  std::uint64_t core_seconds = 0;
  std::uint64_t unused_core_seconds = 0;
  std::uint64_t gpu_seconds = 0;
  std::uint64_t unused_gpu_seconds = 0;

  Sum& operator+=(const Sum& other) noexcept;
  double core_hours() const noexcept;  // with those of the GPUs
  double wasted_core_hours() const noexcept;
};

// Adds a run, or the part of it from `begin` to `end` where `of` is all. What was not measured
// counts as used.
void add_run(Sum& into, const JobRun& run, std::uint64_t begin = 0, std::uint64_t end = 1,
             std::uint64_t of = 1);

std::string format_tenths(double value);                          // "3.0"
std::string hours_text(std::uint64_t seconds);                    // "1540.1"
std::string share_text(std::uint64_t part, std::uint64_t whole);  // "68 %"; "" of nothing
// How much more `now` is than `before`: "+29 %", "> 10 x", "new"; "" if both are nothing.
std::string trend_text(double now, double before);

}  // namespace scriptorium::query
