#include "schedulers/usage/finding_words.h"

#include <algorithm>
#include <cmath>

#include "core/base/text.h"

namespace scriptorium::usage {

std::string percent(double ratio) {
  return format(ratio < 0.0995 ? "%.1f %%" : "%.0f %%", ratio * 100);
}

std::string duration(double seconds) {
  if (seconds < 120) return format("%.0f s", seconds);
  if (seconds < 7200) return format("%.0f min", seconds / 60);
  return format("%.1f h", seconds / 3600);
}

std::string size_words(double value) {
  return format_bytes(static_cast<std::uint64_t>(std::max(value, 0.0)));
}

std::string memory_directive(std::uint64_t bytes) {
  const double value = static_cast<double>(bytes);
  if (value <= 10 * kMiB) return "10M";
  if (value < 4 * kGiB) return format("%.0fM", std::ceil(value / kMiB / 10) * 10);
  return format("%.0fG", std::ceil(value / kGiB));
}

std::string time_directive(double seconds) {
  const auto whole = static_cast<long long>(std::ceil(seconds));
  const long long days = whole / 86400;
  const std::string clock =
      format("%02lld:%02lld:%02lld", whole % 86400 / 3600, whole % 3600 / 60, whole % 60);
  return days == 0 ? clock : std::to_string(days) + "-" + clock;
}

}  // namespace scriptorium::usage
