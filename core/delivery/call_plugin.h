#pragma once

#include <optional>
#include <string>
#include <utility>

#include "core/base/thrown.h"

namespace scriptorium {

// The one way in which delivery enters a sink's code: nothing that is thrown there comes further
// than this. Returns what escaped, in words fit for a log, or nothing if the call returned.
template <typename Call>
std::optional<std::string> call_plugin(Call&& call) noexcept {
  try {
    std::forward<Call>(call)();
    return std::nullopt;
  } catch (...) {
    return thrown_text();
  }
}

}  // namespace scriptorium
