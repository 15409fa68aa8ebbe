#pragma once

#include <string>
#include <string_view>

#include "core/api/options.h"

namespace scriptorium {

// Parses TOML text into a Table with the position of every key, using toml++ (which no other file
// includes).
//
// toml++ stops at the first error. To report them all in one run, the reader removes the line of an
// error and parses the rest again: a key or table defined twice keeps its first value; a line that
// cannot be parsed marks its table as `damaged`. Errors that may only be consequences of earlier
// ones are not reported.
struct TomlText {
  Table table;  // position: line 1; path: ""
  bool damaged =
      false;  // something could not be parsed, so a key that seems to be missing may be there
};
TomlText read_toml(std::string_view text, const std::string& name, Problems& problems);

}  // namespace scriptorium
