#pragma once

#include "core/mail/summary.h"

namespace scriptorium::mail::test {

inline constexpr std::uint64_t kHour = 3600;

// A mail with all of its parts.
inline Summary rich_summary() {
  Summary summary;
  summary.cluster = "hpc1";
  summary.user = "alice";
  summary.period = {.kind = CalendarPeriod::Kind::kWeek, .year = 2026, .number = 46};
  summary.now = {.jobs = 37,
                 .core_seconds = 512 * kHour,
                 .unused_core_seconds = 320 * kHour,
                 .gpu_seconds = 40 * kHour,
                 .unused_gpu_seconds = 28 * kHour};
  summary.before = {.jobs = 31,
                    .core_seconds = 400 * kHour,
                    .unused_core_seconds = 100 * kHour,
                    .gpu_seconds = 36 * kHour,
                    .unused_gpu_seconds = 25 * kHour};
  summary.unmeasured_jobs = 2;
  summary.findings = {
      {.id = "gpu_low",
       .sum = {.jobs = 4, .gpu_seconds = 30 * kHour, .unused_gpu_seconds = 26 * kHour},
       .job = "5120",
       .job_name = "train <large> & \"fast\"",
       .text = "The GPUs were busy for 12 % of the time on average."},
      {.id = "cpu_serial",
       .sum = {.jobs = 12, .core_seconds = 240 * kHour, .unused_core_seconds = 210 * kHour},
       .job = "4711_3",
       .job_name = "md",
       .directives = {"#SBATCH --cpus-per-task=1", "#SBATCH --ntasks=1", "#SBATCH --mem=520M"},
       .condition = "if the part that did not run needs no more"},
      {.id = "mem_over",
       .sum = {.jobs = 1, .core_seconds = 8 * kHour, .unused_core_seconds = 9 * kHour / 2},
       .job = "4802",
       .directives = {"#SBATCH --mem=2G"}}};
  summary.secret_jobs = 5;
  summary.secret_examples = {"5121", "4802_7", "4799"};
  return summary;
}

// The mail to the staff about the same jobs.
inline Summary site_summary() {
  Summary summary = rich_summary();
  summary.audience = Audience::kStaff;
  summary.user.clear();
  summary.secret_jobs = 0;
  for (CostlyFinding& finding : summary.findings) {
    finding.job.clear();
    finding.directives.clear();
  }
  summary.accounts = {
      {"chem", {.jobs = 30, .core_seconds = 500 * kHour, .unused_core_seconds = 315 * kHour}},
      {"<bio>\n\u202E", {.jobs = 1, .gpu_seconds = 40 * kHour, .unused_gpu_seconds = 28 * kHour}},
      {"", {.jobs = 6, .core_seconds = 12 * kHour, .unused_core_seconds = 5 * kHour}}};
  return summary;
}

// A mail to a coordinator who may see users.
inline Summary coordinator_summary() {
  Summary summary = site_summary();
  summary.audience = Audience::kCoordinator;
  summary.user = "prof";
  summary.accounts.resize(2);
  summary.users = {
      {"alice", {.jobs = 25, .core_seconds = 300 * kHour, .unused_core_seconds = 200 * kHour}},
      {"<bob>\n", {.jobs = 1, .gpu_seconds = 40 * kHour, .unused_gpu_seconds = 28 * kHour}}};
  return summary;
}

}  // namespace scriptorium::mail::test
