#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/api/event.h"
#include "core/base/time.h"
#include "schedulers/usage/records.h"

// What is known of a whole job: what the scheduler says of it, what its nodes measured, and the
// totals from which findings are drawn. Plain data; absent = not known, never 0.
namespace scriptorium::usage {

struct Request {
  std::optional<std::uint32_t> nodes, cpus, gpus;  // as allocated
  bool shared_gpu = false;                         // it had a part of a GPU: shard, MPS
  std::optional<std::uint64_t>
      memory_bytes;  // of all nodes together; absent where the site does not count memory
  std::optional<double> time_limit_seconds;  // absent: none
};

// What the scheduler says, by a way that users cannot forge.
struct JobFacts {
  Job job;
  User user;
  std::optional<std::uint32_t> restarts;
  std::optional<std::string> sluid;
  std::optional<std::string> state;      // "COMPLETED", "OUT_OF_MEMORY", ...: Slurm's words
  std::optional<std::string> exit_code;  // "3:0": status and signal, as Slurm's commands print it
  std::optional<Timestamp> started_at, ended_at;
  std::optional<double> elapsed_seconds;    // time while suspended left out
  std::optional<double> suspended_seconds;  // 0 if it never was
  Request request;
};

enum class QualityStatus {
  kOk,
  kShort,       // too short for findings
  kPartial,     // parts of it, or some of its nodes, were not seen
  kAccounting,  // nobody sampled it; the figures are those of the scheduler's accounting, which
                // has all of it
  kNone,        // no figures at all
};
const char* to_string(QualityStatus status) noexcept;

// Sums over all nodes that were measured.
struct Totals {
  double elapsed_seconds = 0;
  std::optional<std::uint32_t> cpus;
  std::optional<double> cpu_seconds, user_seconds, system_seconds;
  std::optional<std::uint64_t> peak_memory_bytes;  // working memory: anon + shmem + swap
  std::optional<std::uint64_t> memory_bytes;       // what it could have used
  std::optional<std::uint64_t> peak_node_bytes;    // of the node that used most
  std::optional<std::uint64_t> peak_swap_bytes;
  std::optional<std::uint64_t> oom_kills;
  std::optional<std::uint64_t> read_bytes, written_bytes;
  std::optional<double> idle_tail_seconds;  // of all nodes at once
  // By accounting, of whole nodes: only of a job that had them alone.
  std::optional<double> nodes_energy_joules;
  std::uint32_t gpus = 0;
  // Where all GPUs report it: their sum, and means over them.
  std::optional<double> gpu_energy_joules;
  std::optional<double> gpu_utilization_ratio, gpu_memory_ratio;
  // By accounting: at most, as the steps' highest readings need not be of the same moment.
  std::optional<double> gpu_peak_utilization_ratio;  // of all GPUs together
  std::optional<std::uint64_t> gpu_peak_memory_bytes;
};

// A figure that is left out because it cannot be true.
struct NotCredible {
  std::string_view figure;  // its path below "usage" in the event
  double value = 0;
  std::string text;  // a sentence: what was said, and why it is not taken
};

struct JobView {
  JobFacts facts;
  std::vector<NodeUsage> nodes;  // that reported; empty where the figures come from accounting
  ProgramShares programs;        // of all these nodes, as the next
  StepUses steps;
  Totals totals;
  std::optional<std::uint32_t> nodes_expected;
  std::optional<std::uint64_t> samples;  // readings of the node that has fewest
  std::optional<std::uint32_t> nodes_measured;
  // Of the node that was covered least; by accounting: of the nodes' time, what lies in steps that
  // have figures.
  std::optional<double> covered_ratio;
  std::optional<double> gap_seconds;  // the longest of any node
  bool accounting = false;
  // By accounting: its nodes did not have the same, and what each had is not known.
  bool nodes_differ = false;
  std::vector<NotCredible> not_credible;

  // CPU time over what was allocated for as long as it ran, and peak over what it could have used:
  // nothing unless all nodes were measured.
  std::optional<double> cpu_ratio() const noexcept;
  std::optional<double> memory_ratio() const noexcept;
  std::optional<double> system_ratio() const noexcept;
  std::optional<double> time_ratio() const noexcept;
  bool ended_by_oom() const noexcept;
  // Also where it is not known how many there are and a node made the figures, not the accounting.
  bool all_nodes_measured() const noexcept;
  // The kernel's counters have all of the nodes' time up to the last reading, however little of it
  // was seen.
  bool has_all_cpu_time() const noexcept;
};

// From what the nodes measured. `facts` may be empty where the scheduler was not asked or did not
// answer.
JobView view_of(JobFacts facts, std::vector<NodeUsage> nodes);

}  // namespace scriptorium::usage
