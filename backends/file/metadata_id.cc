#include "backends/file/metadata_id.h"

#include <algorithm>

#include "core/base/text.h"

namespace scriptorium::file {
namespace {

constexpr std::string_view kId = "\"id\"";
constexpr std::string_view kReplaces = "\"replaces\"";

// What follows the opening quote of the value of each member with this key, until use() returns
// true.
template <typename Use>
bool any_value(std::string_view json, std::string_view key, Use use) {
  for (auto at = json.find(key); at != std::string_view::npos;
       at = json.find(key, at + key.size())) {
    std::string_view rest = json.substr(at + key.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(" :"), rest.size()));
    if (rest.starts_with('"') && use(rest.substr(1))) return true;
  }
  return false;
}

bool has_value(std::string_view json, std::string_view key, std::string_view id) {
  return any_value(json, key, [&](std::string_view value) {
    return value.starts_with(id) && value.substr(id.size()).starts_with('"');
  });
}

}  // namespace

bool has_id(std::string_view json, std::string_view id) { return has_value(json, kId, id); }

bool replaces_id(std::string_view json, std::string_view id) {
  return has_value(json, kReplaces, id);
}

std::string event_id_of(std::string_view json) {
  constexpr std::size_t kDigits = 64;
  std::string id;
  any_value(json, kId, [&](std::string_view value) {
    if (value.size() <= kDigits || value[kDigits] != '"' || !hex_decode(value.substr(0, kDigits)))
      return false;
    id = value.substr(0, kDigits);
    return true;
  });
  return id;
}

}  // namespace scriptorium::file
