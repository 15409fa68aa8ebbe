#pragma once

#include <string>
#include <vector>

namespace scriptorium::cli {

// The definition of the command line, independent of its parser. The man page and the shell
// completions are generated from it.
struct OptionModel {
  std::vector<std::string> names;  // "--config", "-c"; for a positional argument its name
  std::string value;               // "FILE"; "" = a flag
  std::vector<std::string> words;  // the allowed values; empty: any
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
