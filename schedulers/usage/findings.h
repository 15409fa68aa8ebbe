#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/kit/job_request.h"
#include "schedulers/usage/finding_options.h"
#include "schedulers/usage/job_facts.h"

// What a job's figures say about how to ask for less, or for what it lacked. Rules are data: an id,
// parameters with defaults, a sentence. Pure.
namespace scriptorium::usage {

enum class Severity { kInfo, kNotice, kWarning, kCritical };
const char* to_string(Severity severity) noexcept;

// What to ask for next time.
struct Suggestion {
  JobRequest request;
  std::string condition;  // "the 19 nodes that were not measured needed no more"; empty: none

  bool empty() const noexcept { return request.empty(); }
};

struct Finding {
  std::string_view id;
  Severity severity = Severity::kNotice;
  double value = 0;  // what was measured, in `unit`
  std::optional<double> threshold;
  std::string_view unit;           // "ratio", "seconds", "bytes", "count"
  std::string_view scope = "job";  // "job", "node", "gpu"
  std::vector<std::string> hosts;  // of scope node or gpu
  std::vector<std::string> steps;  // in which it lies, where that is known
  Suggestion suggest;
  // Two or three sentences for the job's owner: what was seen, why it matters, what to do.
  std::string text;
};

// Whether there is enough to judge by.
QualityStatus quality_of(const JobView& job, const FindingOptions& options);

// Worst first. Of a job that may not be judged only what is a fact.
std::vector<Finding> find_all(const JobView& job, const FindingOptions& options);

// What to ask for in the next script: of all findings together, and memory where it was
// measured, found or not. A run that did not come to its end never yields less memory than it had.
// Empty where there is not enough to judge by; but where accounting saw some of the nodes for all
// of the time, it is what those needed, with a condition.
Suggestion suggest(const JobView& job, const FindingOptions& options);

}  // namespace scriptorium::usage
