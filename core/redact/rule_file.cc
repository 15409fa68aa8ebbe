#include "core/redact/rule_file.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/ascii.h"
#include "core/base/text.h"
#include "core/config/config.h"
#include "core/config/toml_reader.h"

namespace scriptorium::redact {
namespace {

constexpr std::size_t kMostNameBytes = 40;
constexpr std::size_t kLeastKeywordBytes = 2;  // a single letter is on every line
constexpr std::size_t kMostKeywordBytes = 64;
constexpr std::size_t kLeastWordBytes = 6;  // shorter ones are parts of ordinary words
constexpr std::size_t kMostWordBytes = 256;
constexpr double kMostEntropy = 8;

// Says what is wrong with one text of a list; nothing if it is good.
using TextCheck = std::optional<std::string> (*)(const std::string&);

bool is_rule_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= kMostNameBytes && is_lower(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return is_lower(c) || is_digit(c) || c == '-'; });
}

std::optional<std::string> keyword_problem(const std::string& keyword) {
  if (keyword.size() < kLeastKeywordBytes) return "a keyword of one character is on every line";
  if (keyword.size() > kMostKeywordBytes) return "a keyword of this length is no keyword";
  if (std::any_of(keyword.begin(), keyword.end(), is_upper))
    return "keywords match in any case and are written in lower case";
  if (!std::all_of(keyword.begin(), keyword.end(), [](char c) { return c >= ' ' && c <= '~'; }))
    return "keywords are printable ASCII";
  return std::nullopt;
}

std::optional<std::string> word_problem(const std::string& word) {
  if (word.size() < kLeastWordBytes) return "a word this short is part of ordinary texts";
  if (word.size() > kMostWordBytes) return "a word this long; a rule can find its beginning";
  if (word.find('\n') != std::string::npos) return "a word of more than one line is never found";
  return std::nullopt;
}

// An option that is a list of texts, each of which is checked.
template <typename T>
Option<T> checked_list(OptionInfo info, std::vector<std::string> T::* member, TextCheck check,
                       bool may_be_empty = true) {
  info.type = "list of strings";
  return custom<T>(info, [=](const Value& value, const Table& table, T& into, Problems& problems) {
    std::vector<std::string> got;
    if (!options_detail::get(value, table, info, problems, got)) return;
    const auto& items = std::get<std::vector<Value>>(value.data);
    bool good = true;
    for (std::size_t n = 0; n < got.size(); ++n) {
      const auto problem = check(got[n]);
      if (!problem) continue;
      options_detail::not_allowed(items[n], table, info, *problem, problems);
      good = false;
    }
    if (got.empty() && !may_be_empty) {
      options_detail::not_allowed(value, table, info, "is empty", problems);
    } else if (good) {
      into.*member = std::move(got);
    }
  });
}

template <typename T>
Option<T> as_required(Option<T> option) {
  option.info.required = true;
  return option;
}

std::optional<std::string> no_problem(const std::string&) { return std::nullopt; }

const std::vector<std::pair<std::string, Action>>& action_words() {
  static const std::vector<std::pair<std::string, Action>> words = {
      {"replace", Action::kReplace}, {"drop", Action::kDrop}, {"flag", Action::kFlag}};
  return words;
}

// ---- [[rule]]

Option<Rule> text_option(const std::string& name, std::string Rule::* member, std::string allowed,
                         std::string help, bool (*is_good)(std::string_view)) {
  OptionInfo info{.name = name,
                  .type = "string",
                  .allowed = std::move(allowed),
                  .help = std::move(help),
                  .required = true};
  return custom<Rule>(
      info, [=](const Value& value, const Table& table, Rule& into, Problems& problems) {
        std::string got;
        if (!options_detail::get(value, table, info, problems, got)) return;
        if (!is_good(got))
          return options_detail::not_allowed(value, table, info, "cannot be used", problems);
        into.*member = std::move(got);
      });
}

bool is_rule_description(std::string_view text) {
  return !text.empty() && text.size() <= 80 && std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) >= ' ' && c != '\x7f';
  }) && is_utf8(text);
}

bool is_not_empty(std::string_view text) { return !text.empty(); }

Option<Rule> applies_option() {
  const OptionInfo info{.name = "applies",
                        .type = "list of strings",
                        .allowed = "\"script\", \"value\", \"text\"",
                        .help = "where the rule applies"};
  return custom<Rule>(info,
                      [=](const Value& value, const Table& table, Rule& into, Problems& problems) {
                        std::vector<std::string> got;
                        if (!options_detail::get(value, table, info, problems, got)) return;
                        if (got.empty())
                          options_detail::not_allowed(value, table, info, "is empty", problems);
                        into.script = into.value = into.text = false;
                        const auto& items = std::get<std::vector<Value>>(value.data);
                        for (std::size_t n = 0; n < got.size(); ++n) {
                          if (got[n] == "script") {
                            into.script = true;
                          } else if (got[n] == "value") {
                            into.value = true;
                          } else if (got[n] == "text") {
                            into.text = true;
                          } else {
                            options_detail::not_allowed(items[n], table, info, "unknown place",
                                                        problems, {"script", "value", "text"});
                          }
                        }
                      });
}

