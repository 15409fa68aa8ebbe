#pragma once

#include <string>
#include <string_view>

namespace scriptorium {

// Appends `text` as a JSON string with its quotes: '"', '\' and bytes below 0x20 are escaped, all
// others are copied. `text` must be UTF-8, otherwise the result is not valid JSON. Optimized for
// scripts and environments: it copies sixteen bytes at a time where nothing needs escaping.
void append_json_string(std::string_view text, std::string& out);

}  // namespace scriptorium
