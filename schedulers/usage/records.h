#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/base/time.h"

// What is known of a job's use of one node: plain data, made by the sampler, turned into events
// here and into usage.job by the job side. Everywhere, an absent optional means "not measured",
// never 0; counters run from the start of the job on this node; ratios are 0..1; bytes are
// integers.
namespace scriptorium::usage {

// Where a block of numbers comes from.
enum class Method : std::uint8_t { kCgroup1, kCgroup2, kProc, kNvml, kAmd, kAccounting };
// "cgroup1", "cgroup2", "proc", "nvml", "amd", "accounting". Static storage.
const char* to_string(Method method) noexcept;
std::optional<Method> method_from(std::string_view text) noexcept;

// One instant, by both clocks.
struct Moment {
  SteadyTime at;
  Timestamp time;
};

// The steady clock as records keep it: nanoseconds since it began.
inline std::int64_t count(SteadyTime at) noexcept {
  return std::chrono::nanoseconds(at.time_since_epoch()).count();
}

// What the last reading of a life was.
enum class LastRead : std::uint8_t {
  kRemoval,     // when the job's first task directory was removed, or later: nothing is missing
  kPopulated,   // when the job's last process had ended (cgroup.events): nothing is missing
  kSample,      // a sweep before the end: what came after it is missing
  kAccounting,  // not ours
  kRunning,     // the job still ran: nothing is missing up to then
};
// "removal", "populated", "sample", "accounting", "running".
const char* to_string(LastRead last) noexcept;
std::optional<LastRead> last_read_from(std::string_view text) noexcept;

// One life of a job on one node. A requeued job has several lives; a machine with several slurmds
// gives one for each.
struct JobSeen {
  std::string scheduler;             // "slurm", "torque", "pbs": whose cgroups these are
  std::string job_id;                // "4711"; the SLUID itself while only that is known
  std::optional<std::string> sluid;  // Slurm >= 26.05
  std::optional<std::uint32_t> restarts;
  std::optional<std::uint32_t> uid;
  // From the path of a v1 cgroup, which root made, or the real uid of all of the job's processes
  // that were read.
  bool uid_trusted = false;
  std::optional<std::string> uid_problem;  // why it is not trusted: its processes have several
  std::string node;      // slurmd's node name where the path has it (several slurmds on a machine),
                         // else the host's
  Timestamp started_at;  // of this life's cgroup; the same after a restart of the daemon
  bool batch_step = false;   // step_batch was seen here: this node asks the scheduler about the job
  bool other_steps = false;  // a step other than batch and extern was seen here; with neither, the
                             // job was too short to know

