#pragma once

#include <cstdint>
#include <string>

namespace scriptorium::cli {

// A monitoring plugin's output, after the Nagios plugin guidelines, which Icinga and others follow:
// the exit code is the state, and one line gives the reason, with figures for graphs after a '|'.
struct Health {
  enum State : int { kOk = 0, kWarning = 1, kCritical = 2 };
  State state = kOk;
  std::string line;
};

struct HealthLimits {
  std::int64_t behind_warning_s = 300;  // age of the oldest event that waits for a sink
  std::int64_t behind_critical_s = 3600;
};

// Judges the answer to `status` (JSON as text). Pure.
//   critical: a spool is missing; the journal is full or broken; a sink is behind by
//             behind_critical_s
//   warning:  a sink is not ready, or hangs: in its start for 10 s, in another call for 30 s; a
//             sink is behind by behind_warning_s; there are dead letters, missed jobs or job
//             number gaps; the journal is over 80 % full; the last reload was refused; events wait
//             for a sink that is not configured; more than 10 % of the last hour's jobs are
//             unverified, and these are at least ten, or all of them
Health judge_health(const std::string& status_json, const HealthLimits& limits);

// For a daemon that did not answer.
Health no_answer(const std::string& reason);

}  // namespace scriptorium::cli
