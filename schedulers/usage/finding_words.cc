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

}  // namespace scriptorium::usage