  // "job_id@node/started_at in ns": distinguishes lives within a cluster.
  std::string key() const;
  // A directory of this step was seen: "step_batch".
  void add_step(std::string_view step) noexcept;
};

struct Sources {
  std::optional<Method> cpu, memory, io, gpu;
};

struct RatioStatistics {
  std::optional<double> avg, min, max, p50;
};

// Combines measurements of which any may be absent: the larger one.
template <typename T>
void keep_most(std::optional<T>& most, const std::optional<T>& other) {
  if (other && (!most || *most < *other)) most = other;
}

// A sum is absent where a part of it is.
template <typename T>
void add_known(std::optional<T>& sum, const std::optional<T>& part) {
  sum = sum && part ? std::optional(*sum + *part) : std::nullopt;
}

// ---- one instant: usage.sample

struct CpuNow {
  std::optional<double> time_seconds, user_seconds,
      system_seconds;  // time is exact; the split may be an estimate
  std::optional<std::uint32_t> allocated;
  std::optional<double>
      utilization_ratio;  // of the allocated CPUs, since the reading before this one
  std::optional<double> pressure_some_seconds, throttled_seconds;
};

struct MemoryNow {
  std::optional<std::uint64_t> anon_bytes, shmem_bytes, swap_bytes, file_bytes, charged_bytes,
      peak_charged_bytes;
  std::optional<std::uint64_t> limit_bytes;  // absent also where there is none
  std::optional<std::uint64_t> oom_kills;
  std::optional<double> pressure_full_seconds;
  // anon + shmem + swap: what the job needs, page cache apart.
  std::optional<std::uint64_t> working_set_bytes() const noexcept;
};

struct IoNow {
  std::optional<std::uint64_t> read_bytes, written_bytes;
  std::optional<double> pressure_full_seconds;
};

struct TasksNow {
  std::optional<std::uint64_t> current, peak;
};

struct GpuNow {
  std::string id;  // "GPU-e8ba89df-...", or what else names the device for good
  std::optional<std::uint32_t> index;
  std::string model;
  std::optional<double> utilization_ratio;  // mean since the last sample
  std::optional<std::uint64_t> memory_used_bytes, memory_limit_bytes;
  std::optional<double> power_watts;
};

struct UsageSample {
  JobSeen job;
  Timestamp time;
  std::uint64_t seq = 0;                   // from 1 in each life
  std::optional<double> interval_seconds;  // since the reading before; by the steady clock
  double elapsed_seconds = 0;
  Sources source;
  CpuNow cpu;
  MemoryNow memory;
  IoNow io;
  TasksNow tasks;
  std::vector<GpuNow> gpus;
};

// ---- a whole life: usage.node

struct NodeCpu {
  std::optional<double> time_seconds, user_seconds, system_seconds;
  std::optional<std::uint32_t> allocated;
  std::optional<double> efficiency_ratio;  // time / (elapsed * allocated)
  RatioStatistics utilization;             // of the intervals between readings; idle ones count
  std::optional<double>
      idle_tail_seconds;  // from the last interval with more than 1 % of the CPUs in use to the end
  std::optional<double> pressure_some_seconds, throttled_seconds;
};

// CPU time over what the allocated CPUs had in so long a time.
std::optional<double> efficiency(const NodeCpu& cpu, double elapsed_seconds) noexcept;

struct NodeMemory {
  std::optional<std::uint64_t> peak_working_set_bytes, avg_working_set_bytes, peak_charged_bytes,
      peak_swap_bytes;
  std::optional<std::uint64_t> limit_bytes;
  std::optional<std::uint64_t> oom_kills;
  std::optional<double> pressure_full_seconds;
};

struct NodeTasks {
  std::optional<std::uint64_t> peak;
};

struct NodeGpu {
  std::string id;
  std::optional<std::uint32_t> index;
  std::string model;
  RatioStatistics utilization;  // avg and max; idle readings count
  std::optional<std::uint64_t> peak_memory_bytes, memory_limit_bytes;
  std::optional<double> energy_joules;
  std::optional<double> zero_ratio;            // part of the measured time at 0
  std::optional<double> longest_zero_seconds;  // longest unbroken time at 0
  // Part of the measured time in which it worked with its clocks held down for heat, or by its
  // hardware to protect itself.
  std::optional<double> throttled_ratio;
  std::uint64_t samples = 0;  // readings of its utilization
};

// What the processes of one program used.
struct ProgramUse {
  std::string name;
  std::string script;               // of an interpreter; "" = none, or not known
  std::string container;            // in which it runs; "" = in none, or not known
  std::string path, build_id;       // of its file; "" = not known
  double cpu_seconds = 0;           // of the processes that were read, as they were read last
  std::optional<double> cpu_ratio;  // of the CPU time of the job
  std::uint64_t processes = 0;      // the most at one reading
  std::uint64_t threads = 0;        // likewise
  std::optional<std::uint64_t> busy_threads;  // likewise: that really ran, see ProcessNow
  std::optional<std::uint64_t> ranks;         // likewise: tasks of srun
};

struct ProgramShare {
  double cpu_seconds = 0;
  std::optional<double> cpu_ratio;
};

// The CPU time of a job by program. What is in it adds up to the CPU time of the job, where that is
// known.
struct ProgramShares {
  std::vector<ProgramUse> programs;    // most CPU time first; empty: none was seen
  std::optional<ProgramShare> other;   // programs that are not listed, together
  std::optional<ProgramShare> unseen;  // no reading met what used it, or not to its end
};

// What the GPUs did that a step could use, while it ran.
struct StepGpu {
  std::uint64_t count = 0;
  std::optional<double> utilization_ratio;         // mean of its GPUs
  std::optional<std::uint64_t> peak_memory_bytes;  // sum of their peaks
};

// What one step of a job used. Of several nodes: sums, but the longest time.
struct StepUse {
  std::string name;  // "batch", "0": as sacct names it behind the dot
  Timestamp started_at, ended_at;
  double elapsed_seconds = 0;
  NodeCpu cpu;        // its time, its usable CPUs, and what it used of these
  NodeMemory memory;  // peaks and kills
  StepGpu gpu;
  LastRead last_read = LastRead::kSample;
};

struct StepRest {
  std::uint64_t steps = 0;
  std::optional<double> cpu_seconds;  // of those of them that were read
};

struct StepUses {
  std::vector<StepUse> steps;     // by start; empty: the job has only its batch step
  std::optional<StepRest> other;  // steps that are not listed, together
};

struct NodeQuality {
  std::uint64_t samples = 0;            // readings
  std::optional<double> covered_ratio;  // first to last reading, less the gaps, of what elapsed
  LastRead last_read = LastRead::kSample;
  std::optional<double> gap_seconds;  // longest time between two readings beyond what was due, as
                                      // when the daemon was down
};

struct NodeUsage {
  JobSeen job;
  Timestamp ended_at;
  double elapsed_seconds = 0;  // by the steady clock where one process saw all of it
  Sources source;
  NodeCpu cpu;
  NodeMemory memory;
  IoNow io;
  NodeTasks tasks;
  std::vector<NodeGpu> gpus;
  ProgramShares programs;
  StepUses steps;
  std::optional<std::uint32_t> node_cpus;          // of the whole machine
  std::optional<std::uint64_t> node_memory_bytes;  // of the whole machine
  NodeQuality quality;

  // Up to ended_at, nothing is missing of what the kernel counts.
  bool is_counted() const noexcept { return quality.last_read != LastRead::kSample; }
  // And that is the job's end: the event's `complete`.
  bool complete() const noexcept { return is_counted() && quality.last_read != LastRead::kRunning; }
  // The event's `capture`: where the CPU time came from, else the memory.
  Method method() const noexcept;
};

// The object "usage" of usage.sample and of usage.node, on one line. The latter is also what
// is, with "host" beside it, in usage.job's nodes[].
std::string usage_json(const UsageSample& sample);
std::string usage_json(const NodeUsage& node);
// The members "steps" and "steps_other" of usage.job, as an object.
std::string steps_json(const StepUses& steps);

// A NodeUsage with its JobSeen, for the state file, and back: `parse_node(node_record(x))` has the
// numbers of x, to the microsecond. kCorrupt for anything else.
std::string node_record(const NodeUsage& node);
Result<NodeUsage> parse_node(std::string_view record);

}  // namespace scriptorium::usage
