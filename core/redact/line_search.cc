#include "core/redact/line_search.h"

#include <algorithm>
#include <utility>

#include "core/redact/findings.h"

namespace scriptorium::redact {

LineSearch::LineSearch(const LogicalText& text, std::size_t rules, bool all_kept)
    : text_(text), rules_(rules), all_kept_(all_kept) {}

bool LineSearch::keyword(const Rule& rule, std::size_t index, const Expression& expression,
                         std::size_t offset) {
  if (progress_.empty()) progress_.resize(rules_);
  Progress& progress = progress_[index];
  if (offset <= progress.searched) return true;
  const std::string_view all = text_.text();
  if (!has_line_ || offset > line_.end) line_ = line_around(all, offset - 1);
  has_line_ = true;
  const std::size_t end = rule.multi_line ? all.size() : line_.end;
  progress.searched = end;
  secrets_.clear();
  expression.find(all.substr(line_.begin, end - line_.begin), progress.budget, secrets_);
  for (const SecretRange& secret : secrets_) {
    if (!add(rule, line_.begin + secret.begin, line_.begin + secret.end)) return false;
  }
  return true;
}

bool LineSearch::literal(const Rule& rule, std::size_t begin, std::size_t end) {
  // Words may overlap themselves ("abcabc" in "abcabcabc").
  if (!findings_.empty() && findings_.back().rule == &rule && begin < findings_.back().end) {
    findings_.back().begin = std::min(findings_.back().begin, begin);
    findings_.back().end = std::max(findings_.back().end, end);
    return true;
  }
  return add(rule, begin, end);
}

bool LineSearch::add(const Rule& rule, std::size_t begin, std::size_t end) {
  Finding finding{.rule = &rule, .begin = begin, .end = end};
  finding.kept = all_kept_ || rule.action == Action::kFlag;
  if (finding.kept) {
    // Those that are only reported must not end the search for those that are removed.
    if (kept_ == RuleSet::kMostFindings) return true;
    ++kept_;
    findings_.push_back(finding);
    return true;
  }
  const bool too_many = findings_.size() >= RuleSet::kMostFindings + kept_;
  if (too_many) finding.end = text_.text().size();
  findings_.push_back(finding);
  return !too_many;
}

std::vector<Finding> LineSearch::take() {
  for (Finding& finding : findings_) {
    finding.begin = text_.original_of(finding.begin);
    finding.end = text_.original_of(finding.end - 1) + 1;
  }
  return std::exchange(findings_, {});
}

}  // namespace scriptorium::redact
