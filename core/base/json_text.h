#pragma once

#include <string>
#include <string_view>

namespace scriptorium {

// Appends `text` as a JSON string with its quotes: '"', '\' and the bytes below 0x20 escaped, all
// others as they are. `text` must be UTF-8, or the JSON is none. Made for scripts and environments:
// sixteen bytes at a time where nothing is to be escaped.
void append_json_string(std::string_view text, std::string& out);

}  // namespace scriptorium
