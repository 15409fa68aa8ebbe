#pragma once

#include <nlohmann/json.hpp>

// Reads the answer to `status`. It may come from a daemon that is older or newer than the reader,
// so a field that is missing or of another type is null, or counts nothing. A heavy header, for .cc
// files only.
namespace scriptorium::status_answer {

using Json = nlohmann::ordered_json;

inline const Json& member(const Json& object, const char* key) {
  static const Json none;
  return object.is_object() && object.contains(key) ? object.at(key) : none;
}
inline double number_of(const Json& value) { return value.is_number() ? value.get<double>() : 0; }
// The sum of {"reason": count}.
inline double sum_of(const Json& counts) {
  double sum = 0;
  if (counts.is_object()) {
    for (const auto& [reason, count] : counts.items()) sum += number_of(count);
  }
  return sum;
}

}  // namespace scriptorium::status_answer
