#include "core/cli/redact_rules.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/file.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/cli/common.h"
#include "core/cli/exit_codes.h"
#include "core/config/config.h"
#include "core/redact/rule_file.h"

namespace scriptorium::cli {
namespace {

using Json = nlohmann::ordered_json;
using redact::Mode;
using redact::Rule;
using redact::RuleFile;
using redact::RuleSet;

const char* to_text(redact::Action action) {
  switch (action) {
    case redact::Action::kReplace: return "replace";
    case redact::Action::kDrop: return "drop";
    case redact::Action::kFlag: break;
  }
  return "flag";
}

std::vector<std::string> places_of(const Rule& rule) {
  std::vector<std::string> places;
  if (rule.script) places.emplace_back("script");
  if (rule.value) places.emplace_back("value");
  if (rule.text) places.emplace_back("text");
  return places;
}

std::string rules_directory(const Arguments& arguments) {
  return join_path(parent_of(arguments.config_file), "redact.d");
}

// The configuration's mode; nothing: its problems were printed.
std::optional<Mode> configured_mode(const Arguments& arguments, Console& console) {
  if (!arguments.config_given && ::access(arguments.config_file.c_str(), R_OK) != 0)
    return Mode::kDefault;
  Problems problems;
  const Config config = load_config(arguments.config_file, problems);
  // What else is wrong in it does not matter here, unless it could not be read at all.
  if (!problems.empty() && config.core.cluster.empty()) {
    if (!arguments.config_given) return Mode::kDefault;
    print_problems(problems, console);
    return std::nullopt;
  }
  return redact::parse_mode(config.core.redact).value_or(Mode::kDefault);
}

// The site's files, as RuleSet::load() reads them.
std::vector<RuleFile> site_files(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(directory, failed)) {
    if (entry.path().extension() == ".toml") names.push_back(entry.path().string());
  }
  std::ranges::sort(names);
  std::vector<RuleFile> files;
  for (const std::string& name : names) {
    Problems ignored;  // RuleSet::load() reports them
    if (const auto text = read_file(name))
      files.push_back(redact::parse_rule_file(*text, name, ignored));
  }
  return files;
}

// Rule -> file that says it.
std::map<std::string, std::string> origins(const RulesInForce& rules) {
  std::map<std::string, std::string> result;
  for (const RuleFile& file : rules.files) {
    for (const Rule& rule : file.rules) result[rule.name] = file.file;
    if (!file.words.empty()) result[std::string(redact::kWordRule)] = file.file;
  }
  return result;
}

}  // namespace

std::optional<RulesInForce> rules_in_force(const Arguments& arguments, Console& console) {
  auto mode = configured_mode(arguments, console);
  if (!mode) return std::nullopt;
  RulesInForce result{.rules = nullptr, .mode = *mode, .files = redact::shipped_rules()};
  if (!arguments.mode.empty()) result.mode = *redact::parse_mode(arguments.mode);
  std::string directory = rules_directory(arguments);
  if (::access(directory.c_str(), F_OK) == 0 && ::access(directory.c_str(), R_OK | X_OK) != 0) {
    console.err << "scriptorium: you may not read the site's own rules in " << directory
                << "; only the shipped rules are used\n";
    directory.clear();
  }
  Problems problems;
  result.rules = directory.empty() ? RuleSet::make(redact::shipped_rules(), problems)
                                   : RuleSet::load(directory, problems);
  if (print_problems(problems, console)) return std::nullopt;
  if (!directory.empty())
    std::ranges::move(site_files(directory), std::back_inserter(result.files));
  return result;
}

std::shared_ptr<const RuleSet> looser_rules(const RulesInForce& rules) {
  std::vector<RuleFile> files = rules.files;
  for (RuleFile& file : files) {
    for (Rule& rule : file.rules) {
      rule.entropy = 0;
      rule.allow.clear();
      rule.strict = false;
      rule.examples.clear();  // a near miss is what is wanted here
    }
  }
  Problems problems;
  auto set = RuleSet::make(std::move(files), problems);
  return problems.empty() ? set : nullptr;
}

int list_rules(const Arguments& arguments, const RulesInForce& rules, Console& console) {
  const auto files = origins(rules);
  const auto file_of = [&](const Rule& rule) {
    const auto found = files.find(rule.name);
    return found == files.end() ? std::string("core") : found->second;
  };
  Json list = Json::array();
  TextTable table({"RULE", "WHERE", "ACTION", "LOOKS LIKE", "FROM"});
  for (const Rule* rule : rules.rules->rules()) {
    if (rule->strict && rules.mode != Mode::kStrict) continue;
    const auto action = rules.mode == Mode::kFlag ? redact::Action::kFlag : rule->action;
    std::string places;
    for (const std::string& place : places_of(*rule)) places += (places.empty() ? "" : " ") + place;
    table.add(
        {rule->name, places, to_text(action), printable(rule->about), printable(file_of(*rule))});
    list.push_back({{"name", rule->name},
                    {"about", rule->about},
                    {"where", places_of(*rule)},
                    {"action", to_text(action)},
                    {"file", file_of(*rule)}});
  }
  if (arguments.json) {
    console.out << list.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  } else {
    console.out << table.text(console);
  }
  return kExitGood;
}

}  // namespace scriptorium::cli
