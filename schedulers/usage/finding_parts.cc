#include "schedulers/usage/finding_parts.h"

#include "core/base/ascii.h"
#include "schedulers/usage/finding_words.h"

namespace scriptorium::usage {

std::optional<Level> below(double value, double notice, double warning) {
  if (value < warning) return Level{Severity::kWarning, warning};
  if (value < notice) return Level{Severity::kNotice, notice};
  return std::nullopt;
}

void name_idle_step(const JobView& job, double had, double used_ratio, const std::string& unit,
                    const StepPartOf& part_of, Finding& found) {
  const double unused = job.totals.elapsed_seconds * had * (1 - used_ratio);
  for (const StepUse& step : job.steps.steps) {
    const std::optional<StepPart> part = part_of(step);
    if (!is_all_digits(step.name) || !part) continue;
    const double idle = static_cast<double>(part->had) * (1 - part->used_ratio);
    if (step.elapsed_seconds * idle <= unused / 2) continue;
    found.steps = {step.name};
    found.text += " Most of the unused time is that of step " + step.name + ", which used " +
                  percent(part->used_ratio) + " of its " +
                  (part->had == 1 ? unit : std::to_string(part->had) + " " + unit + "s") + " for " +
                  duration(step.elapsed_seconds) + ".";
    return;
  }
}

}  // namespace scriptorium::usage
