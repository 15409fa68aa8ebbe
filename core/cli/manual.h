#pragma once

#include <string>

#include "core/cli/command_model.h"

namespace scriptorium::cli {

// Files, exit codes, signals and examples, as they stand under `--help`; the man page has the same
// table.
std::string help_footer();
// What stands below the help of one command ("deadletters list"): the exit codes that it can end
// with.
std::string exit_codes_footer(const std::string& command);

// scriptorium(8) in troff with the man macros. `version` stands at its foot.
std::string man_page(const CommandModel& root, const std::string& version);

// The script that teaches a shell our commands and options: "bash", "zsh" or "fish".
std::string completion(const CommandModel& root, const std::string& shell);

}  // namespace scriptorium::cli
