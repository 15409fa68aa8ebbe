#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/api/query.h"
#include "core/api/searchable.h"
#include "core/cli/console.h"
#include "core/cli/fitted_table.h"
#include "core/query/job_text.h"

// How the commands show a job's facts to people.
namespace scriptorium::cli {

using query::cpu_text;
using query::elapsed_text;
using query::gpu_text;
using query::local_time;
using query::memory_text;
using query::shown;
using query::state_text;
using query::succeeded;
using query::user_text;

Paint state_paint(const JobRow& job);

// One line on one row for people to know a job by: "4711  md  alice  2026-11-20 10:00  COMPLETED".
std::string job_line(const JobRow& job);

// The line with its matches in colour, its tabs as blanks: "   17: srun gmx mdrun".
std::string hit_line(const Searchable::Line& line, const Console& console);

}  // namespace scriptorium::cli
