#include "core/redact/placeholder.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace scriptorium::redact {
namespace {

// Not <cctype>: its answers depend on the locale, and job scripts hold any bytes.
char lower_of(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
bool is_ascii_letter(char c) noexcept { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }
bool is_ascii_digit(char c) noexcept { return c >= '0' && c <= '9'; }
bool is_name_byte(char c) noexcept { return is_ascii_letter(c) || is_ascii_digit(c) || c == '_'; }

// `word` is in lower case.
bool is_same_word(std::string_view text, std::string_view word) noexcept {
  return std::equal(text.begin(), text.end(), word.begin(), word.end(),
                    [](char a, char b) { return lower_of(a) == b; });
}

bool has_part(std::string_view text, std::string_view word) noexcept {
  return std::search(text.begin(), text.end(), word.begin(), word.end(),
                     [](char a, char b) { return lower_of(a) == b; }) != text.end();
}

bool encloses(std::string_view text, char open, char close) noexcept {
  return text.size() > 1 && text.front() == open && text.back() == close;
}

// ssh n1 "X=\"\$TOKEN\" ./run". A password may begin with a dollar, but is no such name.
bool is_escaped_reference(std::string_view text) noexcept {
  const std::size_t dollar = text.find_first_not_of('\\');
  if (dollar == 0 || dollar == std::string_view::npos || text[dollar] != '$') return false;
  const std::string_view name = text.substr(dollar + 1);
  return encloses(name, '{', '}') || encloses(name, '(', ')') ||
         (!name.empty() && std::ranges::all_of(name, [](char c) {
           return (c >= 'A' && c <= 'Z') || is_ascii_digit(c) || c == '_';
         }));
}

bool is_reference(std::string_view text) noexcept {
  if (is_escaped_reference(text)) return true;
  const char second = text.size() > 1 ? text[1] : '\0';
  switch (text.front()) {
    case '$':
      return is_name_byte(second) || second == '{' || second == '(' || second == '@' ||
             second == '*';
    case '`': return true;
    case '%':  // printf and Python: %s, %(name)s; cmd: %NAME%
      return (text.size() == 2 && is_ascii_letter(second)) || second == '(' ||
             encloses(text, '%', '%');
    case '<': return encloses(text, '<', '>') || second == '(' || second == '<';
    case '{': return text.back() == '}';
    case '[':  // [MASK] of a tokenizer, [redacted:...]
      return text.back() == ']';
    case '@': return encloses(text, '@', '@');
    default: return false;
  }
}

bool is_mask(std::string_view text) noexcept {
  constexpr std::string_view kMasks = "xX*.-_#?";
  return text.size() > 1 && text.find_first_not_of(kMasks) == std::string_view::npos;
}

bool means_nothing(std::string_view text) noexcept {
  constexpr std::array<std::string_view, 16> kWords = {
      "none", "null", "nil", "nan", "true",  "false", "undefined", "unset",
      "yes",  "no",   "on",  "off", "empty", "dummy", "fake",      "not-needed"};
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](std::string_view word) { return is_same_word(text, word); });
}

bool invites(std::string_view text) noexcept {
  constexpr std::array<std::string_view, 12> kParts = {
      "xxxx",  "****",  "...",   "your_", "your-",       "your ",
      "<your", "_here", "-here", " here", "placeholder", "[redacted"};
  return std::any_of(kParts.begin(), kParts.end(),
                     [&](std::string_view part) { return has_part(text, part); });
}

}  // namespace

bool is_placeholder(std::string_view secret) noexcept {
  if (secret.empty()) return true;
  return is_reference(secret) || is_mask(secret) || means_nothing(secret) || invites(secret);
}

}  // namespace scriptorium::redact
