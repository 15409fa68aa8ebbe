#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/cli/arguments.h"
#include "core/cli/console.h"
#include "core/redact/rule_set.h"

namespace scriptorium::cli {

// The rules that `scriptorium redact` applies: the shipped ones, changed by the site's redact.d.
struct RulesInForce {
  std::shared_ptr<const redact::RuleSet> rules;
  redact::Mode mode = redact::Mode::kDefault;
  std::vector<redact::RuleFile> files;  // that they come from
};

// Works without a configuration, unless --config names one, and for a user who may read neither it
// nor redact.d; says on console.err what was left out. Nothing: the rules or the configuration are
// wrong, and every problem was printed.
std::optional<RulesInForce> rules_in_force(const Arguments& arguments, Console& console);

// The rules without entropy floors and allow lists, and the strict ones, to find what they nearly
// apply to. Null if such rules cannot be made.
std::shared_ptr<const redact::RuleSet> looser_rules(const RulesInForce& rules);

int list_rules(const Arguments& arguments, const RulesInForce& rules, Console& console);

}  // namespace scriptorium::cli
