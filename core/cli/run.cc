#include <unistd.h>

#include "core/cli/command_line.h"
#include "core/cli/commands.h"
#include "core/cli/exit_codes.h"
#include "core/cli/manual.h"
#include "core/daemon/daemon.h"

namespace scriptorium::cli {

int run_command(const Arguments& arguments, Console& console) {
  switch (arguments.command) {
    case Command::kRun:
      return run_daemon({.config_file = arguments.config_file,
                         .once = arguments.once,
                         .progress = ::isatty(STDERR_FILENO) == 1});
    case Command::kCheck: return check_command(arguments, console);
    case Command::kPlugins: return plugins_command(arguments, console);
    case Command::kStatus: return status_command(arguments, console);
    case Command::kDeadLettersList:
    case Command::kDeadLettersShow:
    case Command::kDeadLettersRetry:
    case Command::kDeadLettersDiscard: return dead_letters_command(arguments, console);
    case Command::kSinksList:
    case Command::kSinksForget:
    case Command::kSinksFill: return sinks_command(arguments, console);
    case Command::kOwnersList:
    case Command::kOwnersRetry: return owners_command(arguments, console);
    case Command::kShow: return show_command(arguments, console);
    case Command::kSearch: return search_command(arguments, console);
    case Command::kDiff: return diff_command(arguments, console);
    case Command::kHistory: return history_command(arguments, console);
    case Command::kSoftware: return software_command(arguments, console);
    case Command::kReport: return report_command(arguments, console);
    case Command::kUsage: return usage_command(arguments, console);
    case Command::kServe: return serve_command(arguments, console);
    case Command::kSetup: return setup_command(arguments, console);
    case Command::kImport: return import_command(arguments, console);
    case Command::kRedact: return redact_command(arguments, console);
    case Command::kCatalogCheck:
    case Command::kCatalogRebuild:
    case Command::kCatalogCompact:
    case Command::kCatalogStats: return catalog_command(arguments, console);
    case Command::kCheckpointList:
    case Command::kCheckpointShow:
    case Command::kCheckpointVerify:
    case Command::kCheckpointPrune: return checkpoint_command(arguments, console);
    case Command::kVersion:
      console.out << "scriptorium " SCRIPTORIUM_VERSION "\n";
      return kExitGood;
    case Command::kCompletion:
      console.out << completion(command_model(), arguments.shell);
      return kExitGood;
    case Command::kMan:
      console.out << man_page(command_model(), SCRIPTORIUM_VERSION);
      return kExitGood;
  }
  return kExitSoftware;
}

}  // namespace scriptorium::cli
