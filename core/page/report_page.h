#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/api/query.h"
#include "core/base/time.h"
#include "core/page/request.h"
#include "core/page/templates.h"
#include "core/query/run_sums.h"
#include "core/query/stores.h"

// What many jobs had and did not use, as `scriptorium report --by` has it, with what only a page
// can show: a bar for each day, and the most wasteful jobs.
namespace scriptorium::page {

// What the address of a report asks for.
struct ReportQuestion {
  query::SumBy by = query::SumBy::kUser;
  std::string since, until;  // as they were typed
  query::SumPeriod period;
  std::string problem;  // "" = there is none
};
// Without `by`: the users for somebody who sees jobs of others, else the programs.
ReportQuestion report_question(const Target& target, bool sees_others, Timestamp now);

struct Report {
  query::RunSums sums;
  std::map<std::chrono::sys_days, query::Sum> days;  // of the period, by the reader's clock
  std::vector<JobRun> wasteful;                      // with their events, the most wasteful first
  std::vector<std::string> problems;                 // what could not be read
};
struct ReportAnswer {
  std::optional<Report> report;
  bool is_late = false;                 // the deadline came first
  std::vector<query::Refusal> refused;  // otherwise, why no store answered
};
// What is read beside the sums, at a price.
struct ReportParts {
  bool wasteful = false;    // the most wasteful jobs
  bool unfinished = false;  // how many jobs of the period have no known end
};
// From the first of the stores that has runs, in at most ten seconds.
ReportAnswer read_report(const ReportQuestion& question, const std::vector<query::Store>& stores,
                         ReportParts parts, const std::stop_token& stop, SteadyTime deadline);

// The values of reports.mustache that are there whatever was found, and those of a report.
Values report_form(const ReportQuestion& question);
void add_report(Values& values, const Report& report, bool sees_others);

// Of a run with its event: href, name (its id), job_name, owner, time, had, wasted, share, ...
Values job_row(const JobRun& run);

// The bytes that the command prints.
std::string report_json(const Report& report);

}  // namespace scriptorium::page
