#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/cli/arguments.h"
#include "core/cli/command_model.h"

namespace scriptorium::cli {

// Either what was asked for, or what to print at once (help, or what is wrong with the line) with
// the exit code.
struct ParsedLine {
  std::optional<Arguments> arguments;
  int exit_code = 0;
  std::string out;
  std::string err;
};

// `words` without the command's own name. Reads nothing but its argument.
ParsedLine parse_command_line(const std::vector<std::string>& words);

// The same definitions, for the man page and the completions. Hidden commands are in it, and
// marked.
CommandModel command_model();

}  // namespace scriptorium::cli
