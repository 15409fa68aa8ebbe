#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/event.h"

namespace scriptorium {

// The variables of a NUL-ended environment as UTF-8 text, each name once: of equal names the last
// value counts, as in a shell that imports them in order, in the position of the first. Pure.
struct TextVariables {
  std::vector<Variable> list;        // views into the environment and `repaired`
  std::deque<std::string> repaired;  // texts that were not UTF-8; empty if all were
};
TextVariables text_variables(std::string_view environment);

}  // namespace scriptorium