Option<Rule> entropy_option() {
  const OptionInfo info{.name = "entropy",
                        .type = "number",
                        .allowed = "0 .. 8",
                        .help = "the least entropy of a secret, in bits per byte"};
  return custom<Rule>(
      info, [=](const Value& value, const Table& table, Rule& into, Problems& problems) {
        double got = 0;
        if (!options_detail::get(value, table, info, problems, got)) return;
        if (got < 0 || got > kMostEntropy)
          return options_detail::not_allowed(value, table, info, "out of range", problems);
        into.entropy = got;
      });
}

Option<Rule> action_option() {
  return choice("action", &Rule::action, action_words(), "what happens to a secret");
}

struct Hit {
  std::string text;
  std::string secret;
};

const Schema<Hit>& hit_schema() {
  static const Schema<Hit> schema = {
      required("text", &Hit::text, "a line that holds a secret"),
      required("secret", &Hit::secret, "the part of it that must be removed")};
  return schema;
}

Option<Rule> hits_option() {
  const OptionInfo info{.name = "hits",
                        .type = "list of { text = \"...\", secret = \"...\" }",
                        .help = "texts in which the rule must find a secret"};
  return custom<Rule>(
      info, [=](const Value& value, const Table& table, Rule& into, Problems& problems) {
        const auto* items = std::get_if<std::vector<Value>>(&value.data);
        if (items == nullptr) return options_detail::wrong_type(value, table, info, problems);
        for (const Value& item : *items) {
          if (!std::holds_alternative<Table>(item.data)) {
            options_detail::wrong_type(item, table, info, problems);
            continue;
          }
          Table entry = std::get<Table>(item.data);
          entry.path = options_detail::join_key(table.path, info.name);
          check_unknown_keys(entry, hit_schema().options(), problems);
          Hit hit = hit_schema().parse(entry, problems);
          const bool complete = entry.find("text") != nullptr && entry.find("secret") != nullptr;
          if (complete && (hit.secret.empty() || hit.text.find(hit.secret) == std::string::npos)) {
            problems.add(entry, "secret", "is not a part of the text");
            continue;
          }
          into.examples.push_back({std::move(hit.text), std::move(hit.secret), item.position.line});
        }
      });
}

Option<Rule> misses_option() {
  const OptionInfo info{.name = "misses",
                        .type = "list of strings",
                        .help = "texts in which the rule must find nothing"};
  return custom<Rule>(info,
                      [=](const Value& value, const Table& table, Rule& into, Problems& problems) {
                        std::vector<std::string> got;
                        if (!options_detail::get(value, table, info, problems, got)) return;
                        const auto& items = std::get<std::vector<Value>>(value.data);
                        for (std::size_t n = 0; n < got.size(); ++n)
                          into.examples.push_back({std::move(got[n]), "", items[n].position.line});
                      });
}

const Schema<Rule>& rule_schema() {
  static const Schema<Rule> schema = {
      text_option("name", &Rule::name, "a lower-case letter, then at most 39 of a-z, 0-9 and -",
                  "name of the rule", is_rule_name),
      text_option("about", &Rule::about, "1 .. 80 printable characters",
                  "what it finds: \"a token of GitHub\"", is_rule_description),
      as_required(checked_list({.name = "keywords",
                                .allowed = "2 .. 64 printable characters, in lower case",
                                .help = "one of them is on each line with a secret"},
                               &Rule::keywords, keyword_problem, false)),
      text_option("regex", &Rule::expression, "", "RE2 expression that finds the secret",
                  is_not_empty),
      entropy_option(),
      applies_option(),
      checked_list({.name = "allow", .help = "RE2 expressions: what they match is no secret"},
                   &Rule::allow, no_problem),
      action_option(),
      option("strict", &Rule::strict, "only with redact = \"strict\""),
      option("multi_line", &Rule::multi_line, "a match may go beyond the keyword's line"),
      hits_option(),
      misses_option()};
  return schema;
}

Rule parse_rule(const Table& table, Problems& problems) {
  Table named = table;  // so that messages say which rule
  if (const Value* value = table.find("name")) {
    const auto* name = std::get_if<std::string>(&value->data);
    if (name != nullptr && is_rule_name(*name))
      named.path = options_detail::join_key(table.path, *name);
  }
  check_unknown_keys(named, rule_schema().options(), problems);
  Rule rule = rule_schema().parse(named, problems);
  rule.file = table.position.file;
  for (const TableEntry& entry : table.entries) rule.lines[entry.key] = entry.value.position.line;
  return rule;
}

// ---- the other keys

