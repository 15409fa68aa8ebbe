#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/time.h"
#include "schedulers/usage/records.h"

namespace scriptorium::usage {

struct Reading;

// The steps of one life of a job on one node. Pure; no files, no clock.
//
// Bounded: kMostSteps steps. One more takes the place of the one that used least CPU time of those
// that have ended; while all of them run, it is only counted. Slurm numbers steps upwards, so that
// one that was left out is known by its number when it is listed again.
class StepTable {
 public:
  static constexpr std::size_t kMostSteps = 128;

  struct Step {
    std::string name;  // "batch", "0": as sacct names it behind the dot
    bool runs = true;
    Timestamp started_at;
    Timestamp last_at;  // of the last reading, or its end once it does not run
    std::int64_t started_ns = 0, last_ns = 0;  // the same by the steady clock
    std::uint64_t readings = 0;
    std::optional<double> cpu_seconds;
    std::optional<std::uint32_t> cpus;
    std::optional<std::uint64_t> peak_working_set, peak_charged, oom_kills;
    LastRead last_read = LastRead::kSample;
    StepGpu gpu;  // once it has ended
    // Whether what its GPUs do is being counted. Not in the state file: nobody counted while the
    // daemon was down, so of a step that a restart cuts in two nothing is said.
    enum class Gpus : std::uint8_t { kNotYet, kCounted, kDone } gpus = Gpus::kNotYet;
  };
  // All of it, for the state file.
  struct State {
    std::vector<Step> steps;  // by start
    StepRest left_out;
    std::optional<std::uint32_t> highest;  // number
  };

  const Step* find(std::string_view name) const noexcept;
  // Its directory was seen. Nothing happens if it was before.
  void appeared(std::string_view name, Moment started);
  // `at_end`: a task of it is being removed.
  void add(std::string_view name, const Reading& reading, bool at_end);
  // Of its tasks, that were killed for want of memory, until now.
  void count_kills(std::string_view name, std::optional<std::uint64_t> kills);
  void count_gpus(std::string_view name);
  void take_gpus(std::string_view name, const StepGpu& gpu);
  // Its directory was removed now, or `seen` = false: at some time since its last reading.
  void removed(std::string_view name, Moment now, bool seen);

  // What each of them used, in a job that ended then. Nothing of a job that only had its batch
  // step.
  StepUses uses(Moment ended) const;

  const State& state() const noexcept { return state_; }
  static StepTable from(State state);

 private:
  Step* known(std::string_view name) noexcept;

  State state_;
};

// The GPUs of a step as one.
StepGpu step_gpu(const std::vector<NodeGpu>& gpus);

// The steps of the same name on several nodes as one.
StepUses merge_steps(const std::vector<NodeUsage>& nodes);
inline constexpr std::size_t kMostStepsShown = 32;

}  // namespace scriptorium::usage
