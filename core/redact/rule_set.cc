#include "core/redact/rule_set.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

#include "core/base/ascii.h"
#include "core/redact/compiled_rules.h"
#include "core/redact/findings.h"
#include "core/redact/line_search.h"
#include "core/redact/placeholder.h"

namespace scriptorium::redact {
namespace {

// What may be between a name and its '=' in code: os.environ["NAME"] = ...
constexpr std::string_view kBeforeEquals = " \t\"']";

std::string_view word_before(std::string_view text, std::size_t end) {
  std::size_t begin = end;
  while (begin > 0 && (is_alphanumeric(text[begin - 1]) || text[begin - 1] == '_')) --begin;
  return text.substr(begin, end - begin);
}

// The value that begins at `at`: within quotes, or a word of a shell. It ends where the next one of
// a list of variables begins (qsub -v A=1,B=2).
std::pair<std::size_t, std::size_t> assigned_value(std::string_view text, std::size_t at) {
  if (at == text.size() || text[at] == '=') return {at, at};  // a comparison
  const std::size_t line_end = std::min(text.find('\n', at), text.size());
  if (text[at] == '"' || text[at] == '\'')
    return {at + 1, std::max(at + 1, std::min(text.find(text[at], at + 1), line_end))};
  std::size_t end = std::min(text.find_first_of(" \t\n;|&()<>`\"'", at), text.size());
  for (std::size_t comma = text.find(',', at); comma < end; comma = text.find(',', comma + 1)) {
    const std::size_t equals = text.find('=', comma);
    if (equals < end && equals > comma + 1 &&
        word_before(text, equals).size() == equals - comma - 1)
      end = comma;
  }
  return {at, end};
}

bool ends_with_any(const std::string& name, std::span<const std::string_view> ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

// API_KEY_FILE=/run/key
bool names_place(std::string_view name, std::string_view value) {
  constexpr std::array<std::string_view, 5> kEnds = {"_file", "_path", "_dir", "_folder", "_home"};
  constexpr std::string_view kOthers = "/._-+@%~$:";
  const std::size_t begin = value.find_first_not_of("~.");
  const bool is_path =
      value.starts_with('$') || (begin < 3 && value.substr(begin).starts_with('/'));
  return is_path && ends_with_any(to_lower(name), kEnds) && std::ranges::all_of(value, [&](char c) {
           return is_alphanumeric(c) || kOthers.find(c) != std::string_view::npos;
         });
}

// SORT_KEY=name. A key of a cloud is no word.
bool names_column(std::string_view name, std::string_view value) {
  constexpr std::array<std::string_view, 9> kEnds = {"primary_key", "foreign_key",   "sort_key",
                                                     "group_key",   "partition_key", "join_key",
                                                     "row_key",     "cache_key",     "index_key"};
  constexpr std::size_t kLongest = 32;
  return value.size() <= kLongest && ends_with_any(to_lower(name), kEnds) &&
         std::ranges::all_of(value, [](char c) { return is_lower(c) || c == '_' || c == ','; });
}

}  // namespace

CompiledRules::CompiledRules(std::vector<Rule> rules, const std::vector<RuleFile>& files,
                             Problems& problems)
    : rules_(std::move(rules)), names_(files) {
  for (const Rule& rule : rules_) {
    by_name_.push_back(&rule);
    expressions_.emplace_back(rule, problems);
  }
  std::sort(by_name_.begin(), by_name_.end(),
            [](const Rule* a, const Rule* b) { return a->name < b->name; });
  word_rule_ = rule(kWordRule);
  name_rule_ = rule(kNameRule);
  assignment_rule_ = rule(kAssignmentRule);
  index_keywords(files, problems);
  fingerprint_ = fingerprint_of(by_name_, files);
}

void CompiledRules::index_keywords(const std::vector<RuleFile>& files, Problems& problems) {
  std::map<std::string, Keyword> found;
  for (std::size_t index = 0; index < rules_.size(); ++index) {
    for (const std::string& keyword : rules_[index].keywords) {
      auto& with = found[keyword].rules;
      if (with.empty() || with.back() != index) with.push_back(static_cast<std::uint32_t>(index));
    }
  }
  for (const RuleFile& file : files) {
    for (const std::string& word : file.words) found[to_lower(word)].words.push_back(word);
  }
  std::vector<std::string> texts;
  std::size_t bytes = 0;
  for (auto& [keyword, what] : found) {
    bytes += keyword.size();
    texts.push_back(keyword);
    keywords_.push_back(std::move(what));
  }
  if (bytes > KeywordTable::kMostBytes) {
    problems.add({.position = {files.empty() ? std::string{} : files.back().file, 0},
                  .problem = "the keywords and words of all rules are too many",
                  .allowed = std::to_string(KeywordTable::kMostBytes) + " bytes in all",
                  .given = std::to_string(bytes) + " bytes"});
    return;
  }
  table_ = KeywordTable(texts);
}

const Rule* CompiledRules::rule(std::string_view name) const noexcept {
  const auto found =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [](const Rule* r, std::string_view n) { return r->name < n; });
  return found != by_name_.end() && (*found)->name == name ? *found : nullptr;
}

std::vector<Finding> CompiledRules::find(Mode mode, Place place, std::string_view text) const {
  const LogicalText logical(text, place == Place::kScript);
  LineSearch lines(logical, rules_.size(), mode == Mode::kFlag);
  const std::string_view all = logical.text();
  table_.scan(all, [&](std::size_t number, std::size_t end) {
    const Keyword& keyword = keywords_[number];
    for (const std::uint32_t index : keyword.rules) {
      const Rule& rule = rules_[index];
      if (!applies_to(rule, place) || (rule.strict && mode != Mode::kStrict)) continue;
      if (!lines.keyword(rule, index, expressions_[index], end)) return false;
    }
    if (word_rule_ == nullptr) return true;
    for (const std::string& word : keyword.words) {
      const std::size_t begin = end - word.size();
      if (all.substr(begin, word.size()) == word && !lines.literal(*word_rule_, begin, end))
        return false;
    }
    return true;
  });
  if (place != Place::kValue && name_rule_ != nullptr && names_.has_site_patterns())
    find_denied_names(lines);
  return resolve_overlaps(text, lines.take());
}

// One notion of a secret name: a script's `export NAME=...` and the variable NAME agree.
bool CompiledRules::is_denied(std::string_view name, std::string_view value) const {
  if (name_rule_ == nullptr || !is_secret_name(name)) return false;
  return names_.is_denied_by_site(name) || !(names_place(name, value) || names_column(name, value));
}

bool CompiledRules::is_secret_name(std::string_view name) const {
  if (names_.is_denied(name)) return true;
  return assignment_rule_ != nullptr &&
         !find_alone(*assignment_rule_, Place::kScript, std::string(name) + "=abc").empty() &&
         !names_.is_allowed(name);
}

// NAME=value, os.environ["NAME"] = "value", setenv NAME value.
void CompiledRules::find_denied_names(LineSearch& lines) const {
  const std::string_view text = lines.text();
  const auto check = [&](std::string_view name, std::size_t value) {
    if (name.empty() || !names_.is_denied_by_site(name)) return true;
    const auto [begin, end] = assigned_value(text, value);
    return begin == end || is_placeholder(text.substr(begin, end - begin)) ||
           lines.literal(*name_rule_, begin, end);
  };
  for (std::size_t at = text.find('='); at != std::string_view::npos; at = text.find('=', at + 1)) {
    std::size_t end = at;
    while (end > 0 && kBeforeEquals.find(text[end - 1]) != std::string_view::npos) --end;
    // In code; in a shell NAME= and a blank end the assignment.
    const std::size_t value = end == at ? at + 1 : text.find_first_not_of(" \t", at + 1);
    if (!check(word_before(text, end), std::min(value, text.size()))) return;
  }
  constexpr std::string_view kSetenv = "setenv ";
  for (std::size_t at = text.find(kSetenv); at != std::string_view::npos;
       at = text.find(kSetenv, at + 1)) {
    const std::size_t name = text.find_first_not_of(' ', at + kSetenv.size());
    const std::size_t end = text.find(' ', std::min(name, text.size()));
    if (end != std::string_view::npos && !check(text.substr(name, end - name), end + 1)) return;
  }
}

std::vector<Finding> CompiledRules::find_alone(const Rule& rule, Place place,
                                               std::string_view text) const {
  const LogicalText logical(text, place == Place::kScript);
  LineSearch lines(logical, rules_.size(), false);
  const auto index = static_cast<std::size_t>(&rule - rules_.data());
  table_.scan(logical.text(), [&](std::size_t number, std::size_t end) {
    const auto& with = keywords_[number].rules;
    return std::find(with.begin(), with.end(), index) == with.end() ||
           lines.keyword(rule, index, expressions_[index], end);
  });
  return resolve_overlaps(text, lines.take());
}

std::string replacement_of(const Rule& rule) { return "[redacted:" + rule.name + "]"; }

}  // namespace scriptorium::redact
