#include "core/redact/findings.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace scriptorium::redact {
namespace {

bool drops(const Finding& finding) noexcept { return finding.rule->action == Action::kDrop; }

// Sorted findings, of which none is kept or all are: one for each group that overlaps.
std::vector<Finding> united(const std::vector<Finding>& sorted) {
  std::vector<Finding> result;
  for (const Finding& finding : sorted) {
    if (result.empty() || finding.begin >= result.back().end) {
      result.push_back(finding);
      continue;
    }
    Finding& last = result.back();
    last.end = std::max(last.end, finding.end);
    if (drops(finding) && !drops(last)) last.rule = finding.rule;
  }
  return result;
}

}  // namespace

std::vector<Finding> resolve_overlaps(std::string_view text, std::vector<Finding> findings) {
  if (findings.empty()) return findings;
  std::sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    return std::tie(a.kept, a.begin, b.end, a.rule->name) <
           std::tie(b.kept, b.begin, a.end, b.rule->name);
  });
  const auto kept_begin = std::partition_point(findings.begin(), findings.end(),
                                               [](const Finding& f) { return !f.kept; });
  const std::vector<Finding> removed = united({findings.begin(), kept_begin});
  std::vector<Finding> result;
  auto next = removed.begin();
  for (const Finding& kept : united({kept_begin, findings.end()})) {
    while (next != removed.end() && next->end <= kept.begin) result.push_back(*next++);
    if (next == removed.end() || next->begin >= kept.end) result.push_back(kept);
  }
  result.insert(result.end(), next, removed.end());

  std::size_t counted = 0;
  std::uint32_t line = 1;
  for (Finding& finding : result) {
    const std::string_view between = text.substr(counted, finding.begin - counted);
    line += static_cast<std::uint32_t>(std::count(between.begin(), between.end(), '\n'));
    counted = finding.begin;
    finding.line = line;
  }
  return result;
}

}  // namespace scriptorium::redact
