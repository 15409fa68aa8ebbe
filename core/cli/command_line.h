#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/cli/arguments.h"
#include "core/cli/command_model.h"

namespace scriptorium::cli {

// Either the parsed arguments, or a text to print (help or an error) with the exit code.
struct ParsedLine {
  std::optional<Arguments> arguments;
  int exit_code = 0;
  std::string out;
  std::string err;
};

// `words` is the command line without the program's name. Pure.
ParsedLine parse_command_line(const std::vector<std::string>& words);

// The same definitions, for the man page and the completions. Includes hidden commands, marked as
// such.
CommandModel command_model();

}  // namespace scriptorium::cli
