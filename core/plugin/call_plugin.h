#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/base/result.h"
#include "core/base/thrown.h"

// The one way in which core enters a plugin's code: no exception comes further than this.
namespace scriptorium {

// What escaped, in words fit for a log; nothing if the call returned.
template <typename Call>
std::optional<std::string> call_plugin(Call&& call) noexcept {
  try {
    std::forward<Call>(call)();
    return std::nullopt;
  } catch (...) {
    return thrown_text();
  }
}

// The Result that the call returned. What escapes becomes an error of `kind`:
// "`who` threw: no such thing".
template <typename Call>
std::invoke_result_t<Call> call_plugin(std::string_view who, ErrorKind kind, Call&& call) noexcept {
  try {
    return std::forward<Call>(call)();
  } catch (...) {
    return Error{kind, std::string(who) + " threw: " + thrown_text()};
  }
}

}  // namespace scriptorium
