#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/migrate/move.h"

namespace scriptorium::checkpoint {

// What became of one job.
struct MoveReport {
  std::string id;
  std::string job;  // as users write it: "4711_3" for a task of an array
  uid_t uid = 0;
  std::string from;
  std::string to;
  std::string method;  // "" = none
  MoveOutcome outcome = MoveOutcome::kLeft;
  std::string reason;
  double downtime_seconds = 0;
  std::int64_t lost_seconds = 0;
  bool is_as_asked = false;  // decides about the exit code
};

// Pure: a line for a job, such as "job 4711  moved from n1 to n2 in 3.2 s".
std::string report_line(const MoveReport& report);
// Pure: the JSON of --json.
std::string report_json(const std::vector<MoveReport>& reports, const std::string& drained_node);

}  // namespace scriptorium::checkpoint
