#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// How a person asks the scheduler for something at the head of a job script. Pure.
namespace scriptorium {

struct JobRequest {
  std::optional<std::uint32_t> cpus;          // of a job on one node
  std::optional<std::uint64_t> memory_bytes;  // of each node
  std::optional<double> time_limit_seconds;
  std::optional<std::uint32_t> gpus;

  bool empty() const noexcept { return !cpus && !memory_bytes && !time_limit_seconds && !gpus; }
};

// What to ask for next time, by what was needed: memory with a fifth of headroom; time with half of
// it, because times differ more from run to run, in whole minutes and at least five of them.
std::uint64_t memory_to_ask_for(double needed_bytes) noexcept;
double time_to_ask_for(double needed_seconds) noexcept;

// The lines to write, "#SBATCH --mem=240M" or "#PBS -l mem=240mb"; `word` is the first of each.
// Memory and time are rounded up to what a person would write. PBS counts memory for the job, so of
// a job on several of its `nodes` the sum is asked for. How many GPUs PBS gives is a part of the
// request for nodes, so it has no line. OAR ("#OAR") has no memory or GPUs to ask for that do not
// depend on the site, Grid Engine ("#$") only time. Another word than these four: no lines.
std::vector<std::string> request_lines(std::string_view word, const JobRequest& request,
                                       std::uint32_t nodes);

}  // namespace scriptorium
