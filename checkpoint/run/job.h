#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/processes.h"

// The batch job that scriptorium-run is a part of.
namespace scriptorium::checkpoint {

enum class Scheduler : std::uint8_t { kSlurm, kOar };

struct BatchJob {
  Scheduler scheduler = Scheduler::kSlurm;
  std::string id;  // of this life; names the requests
  // The same in all lives of the job, and of no other job. Slurm keeps the id. OAR gives each life
  // a new one and keeps the array's id and index, which for a job that is not an array's are its
  // first life's id and 1.
  std::string chain;
};
// Pure: `environment` is getenv(). Nothing outside of a job.
std::optional<BatchJob> find_batch_job(
    const std::function<std::string(const std::string&)>& environment);

// Pure: the processes of this user from this process's parent up to the one that the scheduler
// started, which is the last; the scheduler may signal any of them. None: this process is the first
// one, or it is not in a batch job (an interactive shell has no slurmstepd for a parent).
std::vector<pid_t> shells_above(const Process& self, Scheduler scheduler,
                                const std::function<std::optional<Process>(pid_t)>& process,
                                const std::function<std::string(pid_t)>& name);

}  // namespace scriptorium::checkpoint
