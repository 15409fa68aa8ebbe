#pragma once

#include "core/cli/arguments.h"
#include "core/cli/console.h"
#include "core/cli/redact_rules.h"

namespace scriptorium::cli {

// Applies the rules to what was archived before: a file tree, or all that the sinks of the
// configuration stored, through sinks that can replace it (core/api/rewritable_sink.h). Refuses
// while a daemon could write there, still needs an event as it is there, or another sink would keep
// the secret.
int redact_archive(const Arguments& arguments, const RulesInForce& rules, Console& console);

}  // namespace scriptorium::cli
