#include "core/query/sum.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace scriptorium::query {

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
