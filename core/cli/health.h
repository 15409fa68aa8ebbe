#pragma once

#include <cstdint>
#include <string>

namespace scriptorium::cli {

// What a monitoring plugin says, after the Nagios plugin guidelines that Icinga and others follow:
// the exit code is the state, and one line tells why, with figures for graphs behind a '|'.
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
//   critical: a spool is not there; the journal is full or broken; a sink is behind by
//   behind_critical_s warning:  a sink is behind by behind_warning_s; dead letters; jobs missed or
//   known to be gaps; the journal over 80 %;
//             the last reload was refused; events wait for a sink that is not configured; of the
//             last hour's jobs more than 10 % are unverified, and that is ten at least, or all of
//             them
Health judge_health(const std::string& status_json, const HealthLimits& limits);

// There is no answer.
Health no_answer(const std::string& reason);

}  // namespace scriptorium::cli
