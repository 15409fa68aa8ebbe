#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/api/query.h"

// A job's row for programs. The names are a public contract (docs/find-a-job.md): new ones may be
// added behind the last, none is renamed or removed.
namespace scriptorium::query {

// One JSON object; what is unknown is absent. Times are RFC 3339 in UTC.
nlohmann::ordered_json job_json(const JobRow& job);

// The names of all columns, and a job's cells in the same order; what is unknown is "". The items
// of a list are joined with blanks, directives with "; ".
std::vector<std::string> job_columns();
std::vector<std::string> job_cells(const JobRow& job);

// One line of RFC 4180, ended by "\r\n"; control characters are escaped as printable() does.
std::string csv_line(const std::vector<std::string>& cells);

}  // namespace scriptorium::query
