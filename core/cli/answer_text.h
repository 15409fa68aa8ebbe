#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

// How the commands print the values of a daemon's answer. The daemon may be older or newer than the
// command, so a missing value is printed as "-" and a value of another type as its JSON text.
// Text that users wrote is made printable (no control characters, no escape sequences).
namespace scriptorium::cli {

std::string text_of(const nlohmann::ordered_json& value);
std::string bytes_of(const nlohmann::ordered_json& value);    // "1.5 MiB"
std::string seconds_of(const nlohmann::ordered_json& value);  // "3 min"
std::string whole(double number);                             // without decimals
std::string whole(const nlohmann::ordered_json& value);       // "0" if it is missing

}  // namespace scriptorium::cli
