#include "backends/catalog/field_lists.h"

#include <algorithm>

#include "backends/catalog/block.h"

namespace scriptorium::catalog {

std::optional<std::vector<std::int64_t>> unpack_values(std::string_view list) {
  auto values = unpack_ids(list);
  if (!values || values->empty() || !std::is_sorted(values->begin(), values->end()))
    return std::nullopt;
  return values;
}

bool may_have_value(std::string_view list, std::span<const std::int64_t> wanted) {
  const auto values = unpack_values(list);
  if (!values) return true;
  auto value = values->begin();
  for (const std::int64_t one : wanted) {
    value = std::lower_bound(value, values->end(), one);
    if (value == values->end()) return false;
    if (*value == one) return true;
  }
  return false;
}

bool may_have_value(std::string_view list, std::int64_t from, std::int64_t to) {
  const auto values = unpack_values(list);
  if (!values) return true;
  const auto value = std::lower_bound(values->begin(), values->end(), from);
  return value != values->end() && *value <= to;
}

FieldReader::FieldReader(sqlite::Connection& db)
    : between_(db, "SELECT id, list FROM fields WHERE id BETWEEN ? AND ? ORDER BY id"),
      one_(db, "SELECT list FROM fields WHERE id = ?") {}

void FieldReader::for_each(std::int64_t field, Chunks chunks, const Use& use) {
  between_.bind(field_key(field, chunks.first), field_key(field, chunks.last));
  while (between_.step()) use(between_.integer(0), between_.text(1));
}

std::optional<std::vector<std::int64_t>> FieldReader::values(std::int64_t field,
                                                             std::int64_t chunk) {
  std::optional<std::vector<std::int64_t>> values;
  if (one_.bind(field_key(field, chunk)).step()) values = unpack_values(one_.text(0));
  one_.reset();
  return values;
}

}  // namespace scriptorium::catalog
