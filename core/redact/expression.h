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
  // RE2 takes linear time for one search, but each search may look at the whole rest of the text
  // ("tool .* -p (x)" does, for each "tool"). Therefore all but the first one pay for the rest of
  // the text from `budget`. Once that is used up, the rest of the text counts as one secret.
  void find(std::string_view text, std::size_t& budget, std::vector<SecretRange>& found) const;

  // Bytes; about a quarter of a second. Only a text of megabytes in one line needs so much: 100
  // secrets in a line of 1 KB take 50 KB.
  static constexpr std::size_t kSearchBudget = std::size_t{256} << 20;

 private:
  struct Compiled;
  bool is_secret(std::string_view text) const;

  const Rule* rule_;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace scriptorium::redact
