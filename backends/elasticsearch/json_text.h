#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace scriptorium::elasticsearch {

// The text that an object of a server's answer has under a key; "" if it has none, or if `json` is
// not an object.
template <typename Json>
std::string text_of(const Json& json, const char* key) {
  if (!json.is_object()) return {};
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->template get<std::string>()
                                                   : std::string{};
}

}  // namespace scriptorium::elasticsearch
