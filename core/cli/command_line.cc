#include "core/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <utility>

#include "core/base/text.h"
#include "core/cli/command_definition.h"
#include "core/cli/exit_codes.h"
#include "core/cli/query_words.h"

namespace scriptorium::cli {
namespace {

OptionModel model_of(const CLI::Option& option) {
  OptionModel model;
  model.positional = option.get_positional();
  model.required = option.get_required();
  model.help = option.get_description();
  model.default_value = option.get_default_str();
  if (model.positional) model.names.push_back(option.get_name(true));
  for (const std::string& name : option.get_snames()) model.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) model.names.push_back("--" + name);
  if (option.get_items_expected_max() > 0) {
    // CLI11 appends the words of IsMember: "TEXT:{bash,zsh,fish}".
    const std::string type = option.get_type_name();
    const std::size_t brace = type.find('{');
    if (brace != std::string::npos) {
      std::istringstream words(type.substr(brace + 1, type.rfind('}') - brace - 1));
      for (std::string word; std::getline(words, word, ',');) model.words.push_back(word);
    }
    model.value = model.positional ? model.names.front() : type.substr(0, type.find(':'));
  }
  return model;
}

CommandModel model_of(const CLI::App& app) {
  CommandModel model;
  model.name = app.get_name();
  model.help = app.get_description();
  model.hidden = app.get_group().empty();
  for (const CLI::Option* option : app.get_options()) model.options.push_back(model_of(*option));
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    model.commands.push_back(model_of(*sub));
  return model;
}

// For an unknown command CLI11 only reports that a command is missing.
std::optional<std::string> unknown_command(const CommandModel& root,
                                           const std::vector<std::string>& words) {
  const CommandModel* command = &root;
  for (std::size_t i = 0; i < words.size() && !command->commands.empty(); ++i) {
    if (words[i] == "-c" || words[i] == "--config") {
      ++i;
      continue;
    }
    if (words[i].starts_with('-')) continue;
    const auto found = std::find_if(command->commands.begin(), command->commands.end(),
                                    [&](const CommandModel& c) { return c.name == words[i]; });
    if (found != command->commands.end()) {
      command = &*found;
      continue;
    }
    std::vector<std::string> names;
    for (const CommandModel& c : command->commands) {
      if (!c.hidden) names.push_back(c.name);
    }
    const auto near = did_you_mean(words[i], names);
    return "unknown command \"" + printable(words[i]) + "\"" +
           (near ? "; did you mean \"" + *near + "\"?" : "") +
           "\nRun with --help for more information.\n";
  }
  return std::nullopt;
}

// Most likely a variable of the shell that is not set. To leave it out could mean everything.
std::optional<std::string> empty_value(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool is_option = word.starts_with("--") && word.ends_with('=');
    if (!word.empty() && !is_option) continue;
    const std::string before = is_option ? word.substr(0, word.size() - 1)
                               : i > 0   ? words[i - 1]
                                         : std::string("scriptorium");
    return "the value after \"" + printable(before) +
           "\" is empty (a shell variable that is not "
           "set?)\nRun with --help for more information.\n";
  }
  return std::nullopt;
}

ParsedLine refuse(std::string text) {
  ParsedLine refused;
  refused.exit_code = kExitUsage;
  refused.err = std::move(text);
  return refused;
}

}  // namespace

ParsedLine parse_command_line(const std::vector<std::string>& words) {
  if (!words.empty() && words.front() == "help") {
    std::vector<std::string> asked(words.begin() + 1, words.end());
    asked.emplace_back("--help");
    // For an unknown command, "--help" would print the general help.
    const auto unknown = unknown_command(command_model(), asked);
    if (!unknown) return parse_command_line(asked);
    return refuse(*unknown);
  }
  if (auto empty = empty_value(words)) return refuse(*std::move(empty));
  Arguments arguments;
  CommandDefinition definition(arguments);
  ParsedLine result;
  try {
    const auto ordered = query_words_last(words, model_of(definition.app()));
    std::vector<std::string> reversed(ordered.rbegin(), ordered.rend());  // as CLI11 requires
    definition.app().parse(std::move(reversed));
    result.arguments = std::move(arguments);
  } catch (const CLI::ParseError& e) {
    std::ostringstream out;
    std::ostringstream err;
    result.exit_code = definition.app().exit(e, out, err) == 0 ? kExitGood : kExitUsage;
    result.out = out.str();
    result.err = err.str();
    if (result.exit_code != kExitGood)
      result.err = unknown_command(command_model(), words).value_or(result.err);
  }
  return result;
}

CommandModel command_model() {
  Arguments unused;
  CommandDefinition definition(unused);
  CommandModel model = model_of(definition.app());
  model.hidden = false;
  return model;
}

}  // namespace scriptorium::cli
