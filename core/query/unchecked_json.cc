#include "core/query/unchecked_json.h"

#include "core/base/text.h"

namespace scriptorium::query {

using Json = nlohmann::ordered_json;

const Json& value_at(const Json& object, std::initializer_list<const char*> path) {
  static const Json kNothing;
  const Json* value = &object;
  for (const char* key : path) {
    if (!value->is_object()) return kNothing;
    const auto found = value->find(key);
    if (found == value->end()) return kNothing;
    value = &*found;
  }
  return *value;
}

std::optional<double> number_at(const Json& object, std::initializer_list<const char*> path) {
  const Json& value = value_at(object, path);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

std::optional<double> measured_at(const Json& object, std::initializer_list<const char*> path) {
  constexpr double kMost = 1e15;
  const auto number = number_at(object, path);
  return number && *number >= 0 && *number <= kMost ? number : std::nullopt;
}

std::string text_at(const Json& object, std::initializer_list<const char*> path,
                    std::size_t limit) {
  const Json& value = value_at(object, path);
  return value.is_string() ? printable(value.get<std::string>(), limit) : std::string{};
}

const Json& list_at(const Json& object, std::initializer_list<const char*> path) {
  static const Json kEmpty = Json::array();
  const Json& list = value_at(object, path);
  return list.is_array() ? list : kEmpty;
}

}  // namespace scriptorium::query
