#pragma once

#include <string>
#include <vector>

#include "core/api/searchable.h"
#include "core/page/templates.h"

namespace scriptorium::page {

// What lists say of a run: state, state_class ("good", "bad", "warn" or ""), span, elapsed, cpu,
// memory. The last three are "" for an array, whose row has those of one task.
Values run_values(const JobRow& job);
// The class of a finding: "critical", "warning" or "info".
std::string severity_class(const std::string& severity);
// The way from the first page to that of the job, or to what is `below` it: "script".
std::string job_path(const JobRow& job, const std::string& below = "");
// To what differs between these jobs.
std::string compare_path(const std::vector<const JobRow*>& jobs);

// Adds what the newest run's usage says about why and what to write next time: findings, suggest;
// of a record also the findings of its checkpoints.
void add_advice(Values& values, const Searchable::Record& record);
void add_advice(Values& values, const Event& usage_job);

// The values of job.mustache for the first record; the others have the same id. `family`: its last
// runs, newest first. `root`: the way from there to the first page.
Values job_values(const std::vector<Searchable::Record>& records, const std::vector<JobRow>& family,
                  const std::string& root);

}  // namespace scriptorium::page
