#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "core/base/sha256.h"
#include "core/base/text.h"
#include "core/config/config_file.h"
#include "core/redact/compiled_rules.h"
#include "core/redact/rule_file.h"
#include "core/redact/rule_set.h"
#include "core/redact/shipped_texts.h"

// From files of rules to a RuleSet: what they change in one another, and whether they hold what
// they promise.
namespace scriptorium::redact {
namespace {

constexpr std::array<Place, 3> kPlaces = {Place::kScript, Place::kValue, Place::kText};

// The rules that are in no file. The engine and the Redactor apply them.
std::vector<Rule> built_in_rules() {
  std::vector<Rule> rules(3);
  rules[0].name = kNameRule;
  rules[0].about = "the value of a variable whose name says that it is secret";
  rules[1].name = kWordRule;
  rules[1].about = "a word that the site never keeps";
  rules[2].name = kCopyRule;
  rules[2].about = "a copy of a secret that is elsewhere in the same job";
  return rules;
}

std::uint32_t line_of(const KeyLines& lines, const std::string& key) {
  const auto found = lines.find(key);
  return found == lines.end() ? 0 : found->second;
}

// The rules of all files and the built-in ones; of two with one name the first.
std::vector<Rule> unique_rules(const std::vector<RuleFile>& files, Problems& problems) {
  std::vector<Rule> rules = built_in_rules();
  for (const RuleFile& file : files) {
    for (const Rule& rule : file.rules) {
      if (rule.name.empty() || rule.expression.empty()) continue;  // reported by the parser
      const auto first = std::find_if(rules.begin(), rules.end(),
                                      [&](const Rule& r) { return r.name == rule.name; });
      if (first == rules.end()) {
        rules.push_back(rule);
        continue;
      }
      problems.add(
          {.position = {rule.file, line_of(rule.lines, "name")},
           .key = "rule." + rule.name + ".name",
           .problem = "there is a rule of this name already" +
                      (first->file.empty() ? std::string(" in the engine itself")
                                           : ": " + first->file + ":" +
                                                 std::to_string(line_of(first->lines, "name"))) +
                      "; to replace it, choose another name and switch that one off"});
    }
  }
  return rules;
}

// Applies `off` and `actions` of every file.
std::vector<Rule> changed_rules(std::vector<Rule> rules, const std::vector<RuleFile>& files,
                                Problems& problems) {
  std::vector<std::string> names;
  for (const Rule& rule : rules) names.push_back(rule.name);
  const auto named = [&](const RuleFile& file, const std::string& key, const std::string& name) {
    const auto found = std::find_if(rules.begin(), rules.end(),
                                    [&](const Rule& rule) { return rule.name == name; });
    if (found == rules.end())
      problems.add(
          {.position = {file.file, line_of(file.lines, key + "." + name)},
           .key = options_detail::join_key(key, name),
           .problem = "there is no rule of this name",
           .did_you_mean = name.size() > 100 ? "" : did_you_mean(name, names).value_or("")});
    return found;
  };
  std::set<std::string> off;
  for (const RuleFile& file : files) {
    for (const auto& [name, action] : file.actions) {
      const auto rule = named(file, "actions", name);
      if (rule != rules.end()) rule->action = action;
    }
    for (const std::string& name : file.off) {
      if (named(file, "off", name) != rules.end()) off.insert(name);
    }
  }
  std::erase_if(rules, [&](const Rule& rule) { return off.contains(rule.name); });
  return rules;
}

// A hit must be found in one of the rule's places at least, a near miss in none of them.
bool passes(const CompiledRules& set, const Rule& rule, const Example& example) {
  bool found = false;
  for (const Place place : kPlaces) {
    if (!applies_to(rule, place)) continue;
    for (const Finding& finding : set.find_alone(rule, place, example.text)) {
      const std::string_view text = example.text;
      if (example.secret.empty()) return false;
      found |= text.substr(finding.begin, finding.end - finding.begin) == example.secret;
    }
  }
  return found || example.secret.empty();
}

void check_examples(const CompiledRules& set, const std::set<std::string>& files,
                    Problems& problems) {
  for (const Rule* rule : set.rules()) {
    if (!files.contains(rule->file)) continue;
    for (const Example& example : rule->examples) {
      if (passes(set, *rule, example)) continue;
      const bool hit = !example.secret.empty();
      problems.add(
          {.position = {rule->file, example.line},
           .key = "rule." + rule->name + (hit ? ".hits" : ".misses"),
           .problem = hit ? "the rule does not find this secret where it applies; one of its "
                            "keywords must be on the secret's line, and the group of its "
                            "expression must be exactly the secret"
                          : "the rule finds a secret here, and should not",
           .given = options_detail::quote(std::string_view(example.text).substr(0, 80))});
    }
  }
}

// `checked`: the files whose examples are verified.
std::shared_ptr<const RuleSet> compile_files(const std::vector<RuleFile>& files,
                                             const std::set<std::string>& checked,
                                             Problems& problems) {
  std::vector<Rule> rules = changed_rules(unique_rules(files, problems), files, problems);
  const std::size_t before = problems.list().size();
  auto set = std::make_shared<const CompiledRules>(std::move(rules), files, problems);
  if (problems.list().size() == before) check_examples(*set, checked, problems);
  return set;
}

std::vector<RuleFile> parse_shipped(Problems& problems) {
  std::vector<RuleFile> files;
  for (const ShippedText& shipped : shipped_texts())
    files.push_back(
        parse_rule_file(shipped.text, "shipped/" + std::string(shipped.name), problems));
  return files;
}

// Appends texts to a hash so that no two lists of texts give the same bytes.
class ContentHash {
 public:
  void add(std::string_view text) {
    hash_.update(std::to_string(text.size()) + ":");
    hash_.update(text);
  }
  void add(const std::vector<std::string>& texts) {
    add(std::to_string(texts.size()));
    for (const std::string& text : texts) add(text);
  }
  std::string finish() { return hash_.finish_hex(); }

