#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/api/options.h"
#include "core/base/result.h"
#include "schedulers/usage/findings.h"

namespace scriptorium::usage {

enum class Resolve {
  kSlurmctld,  // ask slurmctld, by squeue, what a job was and how it ended
  kNone,       // ask nobody: usage.job without request, state and names
};
enum class Accounting { kNone, kSacct };
enum class AccountingJobs {
  kAll,
  kMultiNode,  // the node of a one-node job reports it
};

// What [source.NAME] with plugin = "usage" says about whole jobs; the node's part is UsageConfig's.
struct JobConfig {
  Resolve resolve = Resolve::kSlurmctld;
  std::string slurm_conf;  // "" = where Slurm's commands look by themselves
  std::string squeue;      // "" = the first in the usual folders
  Accounting accounting = Accounting::kNone;
  AccountingJobs accounting_jobs = AccountingJobs::kAll;
  std::string sacct;
  std::int64_t accounting_interval_seconds = 60;
  std::int64_t accounting_overlap_seconds = 600;
  std::int64_t accounting_first_hours = 24;
  std::string help_url;     // the site's page about a finding; "" = none
  FindingOptions findings;  // with that page
};

std::vector<OptionInfo> describe_job();

// Reads these keys of the table and leaves the others alone. What is wrong goes to `problems`.
// Touches no file.
JobConfig read_job_config(const Table& table, Problems& problems);

// For `scriptorium check`: are the commands there, and do slurmctld and slurmdbd answer?
Result<void> check_jobs(const JobConfig& config);

// Of an answer of theirs; one of a large cluster for some hours has some MiB.
inline constexpr std::size_t kMaxAnswer = std::size_t{256} << 20;

}  // namespace scriptorium::usage
