#pragma once

#include "core/cli/arguments.h"
#include "core/cli/console.h"
#include "core/cli/redact_rules.h"

namespace scriptorium::cli {

// Applies the rules to the events of a file tree that was written before, through a sink of the
// configuration that can replace what it stored (core/api/rewritable_sink.h). Refuses while a
// daemon could write to the tree, or still needs an event as it is there.
int redact_archive(const Arguments& arguments, const RulesInForce& rules, Console& console);

}  // namespace scriptorium::cli
