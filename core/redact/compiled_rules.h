#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/redact/expression.h"
#include "core/redact/keyword_table.h"
#include "core/redact/line_search.h"
#include "core/redact/name_patterns.h"
#include "core/redact/rule_set.h"

namespace scriptorium::redact {

// The RuleSet that RuleSet::load and RuleSet::make return.
class CompiledRules final : public RuleSet {
 public:
  // `rules`: with their final actions, without those that are switched off; names are unique.
  // Reports expressions that do not compile.
  CompiledRules(std::vector<Rule> rules, const std::vector<RuleFile>& files, Problems& problems);

  const std::vector<const Rule*>& rules() const noexcept override { return by_name_; }
  const Rule* rule(std::string_view name) const noexcept override;
  const std::string& fingerprint() const noexcept override { return fingerprint_; }
  std::vector<Finding> find(Mode mode, Place place, std::string_view text) const override;
  using RuleSet::is_denied;
  bool is_denied(std::string_view name, std::string_view value) const override;

  // What one rule finds, in any mode and as if it applied to `place`; for its examples.
  std::vector<Finding> find_alone(const Rule& rule, Place place, std::string_view text) const;

 private:
  bool is_secret_name(std::string_view name) const;
  // What a keyword of the table leads to.
  struct Keyword {
    std::vector<std::uint32_t> rules;  // indexes into rules_
    std::vector<std::string> words;    // of the site, which differ in case
  };
  // Values that a script assigns to names that the site denies.
  void find_denied_names(LineSearch& lines) const;
  void index_keywords(const std::vector<RuleFile>& files, Problems& problems);

  std::vector<Rule> rules_;  // does not change, so that pointers into it stay valid
  std::vector<const Rule*> by_name_;
  std::vector<Expression> expressions_;  // as rules_; of built-in rules too, without use
  std::vector<Keyword> keywords_;
  KeywordTable table_;
  NamePatterns names_;
  const Rule* word_rule_ = nullptr;
  const Rule* name_rule_ = nullptr;
  const Rule* assignment_rule_ = nullptr;  // knows the names whose values are secret, however weak
  std::string fingerprint_;
};

// A hash over everything that decides what is found.
std::string fingerprint_of(const std::vector<const Rule*>& rules,
                           const std::vector<RuleFile>& files);

}  // namespace scriptorium::redact
