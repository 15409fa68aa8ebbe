#pragma once

#include <string>

#include "core/cli/command_model.h"

namespace scriptorium::cli {

// The text below `--help`: files, exit codes, signals and examples. The man page has the same
// table.
std::string help_footer();
// The text below the help of one command ("deadletters list"): its exit codes.
std::string exit_codes_footer(const std::string& command);

// scriptorium(8) in troff with the man macros. `version` appears in its footer.
std::string man_page(const CommandModel& root, const std::string& version);

// The completion script for a shell: "bash", "zsh" or "fish".
std::string completion(const CommandModel& root, const std::string& shell);

}  // namespace scriptorium::cli
