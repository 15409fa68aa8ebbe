#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/redact/expression.h"
#include "core/redact/logical_text.h"
#include "core/redact/rule_set.h"

namespace scriptorium::redact {

// One search through a text: runs each rule at most once for a line, however often its keywords are
// in it, and collects what is found. One that may go beyond its line runs once, from the first line
// with a keyword to the end of the text. That keeps the time linear in the text.
class LineSearch {
 public:
  // `text` must outlive the search. `kept`: Mode::kFlag.
  LineSearch(const LogicalText& text, std::size_t rules, bool all_kept);

  // A keyword of `rule`, number `index`, ends at `offset`; offsets never decrease. False: the rest
  // of the text is one finding, so there is nothing left to look for.
  bool keyword(const Rule& rule, std::size_t index, const Expression& expression,
               std::size_t offset);
  // Something that is a secret as it is.
  bool literal(const Rule& rule, std::size_t begin, std::size_t end);

  std::string_view text() const noexcept { return text_.text(); }
  // What was found, with offsets into the original text.
  std::vector<Finding> take();

 private:
  bool add(const Rule& rule, std::size_t begin, std::size_t end);

  const LogicalText& text_;
  std::size_t rules_;
  bool all_kept_;
  LineRange line_;  // that of the last keyword
  bool has_line_ = false;
  struct Progress {            // of a rule
    std::size_t searched = 0;  // the end of what it has searched
    std::size_t budget = Expression::kSearchBudget;
  };
  std::vector<Progress> progress_;    // by rule; empty until a keyword is found
  std::vector<SecretRange> secrets_;  // of the expression that runs; kept for its memory
  std::vector<Finding> findings_;     // offsets into the logical text
  std::size_t kept_ = 0;
};

}  // namespace scriptorium::redact
