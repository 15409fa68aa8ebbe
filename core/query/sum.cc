#include "core/query/sum.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace scriptorium::query {
namespace {

double hours_of(std::uint64_t core_seconds, std::uint64_t gpu_seconds) {
  return (static_cast<double>(core_seconds) +
          kCoreHoursOfGpuHour * static_cast<double>(gpu_seconds)) /
         3600;
}

}  // namespace

Sum& Sum::operator+=(const Sum& other) noexcept {
  jobs += other.jobs;
  core_seconds += other.core_seconds;
  unused_core_seconds += other.unused_core_seconds;
  gpu_seconds += other.gpu_seconds;
  unused_gpu_seconds += other.unused_gpu_seconds;
  return *this;
}

double Sum::core_hours() const noexcept { return hours_of(core_seconds, gpu_seconds); }
double Sum::wasted_core_hours() const noexcept {
  return hours_of(unused_core_seconds, unused_gpu_seconds);
}

// Cut at the same places for every run, so that all parts of one add up to it.
void add_run(Sum& into, const JobRun& run, std::uint64_t begin, std::uint64_t end,
             std::uint64_t of) {
  const auto part = [&](std::uint64_t seconds) {
    const auto until = [&](std::uint64_t place) {
      return seconds / of * place + seconds % of * place / of;
    };
    return until(end) - until(begin);
  };
  ++into.jobs;
  into.core_seconds += part(run.core_seconds);
  into.gpu_seconds += part(run.gpu_seconds);
  into.unused_core_seconds += part(run.unused_core_seconds.value_or(0));
  into.unused_gpu_seconds += part(run.unused_gpu_seconds.value_or(0));
}

std::string format_tenths(double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

std::string hours_text(std::uint64_t seconds) {
  return format_tenths(static_cast<double>(seconds) / 3600);
}

std::string share_text(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return {};
  return std::to_string(std::lround(100 * static_cast<double>(part) / static_cast<double>(whole))) +
         " %";
}

std::string trend_text(double now, double before) {
  if (before <= 0) return now > 0 ? "new" : "";
  const auto change = std::lround(100 * (now - before) / before);
  if (change > 999) return "> 10 x";
  return (change > 0 ? "+" : "") + std::to_string(change) + " %";
}

}  // namespace scriptorium::query
