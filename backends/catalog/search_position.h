#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace scriptorium::catalog {

// Where a job is in the order of all answers: newest first, so the greatest position comes first.
struct Position {
  std::int64_t time = std::numeric_limits<std::int64_t>::max();  // nanoseconds
  std::int64_t segment = std::numeric_limits<std::int64_t>::max();
  std::int64_t id = std::numeric_limits<std::int64_t>::max();

  auto operator<=>(const Position&) const = default;
};

// As Searchable::Answer::next: "1.TIME.SEGMENT.ID". kInvalidConfig for any other text.
std::string to_text(const Position& position);
Result<Position> position_of(std::string_view text);

}  // namespace scriptorium::catalog
