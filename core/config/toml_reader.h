#pragma once

#include <string>
#include <string_view>

#include "core/api/options.h"

namespace scriptorium {

// One TOML text as a Table with the place of every key, by toml++ (which no other file includes).
//
// toml++ gives up at the first mistake. So that one run reports them all, the line of a mistake is
// taken out and the rest is read again: a key or table that is there twice keeps its first value; a
// line that cannot be read leaves its table `damaged`. What may only follow from an earlier mistake
// is not reported.
struct TomlText {
  Table table;  // position: line 1; path: ""
  bool damaged =
      false;  // something could not be read, so what seems to be missing may have been there
};
TomlText read_toml(std::string_view text, const std::string& name, Problems& problems);

}  // namespace scriptorium
