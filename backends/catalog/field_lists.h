#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/api/kit/sqlite/connection.h"

// The table `fields` of one segment: for each field and chunk the list of the values that the
// chunk's jobs have. Errors stick to the connection.
namespace scriptorium::catalog {

// `fields.id`. Fields and chunks of an intact segment are below 2^31.
constexpr std::int64_t field_key(std::int64_t field, std::int64_t chunk) noexcept {
  return field * (std::int64_t{1} << 32) + chunk;
}
inline constexpr std::int64_t kLastChunk = 0xffff'ffff;
constexpr std::int64_t field_of_key(std::int64_t key) noexcept { return key >> 32; }
constexpr std::int64_t chunk_of_key(std::int64_t key) noexcept { return key & kLastChunk; }

// The values of `fields.list`, ascending. Nothing for a damaged list, which may have any value.
std::optional<std::vector<std::int64_t>> unpack_values(std::string_view list);

// Whether a list has one of `wanted` (ascending), or a value from `from` to `to`; a damaged one
// may.
bool may_have_value(std::string_view list, std::span<const std::int64_t> wanted);
bool may_have_value(std::string_view list, std::int64_t from, std::int64_t to);

class FieldReader {
 public:
  explicit FieldReader(sqlite::Connection& db);

  // The lists of a field and these chunks, in the order of the keys. The view is valid during the
  // call.
  struct Chunks {
    std::int64_t first = 0;
    std::int64_t last = kLastChunk;
  };
  using Use = std::function<void(std::int64_t key, std::string_view list)>;
  void for_each(std::int64_t field, Chunks chunks, const Use& use);
  // Nothing if the chunk has no value of the field, or a damaged list.
  std::optional<std::vector<std::int64_t>> values(std::int64_t field, std::int64_t chunk);

 private:
  sqlite::Statement between_;
  sqlite::Statement one_;
};

}  // namespace scriptorium::catalog
