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
constexpr std::string_view trim_end(std::string_view text, std::string_view blanks) noexcept {
  return text.substr(0, text.find_last_not_of(blanks) + 1);  // npos + 1 is 0
}

// Removes the text before the first `end` from the beginning of `rest`, and that `end`, and returns
// the text; all of `rest` if it contains no `end`.
constexpr std::string_view take_until(std::string_view& rest, char end) noexcept {
  const std::string_view taken = rest.substr(0, rest.find(end));
  rest.remove_prefix(std::min(taken.size() + 1, rest.size()));
  return taken;
}

}  // namespace scriptorium
