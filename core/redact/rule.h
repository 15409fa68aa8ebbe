#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// What a rule for secrets says. Plain values; see rule_file.h for the files that they come from and
// rule_set.h for what is made of them.
namespace scriptorium::redact {

// redact = "off" | "flag" | "default" | "strict", of the configuration or of one source.
enum class Mode : std::uint8_t {
  kOff,      // nothing is looked for
  kFlag,     // everything is kept; the event says what was found
  kDefault,  // each rule's own action
  kStrict,   // also the rules that hit ordinary text now and then
};
std::optional<Mode> parse_mode(std::string_view name) noexcept;
const char* to_string(Mode mode) noexcept;

enum class Action : std::uint8_t {
  kReplace,  // by "[redacted:RULE]", which does not tell the secret's length
  kDrop,     // the whole variable; elsewhere as kReplace
  kFlag,     // kept; the event says that it is there
};

// The kinds of text that a rule may apply to.
enum class Place : std::uint8_t {
  kScript,  // a job script; lines that end in a backslash are joined before matching
  kValue,   // the value of one variable of the environment
  kText,    // job name, comment, submit line, directives, arguments, raw records
};

// The lines of a file at which its keys are, for messages; a key that is missing has none.
using KeyLines = std::map<std::string, std::uint32_t, std::less<>>;

// A text of a rule's own tests.
struct Example {
  std::string text;
  std::string secret;      // what must be removed from it; "" = nothing (a near miss)
  std::uint32_t line = 0;  // of its file
};

struct Rule {
  std::string name;   // [a-z][a-z0-9-]*, at most 40, unique
  std::string about;  // completes "what looks like ...": "a token of GitHub"
  // ASCII, lower case: the expression runs only on a line (`multi_line`: from the line on) in which
  // one of them occurs in any case.
  std::vector<std::string> keywords;
  // RE2 over bytes (Latin-1). The secret is the first group that takes part in the match, or else
  // the whole match: "([^"]*)"|'([^']*)'|(\S+) has three, one for each way to quote. An empty
  // secret is none, so that "()" steps over what only looks alike; nor is a placeholder
  // (placeholder.h). The search continues behind the secret, or behind the match where there was
  // none.
  std::string expression;
  double entropy = 0;              // Shannon's, bits per byte: a secret with less is none
  std::vector<std::string> allow;  // RE2: a secret that one of them matches anywhere is none
  bool script = true, value = true, text = true;  // where it applies
  bool strict = false;                            // only in Mode::kStrict
  bool multi_line = false;                        // the expression may go beyond one line
  Action action = Action::kReplace;
  std::vector<Example> examples;  // hits and near misses
  std::string file;               // "" = none
  KeyLines lines;                 // "name", "regex", "allow" and so on
};

bool applies_to(const Rule& rule, Place place) noexcept;

// One file of rules: a shipped one, or one of a site's redact.d.
struct RuleFile {
  std::string file;
  std::vector<Rule> rules;
  std::vector<std::string> off;           // names of rules that are switched off
  std::map<std::string, Action> actions;  // by name of a rule, instead of its own
  // Shell-style patterns, in any case, on names of variables whose values are never kept, and on
  // names that are harmless all the same.
  std::vector<std::string> deny_names, allow_names;
  std::vector<std::string> words;            // always removed, wherever they are
  std::map<std::string, std::string> parts;  // of expressions, by name
  KeyLines lines;                            // "off.NAME" and "actions.NAME"

  bool is_shipped() const { return file.starts_with("shipped/"); }
};

// The shipped rule that knows the names whose values are secret, however weak they are.
inline constexpr std::string_view kAssignmentRule = "secret-assignment";

// The rules that are not in a file.
inline constexpr std::string_view kNameRule = "variable-name";  // a variable with a denied name
inline constexpr std::string_view kWordRule = "site-word";      // RuleFile::words
inline constexpr std::string_view kCopyRule = "copy";           // a secret found elsewhere in the
                                                                // same job

}  // namespace scriptorium::redact
