#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/options.h"
#include "core/redact/rule.h"

namespace scriptorium::redact {

// Shannon's entropy of the bytes of a text, in bits per byte: 0 for one byte repeated, at most 8.
double entropy_of(std::string_view text) noexcept;

// A part of a text in which a rule found a secret: offsets into that text.
struct SecretRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// What a rule says about a text in which one of its keywords is: its expression, entropy and allow
// list, compiled. Immutable; any thread (RE2 is safe to share).
class Expression {
 public:
  // `rule` must outlive it. Reports what does not compile, with file and line; the expression then
  // must not be used.
  Expression(const Rule& rule, Problems& problems);
  Expression(Expression&&) noexcept;
  ~Expression();

  // The secrets of a text, in order and without overlap, appended to `found`.
  //
  // The time that RE2 takes for one search is linear, but an expression such as "a.*b|a" looks at
  // the whole rest of the text for each match. Therefore there are at most kMostSearches; what is
  // left then counts as one secret.
  void find(std::string_view text, std::vector<SecretRange>& found) const;
  static constexpr int kMostSearches = 1000;

 private:
  struct Compiled;
  bool is_secret(std::string_view text) const;

  const Rule* rule_;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace scriptorium::redact
