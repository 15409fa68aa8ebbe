#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "schedulers/usage/findings.h"

// What the rules of findings.cc and of gpu_findings.cc share. Pure.
namespace scriptorium::usage {

using Found = std::optional<Finding>;

// One notice and one warning level beneath which a ratio is too low; nothing if it is not.
struct Level {
  Severity severity;
  double threshold;
};
std::optional<Level> below(double value, double notice, double warning);

// What a step had, and the part of it that it used.
struct StepPart {
  std::uint64_t had = 0;
  double used_ratio = 0;
};
using StepPartOf = std::function<std::optional<StepPart>(const StepUse&)>;

// Says of a finding about what was not used which step it was, if one has most of the unused time.
// Steps without a number only start the others and wait for them.
void name_idle_step(const JobView& job, double had, double used_ratio, const std::string& unit,
                    const StepPartOf& part_of, Finding& found);

}  // namespace scriptorium::usage
