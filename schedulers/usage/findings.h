#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/options.h"
#include "schedulers/usage/job_facts.h"

// What a job's figures say about how to ask for less, or for what it lacked. Rules are data: an id,
// parameters with defaults, a sentence. Pure.
namespace scriptorium::usage {

enum class Severity { kInfo, kNotice, kWarning, kCritical };
const char* to_string(Severity severity) noexcept;

// What to ask for next time.
struct Suggestion {
  std::optional<std::uint32_t> cpus;
  std::optional<std::uint64_t> memory_bytes;  // of each node
  std::optional<double> time_limit_seconds;
  std::vector<std::string> directives;  // "--mem=240M": what stands behind #SBATCH

  bool empty() const noexcept { return directives.empty(); }
};

struct Finding {
  std::string_view id;
  Severity severity = Severity::kNotice;
  double value = 0;  // what was measured, in `unit`
  std::optional<double> threshold;
  std::string_view unit;           // "ratio", "seconds", "bytes", "count"
  std::string_view scope = "job";  // "job", "node", "gpu"
  std::vector<std::string> hosts;  // of scope node or gpu
  Suggestion suggest;
  std::string text;  // one or two sentences for the job's owner
};

// A number that a site may set in [source.NAME.findings].
struct FindingParameter {
  std::string_view key;  // "cpu_low_warning_ratio"
  double value = 0;      // the default
  double least = 0, most = 1;
  std::string_view help;
};

// Thresholds and switches.
class FindingOptions {
 public:
  FindingOptions();                        // the defaults
  double get(std::string_view key) const;  // of a key that exists
  bool on(std::string_view id) const;
  void set(std::string_view key, double value);
  void turn(std::string_view id, bool on);

 private:
  std::vector<double> values_;
  std::vector<bool> on_;
};

// [source.NAME.findings]: parameters by key, `off = [...]` and `on = [...]` with ids. Says every
// problem.
FindingOptions read_finding_options(const Table& table, Problems& problems);

// All that can be set, in the order of the documentation; and the ids with whether they are on
// unless told.
const std::vector<FindingParameter>& finding_parameters();
struct FindingRuleInfo {
  std::string_view id;
  bool on = true;
  bool always =
      false;  // a fact and no estimate: also for a job that is too short or was seen in parts
};
std::vector<FindingRuleInfo> finding_rules();

// Whether there is enough to judge by.
QualityStatus quality_of(const JobView& job, const FindingOptions& options);

// Worst first. Of a job that may not be judged only what is a fact.
std::vector<Finding> find_all(const JobView& job, const FindingOptions& options);

// What to write in the next #SBATCH lines: of all findings together, and memory where it was
// measured, found or not. Empty where there is not enough to judge by.
Suggestion suggest(const JobView& job, const FindingOptions& options);

// "240M", "12G": rounded up to what a person would write.
std::string memory_directive(std::uint64_t bytes);
// "0-02:10:00" without what is not needed: "00:10:00".
std::string time_directive(double seconds);

}  // namespace scriptorium::usage
