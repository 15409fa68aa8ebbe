#pragma once

#include "core/cli/arguments.h"
#include "core/cli/console.h"
#include "core/cli/redact_rules.h"

namespace scriptorium::cli {

// Shows what the rules find in job scripts or environments, so that a user can look before
// submitting. Secrets are masked.
int redact_files(const Arguments& arguments, RulesInForce rules, Console& console);

}  // namespace scriptorium::cli