Option<RuleFile> rules_option() {
  const OptionInfo info{.name = "rule",
                        .type = "tables [[rule]]",
                        .help = "rules, each below a line [[rule]] of its own"};
  return custom<RuleFile>(
      info, [=](const Value& value, const Table& table, RuleFile& into, Problems& problems) {
        const auto* items = std::get_if<std::vector<Value>>(&value.data);
        if (items == nullptr) return options_detail::wrong_type(value, table, info, problems);
        for (const Value& item : *items) {
          if (const auto* rule = std::get_if<Table>(&item.data)) {
            into.rules.push_back(parse_rule(*rule, problems));
          } else {
            options_detail::wrong_type(item, table, info, problems);
          }
        }
      });
}

Option<RuleFile> off_option() {
  const OptionInfo info{
      .name = "off", .type = "list of strings", .help = "names of rules that are switched off"};
  return custom<RuleFile>(
      info, [=](const Value& value, const Table& table, RuleFile& into, Problems& problems) {
        if (!options_detail::get(value, table, info, problems, into.off)) return;
        const auto& items = std::get<std::vector<Value>>(value.data);
        for (std::size_t n = 0; n < items.size(); ++n)
          into.lines["off." + into.off[n]] = items[n].position.line;
      });
}

Option<RuleFile> actions_option() {
  const OptionInfo info{.name = "actions",
                        .type = "table",
                        .help = "by name of a rule, what happens to its secrets instead"};
  return custom<RuleFile>(
      info, [=](const Value& value, const Table& table, RuleFile& into, Problems& problems) {
        const auto* actions = std::get_if<Table>(&value.data);
        if (actions == nullptr) return options_detail::wrong_type(value, table, info, problems);
        for (const TableEntry& entry : actions->entries) {
          Rule chosen;
          choice(entry.key, &Rule::action, action_words(), "")
              .apply(entry.value, *actions, chosen, problems);
          into.actions[entry.key] = chosen.action;
          into.lines["actions." + entry.key] = entry.value.position.line;
        }
      });
}

const Schema<RuleFile>& names_schema() {
  static const Schema<RuleFile> schema = {
      checked_list(
          {.name = "deny", .help = "variables whose values are never kept"}, &RuleFile::deny_names,
          +[](const std::string& p) { return glob_problem(p); }),
      checked_list(
          {.name = "allow", .help = "variables that are harmless all the same"},
          &RuleFile::allow_names, +[](const std::string& p) { return glob_problem(p); })};
  return schema;
}

Option<RuleFile> names_option() {
  const OptionInfo info{.name = "names", .type = "table", .help = "patterns on names of variables"};
  return custom<RuleFile>(
      info, [=](const Value& value, const Table& table, RuleFile& into, Problems& problems) {
        const auto* names = std::get_if<Table>(&value.data);
        if (names == nullptr) return options_detail::wrong_type(value, table, info, problems);
        check_unknown_keys(*names, names_schema().options(), problems);
        RuleFile got = names_schema().parse(*names, problems);
        into.deny_names = std::move(got.deny_names);
        into.allow_names = std::move(got.allow_names);
      });
}

Option<RuleFile> parts_option() {
  const OptionInfo info{
      .name = "parts", .type = "table", .help = "by name, what {{NAME}} means in an expression"};
  return custom<RuleFile>(
      info, [=](const Value& value, const Table& table, RuleFile& into, Problems& problems) {
        const auto* parts = std::get_if<Table>(&value.data);
        if (parts == nullptr) return options_detail::wrong_type(value, table, info, problems);
        for (const TableEntry& entry : parts->entries) {
          const OptionInfo part{.name = entry.key, .type = "string"};
          options_detail::get(entry.value, *parts, part, problems, into.parts[entry.key]);
        }
      });
}

// Other text between braces is left as it is: it may be of a template language.
void insert_parts(const std::map<std::string, std::string>& parts, std::string& expression) {
  for (const auto& [name, text] : parts) {
    const std::string mark = "{{" + name + "}}";
    const std::string group = "(?:" + text + ")";
    for (std::size_t at = expression.find(mark); at != std::string::npos;
         at = expression.find(mark, at + group.size()))
      expression.replace(at, mark.size(), group);
  }
}

const Schema<RuleFile>& file_schema() {
  static const Schema<RuleFile> schema = {
      off_option(),
      checked_list({.name = "words",
                    .allowed = "6 .. 256 bytes in one line",
                    .help = "texts that are never kept, wherever they are",
                    .secret = true},
                   &RuleFile::words, word_problem),
      actions_option(),
      names_option(),
      parts_option(),
      rules_option()};
  return schema;
}

}  // namespace

RuleFile parse_rule_file(std::string_view text, const std::string& name, Problems& problems) {
  const TomlText toml = read_toml(text, name, problems);
  check_unknown_keys(toml.table, file_schema().options(), problems);
  RuleFile file = file_schema().parse(toml.table, problems);
  file.file = name;
  for (Rule& rule : file.rules) insert_parts(file.parts, rule.expression);
  return file;
}

}  // namespace scriptorium::redact
