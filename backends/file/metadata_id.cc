#include "backends/file/metadata_id.h"

#include <algorithm>

#include "core/base/text.h"

namespace scriptorium::file {
namespace {

// What follows the opening quote of the value of each member "id", until use() returns true.
template <typename Use>
bool any_id(std::string_view json, Use use) {
  constexpr std::string_view kKey = "\"id\"";
  for (auto at = json.find(kKey); at != std::string_view::npos;
       at = json.find(kKey, at + kKey.size())) {
    std::string_view rest = json.substr(at + kKey.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(" :"), rest.size()));
    if (rest.starts_with('"') && use(rest.substr(1))) return true;
  }
  return false;
}

}  // namespace

bool has_id(std::string_view json, std::string_view id) {
  return any_id(json, [&](std::string_view value) {
    return value.starts_with(id) && value.substr(id.size()).starts_with('"');
  });
}

std::string event_id_of(std::string_view json) {
  constexpr std::size_t kDigits = 64;
  std::string id;
  any_id(json, [&](std::string_view value) {
    if (value.size() <= kDigits || value[kDigits] != '"' || !hex_decode(value.substr(0, kDigits)))
      return false;
    id = value.substr(0, kDigits);
    return true;
  });
  return id;
}

}  // namespace scriptorium::file