 private:
  Sha256 hash_;
};

}  // namespace

std::string fingerprint_of(const std::vector<const Rule*>& rules,
                           const std::vector<RuleFile>& files) {
  ContentHash hash;
  hash.add("scriptorium.rules/1");
  for (const Rule* rule : rules) {
    hash.add(rule->name);
    hash.add(rule->keywords);
    hash.add(rule->expression);
    hash.add(std::to_string(rule->entropy));
    hash.add(rule->allow);
    for (const bool flag : {rule->script, rule->value, rule->text, rule->strict, rule->multi_line})
      hash.add(flag ? "1" : "0");
    hash.add(std::to_string(static_cast<int>(rule->action)));
  }
  for (const RuleFile& file : files) {
    hash.add(file.deny_names);
    hash.add(file.allow_names);
    hash.add(file.words);
  }
  return hash.finish();
}

std::vector<RuleFile> shipped_rules() {
  Problems ignored;  // load() reports them, and a unit test shows that there are none
  return parse_shipped(ignored);
}

std::shared_ptr<const RuleSet> RuleSet::make(std::vector<RuleFile> files, Problems& problems) {
  std::set<std::string> all;
  for (RuleFile& file : files) {
    for (Rule& rule : file.rules) {
      if (rule.file.empty()) rule.file = file.file;
    }
    all.insert(file.file);
  }
  return compile_files(files, all, problems);
}

std::shared_ptr<const RuleSet> RuleSet::load(const std::string& directory, Problems& problems) {
  std::vector<RuleFile> files = parse_shipped(problems);
  std::set<std::string> of_site;
  bool complete = true;
  for (const std::string& name : toml_files(directory, problems, complete)) {
    const auto text = read_config_file(name, "", problems);
    if (!text) continue;
    files.push_back(parse_rule_file(*text, name, problems));
    of_site.insert(name);
  }
  return compile_files(files, of_site, problems);
}

}  // namespace scriptorium::redact
