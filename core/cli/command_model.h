#pragma once

#include <string>
#include <vector>

namespace scriptorium::cli {

// The command line as it is defined, without its parser: the man page and the shells' completions
// are made from it.
struct OptionModel {
  std::vector<std::string> names;  // "--config", "-c"; of a positional: its name alone
  std::string value;               // "FILE"; "" = a flag
  std::vector<std::string> words;  // all that the value may be; empty: anything
  std::string help;
  std::string default_value;
  bool positional = false;
  bool required = false;
};

struct CommandModel {
  std::string name;
  std::string help;
  bool hidden = false;
  std::vector<OptionModel> options;
  std::vector<CommandModel> commands;
};

}  // namespace scriptorium::cli
