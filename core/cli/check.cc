#include <algorithm>

#include "core/cli/commands.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/cli/report_mail.h"
#include "core/daemon/check.h"
#include "core/daemon/log.h"

namespace scriptorium::cli {
namespace {

std::string level_text(Finding::Level level, const Console& console) {
  switch (level) {
    case Finding::Level::kOk: return console.green("ok     ");
    case Finding::Level::kWarning: return console.yellow("warning");
    case Finding::Level::kFailed: return console.red("failed ");
  }
  return {};
}

// Separates privileges as `run` would, so that the checks see what the daemon will see. If that is
// refused, the remaining checks run as the current user.
Privileges privileges_as_run(const Arguments& arguments, const Console& console) {
  Privileges none;
  if (!console.owns_process) {
    none.why = "this command does not own its process";
    return none;
  }
  Problems problems;
  const Config config = load_config(arguments.config_file, problems);
  auto split =
      separate_privileges(config, arguments.config_file,
                          problems.empty() ? PrivilegesFor::kLook : PrivilegesFor::kRefusal);
  if (split) return *std::move(split);
  none.refused = split.error().message();
  return none;
}

// The exit code that `run` would end with, at its first error. If it would start anyway, the fault
// lies outside the configuration.
int code_as_run(const std::vector<Finding>& findings) {
  const auto refusal = std::find_if(findings.begin(), findings.end(),
                                    [](const Finding& f) { return f.refusal.has_value(); });
  return refusal == findings.end() ? kExitUnavailable : exit_code_of(*refusal->refusal);
}

}  // namespace

int check_command(const Arguments& arguments, Console& console) {
  const std::vector<Finding> of_mail = check_mail(arguments.config_file);
  const Privileges privileges = privileges_as_run(arguments, console);
  const auto setup = load_with_rules_or_say(arguments, console);
  if (!setup) return kExitConfig;
  const auto log = make_command_logger();
  auto findings = check_setup(*setup, *log, privileges);
  findings.insert(findings.end(), of_mail.begin(), of_mail.end());
  for (const Finding& finding : findings) {
    console.out << level_text(finding.level, console) << "  " << finding.subject << ": "
                << finding.text << "\n";
  }
  const auto failed = static_cast<std::size_t>(
      std::count_if(findings.begin(), findings.end(),
                    [](const Finding& f) { return f.level == Finding::Level::kFailed; }));
  if (failed > 0) {
    console.out.flush();
    return fail(console,
                count_of(failed, "check") + " of " + std::to_string(findings.size()) +
                    " failed; the daemon would not work as configured",
                code_as_run(findings));
  }
  console.out << "configuration is valid: " << count_of(setup->sources.size(), "source") << ", "
              << count_of(setup->sinks.size(), "sink") << "\n";
  return kExitGood;
}

}  // namespace scriptorium::cli
