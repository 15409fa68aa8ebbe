#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/api/own_job.h"
#include "schedulers/usage/job_facts.h"
#include "schedulers/usage/sampler.h"

// Which job a process runs in, and what the scheduler has written of it into the process's
// environment. Pure. Unlike what slurmctld says, a user can change the environment: it serves the
// report that this user makes, and nothing else.
namespace scriptorium::usage {

using Variables = std::map<std::string, std::string, std::less<>>;
// Of "NAME=value" strings as in environ(7), ended by a null pointer.
Variables read_variables(const char* const* environment);

struct OwnPlace {
  OwnJob::Place place;  // without a node, unless the path names it
  JobDirectory directory;
};
// `groups`: /proc/self/cgroup, which is believed before the variables. Nothing: not in a job.
std::optional<OwnPlace> find_own_place(std::string_view groups, const Variables& variables);

// What the variables say of the job: its name, what was requested, when it began.
JobFacts facts_of(const Variables& variables, const std::string& scheduler);

}  // namespace scriptorium::usage
