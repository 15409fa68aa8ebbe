#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

// Numbers as a job's owner reads and writes them. Pure.
namespace scriptorium::usage {

inline constexpr std::uint64_t kMiB = 1048576;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;

// snprintf into at most 511 bytes.
template <typename... Values>
std::string format(const char* pattern, Values... values) {
  std::array<char, 512> text{};
  std::snprintf(text.data(), text.size(), pattern, values...);
  return text.data();
}

std::string percent(double ratio);     // "7.5 %", "80 %"
std::string duration(double seconds);  // "90 s", "15 min", "2.5 h"
std::string size_words(double bytes);  // as format_bytes(); a negative number counts as 0

}  // namespace scriptorium::usage
