#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/time.h"
#include "schedulers/usage/job_facts.h"

// What the accounting has of a job's steps, summed up to figures of the whole job. Pure.
//
// sacct(1) names the fields. What they mean is read in Slurm's source
// (src/plugins/jobacct_gather/common, src/common/slurm_jobacct_gather.c): of each task the largest
// reading is kept; MaxRSS is that of the largest task of the step, TRESUsageInTot the sum over its
// tasks. None of them says which node had how much.
namespace scriptorium::usage {

struct AccountedStep {
  bool is_extern = false;          // every job with PrologFlags=Contain has one, on all nodes
  bool is_batch = false;           // it has all that its job has of the first node
  Timestamp started_at, ended_at;  // whole seconds
  std::string_view node_list;      // "n[1-3]", borrowed; see read_hosts()
  std::uint32_t nodes = 1;
  std::optional<std::uint32_t> tasks;
  std::optional<std::uint32_t> cpus;          // allocated
  std::optional<double> cpu_seconds;          // TotalCPU: of processes that ended
  std::optional<double> sampled_cpu_seconds;  // TRESUsageInTot: at the last reading
  std::optional<std::uint64_t> largest_task_bytes;
  std::optional<std::uint64_t> all_tasks_bytes;
  std::optional<double> gpu_percent;  // gres/gpuutil: 100 for each GPU that was busy throughout
  std::optional<std::uint64_t> gpu_bytes;
};

// Fills in the figures of `job`, of which facts and the CPU time of its own row are there: sums
// over steps that ran at the same time, which part of the job they cover, and what is not credible.
void add_up_steps(const std::vector<AccountedStep>& all, JobView& job);

}  // namespace scriptorium::usage
