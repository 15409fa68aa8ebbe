#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/redact/keyword_table.h"
#include "core/redact/rule.h"

namespace scriptorium::redact {

// Decides by name which variables are never kept. A name is denied if a pattern of a file denies it
// and no pattern of this file or a later one allows it. Shell-style patterns, in any case.
//
// A name is compared only with the patterns whose longest literal part it contains; one pass over
// the name finds these. Immutable; any thread.
//
// The patterns of a site's own files apply to assignments in scripts too. The shipped ones are too
// broad for that (OLD_PWD, SORT_KEY); there the rules of assignments.toml know the names.
class NamePatterns {
 public:
  NamePatterns() : NamePatterns(std::vector<RuleFile>{}) {}
  explicit NamePatterns(const std::vector<RuleFile>& files);

  bool is_denied(std::string_view name) const { return is_denied(name, 0); }
  bool is_denied_by_site(std::string_view name) const { return is_denied(name, site_from_); }
  bool has_site_patterns() const noexcept {
    return !deny_.empty() && deny_.back().file >= site_from_;
  }
  bool is_allowed(std::string_view name) const;

 private:
  struct Pattern {
    std::string glob;  // lower case
    std::size_t file;
    bool has_literal;
  };
  // By a pattern of this file or a later one.
  bool is_denied(std::string_view name, std::size_t first_file) const;
  bool is_allowed(const std::string& lower_name, std::size_t first_file) const;

  std::vector<Pattern> deny_;
  std::vector<Pattern> allow_;
  std::size_t site_from_ = 0;  // the first file that is not shipped
  KeywordTable literals_;      // of deny_; empty = none
  bool all_have_literals_ = true;
};

// The longest part of a pattern that a name must contain as it is; "" = none.
std::string longest_literal(std::string_view glob);

}  // namespace scriptorium::redact
