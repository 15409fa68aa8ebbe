#pragma once

#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

#include "core/base/error.h"

namespace scriptorium {

// A value, or the Error that prevented it. It is tl::expected, whose members are named as in
// std::expected, marked [[nodiscard]]; moving to C++23 will be a rename.
//
//   Result<Event> capture(const std::string& path) {
//     auto script = read_job_script(path);
//     if (!script) return script.error().with_context(path);
//     return make_event(*std::move(script));
//   }
template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using Base = tl::expected<T, Error>;

  // Implicit on purpose: functions write `return value;` or `return error;`.
  Result(Error error)
      : Base(tl::unexpect, std::move(error)) {}  // NOLINT(google-explicit-constructor)
  template <typename U = T>
    requires(std::is_constructible_v<T, U &&> && !std::is_same_v<std::decay_t<U>, Error> &&
             !std::is_same_v<std::decay_t<U>, Result>)
  Result(U&& value)
      : Base(tl::in_place, std::forward<U>(value)) {}  // NOLINT(google-explicit-constructor)
};

template <>
class [[nodiscard]] Result<void> : public tl::expected<void, Error> {
 public:
  using Base = tl::expected<void, Error>;

  Result() = default;
  Result(Error error)
      : Base(tl::unexpect, std::move(error)) {}  // NOLINT(google-explicit-constructor)
};

}  // namespace scriptorium
