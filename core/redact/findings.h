#pragma once

#include <string_view>
#include <vector>

#include "core/redact/rule_set.h"

namespace scriptorium::redact {

// Brings what the rules found in a text, in any order, into the form that RuleSet::find promises:
// - Findings that overlap become one, from the first byte to the last. The one that begins first,
//   or else the longest, names it; but a rule that drops the whole variable goes before all others.
// - One that is only reported gives way to one that is removed.
// - Each gets its line in `text`, which the offsets refer to.
std::vector<Finding> resolve_overlaps(std::string_view text, std::vector<Finding> findings);

}  // namespace scriptorium::redact
