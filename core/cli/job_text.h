#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/api/query.h"
#include "core/api/searchable.h"
#include "core/cli/console.h"
#include "core/cli/fitted_table.h"

// How the commands show a job's facts to people. Times are those of the caller's time zone. Users'
// texts are made printable. What is unknown is "".
namespace scriptorium::cli {

std::string local_time(Timestamp time);  // "2026-11-20 10:00"

std::string shown(const std::optional<std::string>& text);  // printable
std::string user_text(const JobRow& job);                   // "alice", "alice?" if not verified
std::string state_text(const JobRow& job);                  // "FAILED (2)", "FAILED (signal 9)"
Paint state_paint(const JobRow& job);
bool succeeded(const JobRow& job);  // COMPLETED with exit code 0

std::string elapsed_text(const JobRow& job);  // "1 h 10 min"
std::string memory_text(const JobRow& job);   // "3.5 GiB of 8 GiB"
std::string cpu_text(const JobRow& job);      // "97 % of 16"
std::string gpu_text(const JobRow& job);      // "12 % of 2"

// One line on one row for people to know a job by: "4711  md  alice  2026-11-20 10:00  COMPLETED".
std::string job_line(const JobRow& job);

// The line with its matches in colour, its tabs as blanks: "   17: srun gmx mdrun".
std::string hit_line(const Searchable::Line& line, const Console& console);

}  // namespace scriptorium::cli
