#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/time.h"
#include "schedulers/usage/cgroup_readers.h"
#include "schedulers/usage/step_table.h"

namespace scriptorium::usage {

// The name of a step whose directory, or one below it, is called this: "0" of "step_0/task_1".
std::string_view step_name(std::string_view directory) noexcept;

// The directory of a step was listed, `directory` is its last part. It may be older than this
// process.
void step_listed(Files& files, const std::string& path, std::string_view directory,
                 const ReadScope& scope);

// Reads what the control groups of a job's steps count. Most steps are short and a job may have
// thousands, so no file stays open. Not of a job that has only its batch step: its figures are the
// job's. Per-job object. Threads: one.
class StepReader {
 public:
  StepReader(Files& files, const Clock& clock) : files_(files), clock_(clock) {}

  // After a timed reading of the job: the steps that are new, and at every fourth all that run.
  // `swaps`: the job has memory in swap.
  void read_timed(const ReadScope& scope, const Cgroup1Reader& v1, bool swaps);
  // A task of this step is being removed. To be called at once: what counts its CPU time may vanish
  // 100 µs later, long before the job's own.
  void read_at_end(const ReadScope& scope, std::string_view step);
  // v2: likewise, if no user's process is left in this step.
  void read_if_empty(const ReadScope& scope, std::string_view step);
  // The devices that a step may use, as its devices.list has them (v1).
  std::optional<std::string_view> devices(const ReadScope& scope, std::string_view step);
  // The kills that reading the job has counted.
  static void count_kills(const ReadScope& scope, const Cgroup1Reader& v1, std::string_view step);

 private:
  Reading read(const ReadScope& scope, const StepTable::Step& step, bool swaps);
  bool is_gone(const ReadScope& scope, const StepTable::Step& step) const;

  Files& files_;
  const Clock& clock_;
  std::uint64_t timed_readings_ = 0;
  std::string text_, path_;  // members to keep their memory
};

}  // namespace scriptorium::usage
