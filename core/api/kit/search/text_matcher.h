#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "core/api/query.h"
#include "core/base/result.h"

namespace scriptorium {

// Finds one kText or kExpression node in bytes, as core/api/query.h defines it. The bytes may hold
// anything, NUL included; expressions see them as Latin-1, `^` and `$` match at lines. In an
// environment an expression sees each variable, "NAME=value", as a text of its own.
// Threads: any, several at once. Cost: linear in the bytes for every text and expression.
class TextMatcher {
 public:
  // kInvalidConfig, with RE2's words, for an expression that RE2 refuses: too long (1 KiB), too
  // large (8 MiB), a repeat count above 100, or a syntax that it does not know.
  static Result<TextMatcher> create(const Query& node);
  TextMatcher(TextMatcher&&) noexcept;
  TextMatcher& operator=(TextMatcher&&) noexcept;
  ~TextMatcher();

  bool matches(std::string_view bytes) const;
  // The first match at or after `from`: begin and end.
  std::optional<std::pair<std::size_t, std::size_t>> find(std::string_view bytes,
                                                          std::size_t from = 0) const;
  // A cheap test over many texts at once, such as a whole block of them: false means that none of
  // them can match. Never false for bytes of which a part matches.
  bool may_match(std::string_view bytes) const;
  // For many texts side by side, at or after `from`: a text that ends at or before the result has
  // no match. Nothing: none of them has.
  std::optional<std::size_t> find_possible(std::string_view bytes, std::size_t from) const;

 private:
  struct Impl;
  explicit TextMatcher(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace scriptorium
