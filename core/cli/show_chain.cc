#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "core/base/text.h"
#include "core/cli/report_text.h"
#include "core/cli/show_text.h"

namespace scriptorium::cli {
namespace {

using query::CheckpointChain;
using query::CheckpointStep;

// A program that is saved every ten minutes for a week has a thousand.
constexpr std::size_t kMostLines = 40;
constexpr std::size_t kIndent = 14;
constexpr std::size_t kSeverity = 9;  // as in `report`

std::string step_text(const CheckpointStep& step) {
  std::string facts;
  const auto add = [&facts](const std::string& fact) {
    facts += (facts.empty() ? ": " : ", ") + fact;
  };
  if (step.image_bytes) add(format_bytes(*step.image_bytes));
  if (step.frozen_seconds) add("frozen for " + format_seconds(*step.frozen_seconds));
  if (step.runs_on.value_or(false)) add("ran on");
  if (step.away_seconds) {
    const std::string time = format_seconds(*step.away_seconds);
    add(step.repeats_work ? "as of " + time + " before" : "away for " + time);
  }
  if (!step.reason.empty()) add(step.reason);
  if (step.exit_code) add("exit code " + std::to_string(*step.exit_code));
  return checkpoint_words(step) + (step.node.empty() ? "" : " on " + step.node) + facts;
}

std::string unverified_text(const CheckpointStep& step) {
  return "unverified" + (step.writer.empty() ? "" : ", written by " + step.writer);
}

}  // namespace

std::string chain_text(const Searchable::Record& record,
                       const std::vector<query::CheckpointFinding>& findings,
                       const Console& console) {
  const std::vector<CheckpointChain> chains = query::checkpoint_chains(record);
  std::vector<CheckpointStep> steps;
  for (const CheckpointChain& chain : chains)
    steps.insert(steps.end(), chain.steps.begin(), chain.steps.end());
  std::ranges::stable_sort(steps, {}, &CheckpointStep::time);
  std::string text;
  const auto add = [&text](const std::string& line) {
    text += "  " + padded(text.empty() ? query::kCheckpoint : "", kIndent - 2) + line + "\n";
  };
  std::size_t first = 0;
  if (steps.size() > kMostLines) {
    first = steps.size() - kMostLines;
    add(std::to_string(first) + " earlier ones are left out; --json has them");
  }
  for (; first < steps.size(); ++first) {
    const CheckpointStep& step = steps[first];
    add(local_text(step.time) + "  " + step_text(step) +
        (step.is_verified ? "" : console.yellow(" (" + unverified_text(step) + ")")));
  }
  if (const std::string sum = query::checkpoint_sum_text(chains); !sum.empty()) add(sum);
  for (const query::CheckpointFinding& found : findings)
    add(coloured(padded(found.severity, kSeverity), found.severity, console) +
        wrapped(found.text + " [" + found.id + "]", kIndent + kSeverity));
  return text;
}

}  // namespace scriptorium::cli
