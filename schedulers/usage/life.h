#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/base/time.h"
#include "schedulers/usage/counters.h"
#include "schedulers/usage/program_table.h"
#include "schedulers/usage/records.h"
#include "schedulers/usage/step_table.h"
#include "schedulers/usage/tree.h"

namespace scriptorium::usage {

// What one reading of a job's counters gave.
struct Reading {
  SteadyTime at;
  Timestamp time;
  Sources source;
  CpuNow cpu;
  MemoryNow memory;
  IoNow io;
  TasksNow tasks;
  bool oom_kills_unknown =
      false;  // there may have been some that nobody could count, so what was counted is not all

  bool any() const noexcept { return source.cpu || source.memory || source.io; }
  // Takes what was read in this way, unless it is empty.
  void put(const CpuStat& stat, Method method) noexcept;
  void put(const MemoryStat& stat, Method method) noexcept;
  void put(const IoBytes& bytes, Method method) noexcept;
};

// How much time was spent at which utilization, in steps of one percent of the allocated CPUs.
class UtilizationHistogram {
 public:
  static constexpr std::size_t kSteps = 101;
  void add(double ratio, double seconds) noexcept;
  std::optional<double> median() const noexcept;
  // "42:30.5 100:12": percent and seconds, of those that are not empty; and back (what is odd in it
  // is left out).
  std::string text() const;
  static UtilizationHistogram from(std::string_view text);

 private:
  std::array<float, kSteps> seconds_{};
};

// Running statistics of one GPU for one job.
struct GpuRecord {
  NodeGpu gpu;  // without what is computed from the sums below
  double utilization_seconds = 0, seconds = 0, zero_seconds = 0, longest_zero_seconds = 0;
  // Of all time in which it could be read whether its clocks were held down, and of it they were.
  double clock_seconds = 0, throttled_seconds = 0;
  // Of the device's counter: its first and last reading. Without an origin it began again
  // meanwhile.
  std::optional<double> energy_origin_joules, energy_joules;
  std::optional<double> integrated_joules;  // of its power, where it has no such counter
};

// All that is kept of one life of a job between two readings, and over restarts of the daemon: some
// hundred bytes, and some dozen for each process. Times are those of the steady clock, which
// continues over a restart of the daemon, though not of the machine.
struct LifeState {
  JobSeen job;
  std::array<std::uint64_t, kControllers>
      inodes{};  // of its directories, by controller; 0 = none seen
  std::int64_t started_ns = 0;
  std::uint64_t seq = 0;  // of the last usage.sample

  std::uint64_t readings = 0;
  std::int64_t first_ns = 0, last_ns = 0;  // of the first and last reading
  Timestamp last_time;                     // of the last reading
  double gap_seconds = 0;                  // the longest time without a reading, beyond what is due
  double uncovered_seconds = 0;            // all such times together

  // Totals as last read; user and system as last read together.
  Sources source;
  CpuNow cpu;
  MemoryNow memory;
  IoNow io;
  std::optional<std::uint64_t> peak_tasks;

  std::int64_t anchor_ns = 0;  // up to which CPU time went into the statistics
  double anchor_cpu_seconds = 0;
  std::optional<double> least, most;
  double busy_seconds = 0, counted_seconds = 0;  // Σ of used CPU time and of CPUs times time
  UtilizationHistogram utilization;
  std::int64_t busy_until_ns = 0;

  std::optional<std::uint64_t> last_working_set, peak_working_set, peak_swap;
  double working_set_seconds = 0, memory_seconds = 0;  // Σ bytes times time, and that time

  std::vector<GpuRecord> gpus;  // only in the state file; else GpuMonitor has them

  ProgramTable programs;
  std::int64_t programs_read_ns = 0;  // by this daemon, last; 0 = not yet. Not in the state file
  StepTable steps;
};

// One life of a job on this node: takes readings, gives samples and at last the summary. Pure; no
// files, no clock.
class Life {
 public:
  explicit Life(LifeState state) : state_(std::move(state)) {}
  static Life begin(JobSeen job, SteadyTime started);

  // True if the counters say that these are other groups than before: time went backwards. The
  // reading is then not taken.
  bool is_reset(const Reading& reading) const noexcept;
  // `due_seconds`: how far apart readings should be; a longer time is a gap in what is known of
  // memory, not of CPU time.
  void add(const Reading& reading, double due_seconds);

  // The last reading as an event's content; counts `seq` up. `interval` is since the sample before.
  UsageSample sample(const Reading& reading);
  // The summary of a life that ended at `ended`. Ends where the last reading was if `last` is
  // kSample and nobody saw the end.
  NodeUsage finish(SteadyTime ended, Timestamp ended_time, LastRead last) const;

  const LifeState& state() const noexcept { return state_; }
  LifeState& state() noexcept { return state_; }
  SteadyTime started() const noexcept;

 private:
  void add_cpu(const CpuNow& cpu, std::int64_t now_ns);
  // `since_seconds`: since the reading before.
  void add_memory(const Reading& reading, double since_seconds);
  void count_utilization(std::int64_t until_ns, double cpu_seconds);

  LifeState state_;
  std::optional<std::int64_t> sampled_ns_;  // of the last sample
  double sampled_cpu_seconds_ = 0;
  std::optional<double> interval_utilization_;  // of the last interval; so are the next two
  double interval_seconds_ = 0;
  double interval_used_ = 0;  // CPU time, s
};

// A LifeState for the state file, and back. kCorrupt for anything else.
std::string life_record(const LifeState& life);
Result<LifeState> parse_life(std::string_view record);

}  // namespace scriptorium::usage
