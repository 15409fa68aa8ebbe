#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/api/query.h"
#include "core/api/searchable.h"

// A job's facts in words for people, on a terminal or a page. Times are those of the process's time
// zone. Users' texts are made printable. What is unknown is "". Pure.
namespace scriptorium::query {

std::string shown(const std::optional<std::string>& text);  // printable
std::string shown(const std::vector<std::string>& list);    // "a, b"
std::string local_time(Timestamp time);                     // "2026-11-20 10:00"
std::string user_text(const JobRow& job);                   // "alice", "alice?" if not verified
std::string state_text(const JobRow& job);                  // "FAILED (2)", "FAILED (signal 9)"
bool succeeded(const JobRow& job);                          // COMPLETED with exit code 0
// How the state is to be taken; kUnknown also while the job waits or runs.
enum class Ending : std::uint8_t { kUnknown, kGood, kStopped, kBad };  // kStopped: cancelled, ...
Ending ending_of(const JobRow& job);
std::string elapsed_text(const JobRow& job);   // "1 h 10 min"
std::string time_use_text(const JobRow& job);  // "1 h 10 min of 2 h"
std::string memory_text(const JobRow& job);    // "3.5 GiB of 8 GiB"
std::string cpu_text(const JobRow& job);       // "97 % of 16"
std::string gpu_text(const JobRow& job);       // "12 % of 2"
// " after 1 h 10 min, 2026-11-20 10:00 to 2026-11-20 11:10", behind the state.
std::string span_text(const JobRow& job);

// Each life of a requeued job, the first one first: several events may describe one.
std::vector<JobRow> lives_of(const Searchable::Record& record);
// A run of a task of an array.
struct Task {
  std::string id;  // of the task; printable
  JobRow run;      // only its outcome
};
// Those that failed, the newest first; at most 100.
std::vector<Task> failed_of(std::vector<Task> tasks);

}  // namespace scriptorium::query
