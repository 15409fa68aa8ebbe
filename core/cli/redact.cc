#include "core/base/thrown.h"
#include "core/cli/commands.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/cli/redact_archive.h"
#include "core/cli/redact_files.h"
#include "core/cli/redact_rules.h"

namespace scriptorium::cli {

int redact_command(const Arguments& arguments, Console& console) try {
  const auto rules = rules_in_force(arguments, console);
  if (!rules) return kExitConfig;
  if (arguments.rules) return list_rules(arguments, *rules, console);
  if (arguments.dry_run || arguments.apply) return redact_archive(arguments, *rules, console);
  return redact_files(arguments, *rules, console);
} catch (...) {
  return fail(console, "the rules could not be applied: " + thrown_text(), kExitSoftware);
}

}  // namespace scriptorium::cli
