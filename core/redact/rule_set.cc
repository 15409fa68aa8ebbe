#include "core/redact/rule_set.h"

#include <algorithm>
#include <string>

#include "core/base/ascii.h"
#include "core/redact/compiled_rules.h"
#include "core/redact/findings.h"
#include "core/redact/line_search.h"

namespace scriptorium::redact {
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
  denies_names_ = rule(kNameRule) != nullptr;
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
  return resolve_overlaps(text, lines.take());
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
