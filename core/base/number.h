#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace scriptorium {

// Parses the number at the beginning of `text` and removes it from `text`. Returns nothing, and
// leaves `text` unchanged, if there is no number or it does not fit into the type.
template <typename Number>
  requires std::is_arithmetic_v<Number>
std::optional<Number> take_number(std::string_view& text) noexcept {
  Number value{};
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return value;
}

// Parses the whole text as a number. Returns nothing if it is empty, contains anything else
// (blanks, a leading '+', a sign that the type does not have), or does not fit into the type.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) noexcept {
  const auto value = take_number<Number>(text);
  return text.empty() ? value : std::nullopt;
}

}  // namespace scriptorium
