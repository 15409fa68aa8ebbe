#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "core/cli/command_line.h"
#include "core/cli/commands.h"

namespace scriptorium::cli {

// What a command said.
struct Said {
  int code = -1;
  std::string out;
  std::string err;
};

// Runs the command of these words on what is `typed`, and on what else of the console is given.
inline Said say(const std::vector<std::string>& words, const std::string& typed = "",
                bool terminal = false, bool colour = false) {
  const ParsedLine line = parse_command_line(words);
  if (!line.arguments) return {line.exit_code, line.out, line.err};
  std::istringstream in(typed);
  std::ostringstream out;
  std::ostringstream err;
  Console console{.in = in,
                  .out = out,
                  .err = err,
                  .in_is_terminal = terminal,
                  .out_is_terminal = terminal,
                  .colour = colour};
  const int code = run_command(*line.arguments, console);
  return {code, out.str(), err.str()};
}

}  // namespace scriptorium::cli
