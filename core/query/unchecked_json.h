#pragma once

#include <cstddef>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

// Members of JSON that another version or program may have written: what is missing or of another
// type is absent. Pure.
namespace scriptorium::query {

// Null if there is none.
const nlohmann::ordered_json& value_at(const nlohmann::ordered_json& object,
                                       std::initializer_list<const char*> path);
std::optional<double> number_at(const nlohmann::ordered_json& object,
                                std::initializer_list<const char*> path);
// What can be true of a job: it fits into a whole number, also after some headroom.
std::optional<double> measured_at(const nlohmann::ordered_json& object,
                                  std::initializer_list<const char*> path);
// Printable, at most `limit` bytes; "" if there is none.
std::string text_at(const nlohmann::ordered_json& object, std::initializer_list<const char*> path,
                    std::size_t limit = 256);
// An empty list if there is none.
const nlohmann::ordered_json& list_at(const nlohmann::ordered_json& object,
                                      std::initializer_list<const char*> path);

}  // namespace scriptorium::query
