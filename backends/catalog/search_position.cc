#include "backends/catalog/search_position.h"

#include <charconv>

namespace scriptorium::catalog {

std::string to_text(const Position& position) {
  return "1." + std::to_string(position.time) + "." + std::to_string(position.segment) + "." +
         std::to_string(position.id);
}

Result<Position> position_of(std::string_view text) {
  const std::string_view whole = text;
  std::int64_t version = 0;
  Position position;
  std::int64_t* const parts[] = {&version, &position.time, &position.segment, &position.id};
  bool good = text.size() <= 80;
  for (std::int64_t* const part : parts) {
    if (!good) break;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *part);
    good = error == std::errc{};
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (part == &position.id) {
      good = good && text.empty();
    } else {
      good = good && text.starts_with('.');
      if (good) text.remove_prefix(1);
    }
  }
  // One text for each position: no leading zeros, no other version.
  if (good && version == 1 && to_text(position) == whole) return position;
  return Error{ErrorKind::kInvalidConfig,
               "the place to continue from is not one that an earlier "
               "answer gave"};
}

}  // namespace scriptorium::catalog
