#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/base/result.h"
#include "core/base/thrown.h"

// Core calls plugin code only through these functions, which catch every exception.
namespace scriptorium {

// The message of the exception that escaped, fit for a log; nothing if the call returned.
template <typename Call>
std::optional<std::string> call_plugin(Call&& call) noexcept {
  try {
    std::forward<Call>(call)();
    return std::nullopt;
  } catch (...) {
    return thrown_text();
  }
}

// The Result that the call returned. An escaping exception becomes an error of `kind`: "`who`
// threw: no such thing".
template <typename Call>
std::invoke_result_t<Call> call_plugin(std::string_view who, ErrorKind kind, Call&& call) noexcept {
  try {
    return std::forward<Call>(call)();
  } catch (...) {
    return Error{kind, std::string(who) + " threw: " + thrown_text()};
  }
}

}  // namespace scriptorium
