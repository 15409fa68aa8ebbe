#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "schedulers/usage/job_facts.h"

// What slurmctld says of whole jobs, by squeue. Pure. Every field ends with a guard of
// slurm_client/command.h, and one odd row refuses the whole answer.
namespace scriptorium::usage {

// From fields of squeue or sacct.
Request read_request(std::string_view allocated_tres, std::string_view nodes, std::string_view cpus,
                     std::string_view time_limit);

struct QueuedJob {
  std::string id;  // the number of this job, also of an array's task
  bool is_final = false;
  bool running = false;  // or suspended, or completing: its times are of the present life
  JobFacts facts;        // without names of user and group
};

// SQUEUE_FORMAT2 of the question.
std::string queue_format(std::string_view guard);
Result<std::vector<QueuedJob>> parse_queue(std::string_view answer, std::string_view guard);

}  // namespace scriptorium::usage
