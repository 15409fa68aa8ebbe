#pragma once

#include <algorithm>
#include <string>
#include <string_view>

// ASCII character classes. Unlike those of <cctype>, they do not depend on the locale.
namespace scriptorium {

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
constexpr bool is_lower(char c) noexcept { return c >= 'a' && c <= 'z'; }
constexpr bool is_upper(char c) noexcept { return c >= 'A' && c <= 'Z'; }
constexpr bool is_letter(char c) noexcept { return is_lower(c) || is_upper(c); }
constexpr bool is_alphanumeric(char c) noexcept { return is_letter(c) || is_digit(c); }

// At least one character, and all of them digits.
constexpr bool is_all_digits(std::string_view text) noexcept {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

constexpr char to_lower(char c) noexcept {
  return is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c;
}
inline std::string to_lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = to_lower(c);
  return result;
}

// `text` with the given characters removed from both ends.
constexpr std::string_view trim(std::string_view text, std::string_view blanks = " ") noexcept {
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

}  // namespace scriptorium
