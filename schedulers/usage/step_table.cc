#include "schedulers/usage/step_table.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "core/base/number.h"
#include "schedulers/usage/life.h"

namespace scriptorium::usage {
namespace {

constexpr double kNano = 1e-9;
// The extern step does next to nothing, unless users come in by ssh.
constexpr double kExternSeconds = 1;
constexpr std::string_view kBatch = "batch", kExtern = "extern";

std::optional<std::uint32_t> number_of(std::string_view name) {
  return parse_number<std::uint32_t>(name.substr(0, name.find_first_not_of("0123456789")));
}

void leave_out(const std::optional<double>& cpu_seconds, StepRest& rest) {
  ++rest.steps;
  if (cpu_seconds) rest.cpu_seconds = rest.cpu_seconds.value_or(0) + *cpu_seconds;
}

void add_gpus(StepGpu& sum, const StepGpu& more) {
  if (more.count == 0) return;
  if (sum.count == 0) {
    sum = more;
    return;
  }
  const auto of_all = [](const StepGpu& gpu) {
    return gpu.utilization_ratio
               ? std::optional(*gpu.utilization_ratio * static_cast<double>(gpu.count))
               : std::nullopt;
  };
  auto used = of_all(sum);
  add_known(used, of_all(more));
  sum.count += more.count;
  sum.utilization_ratio =
      used ? std::optional(*used / static_cast<double>(sum.count)) : std::nullopt;
  add_known(sum.peak_memory_bytes, more.peak_memory_bytes);
}

// Those that used most, by start; the others only as a sum.
StepUses shown(std::vector<StepUse> steps, StepRest left_out) {
  std::sort(steps.begin(), steps.end(), [](const StepUse& a, const StepUse& b) {
    return std::tie(b.cpu.time_seconds, a.started_at, a.name) <
           std::tie(a.cpu.time_seconds, b.started_at, b.name);
  });
  for (; steps.size() > kMostStepsShown; steps.pop_back())
    leave_out(steps.back().cpu.time_seconds, left_out);
  // The batch step, which has no number, starts those of srun.
  const auto place = [](const StepUse& step) {
    return std::tuple(step.started_at, number_of(step.name), step.name);
  };
  std::sort(steps.begin(), steps.end(),
            [&](const StepUse& a, const StepUse& b) { return place(a) < place(b); });
  StepUses uses;
  if (left_out.steps > 0) uses.other = left_out;
  uses.steps = std::move(steps);
  return uses;
}

}  // namespace

StepGpu step_gpu(const std::vector<NodeGpu>& gpus) {
  StepGpu sum;
  for (const NodeGpu& gpu : gpus) add_gpus(sum, {1, gpu.utilization.avg, gpu.peak_memory_bytes});
  return sum;
}

const StepTable::Step* StepTable::find(std::string_view name) const noexcept {
  const auto found = std::find_if(state_.steps.begin(), state_.steps.end(),
                                  [&](const Step& step) { return step.name == name; });
  return found == state_.steps.end() ? nullptr : &*found;
}

StepTable::Step* StepTable::known(std::string_view name) noexcept {
  return const_cast<Step*>(find(name));
}

void StepTable::appeared(std::string_view name, Moment started) {
  if (name.empty() || find(name) != nullptr) return;
  const auto number = number_of(name);
  const bool is_later = number && (!state_.highest || *number > *state_.highest);
  if (state_.left_out.steps > 0 && !is_later) return;
  if (is_later) state_.highest = number;
  if (state_.steps.size() >= kMostSteps) {
    auto least = state_.steps.end();
    for (auto one = state_.steps.begin(); one != state_.steps.end(); ++one) {
      if (one->runs) continue;
      if (least == state_.steps.end() || one->cpu_seconds < least->cpu_seconds) least = one;
    }
    if (least == state_.steps.end()) return leave_out(std::nullopt, state_.left_out);
    leave_out(least->cpu_seconds, state_.left_out);
    state_.steps.erase(least);
  }
  Step step;
  step.name = name;
  step.started_at = step.last_at = started.time;
  step.started_ns = step.last_ns = count(started.at);
  state_.steps.push_back(std::move(step));
}

void StepTable::add(std::string_view name, const Reading& reading, bool at_end) {
  Step* step = known(name);
  if (step == nullptr || !reading.any()) return;
  ++step->readings;
  if (reading.cpu.allocated) step->cpus = reading.cpu.allocated;
  keep_most(step->peak_working_set, reading.memory.working_set_bytes());
  keep_most(step->peak_charged, reading.memory.peak_charged_bytes);
  keep_most(step->oom_kills, reading.memory.oom_kills);
  // The controllers of a step are removed one after the other; what its CPU time says counts.
  if (!reading.cpu.time_seconds && step->cpu_seconds) return;
  if (at_end) {
    step->last_read = LastRead::kRemoval;
  } else if (step->cpu_seconds < reading.cpu.time_seconds) {
    step->last_read = LastRead::kSample;  // what was removed was not its last task
  } else if (step->last_read == LastRead::kRemoval) {
    return;
  }
  keep_most(step->cpu_seconds, reading.cpu.time_seconds);
  step->last_ns = count(reading.at);
  step->last_at = reading.time;
}

void StepTable::count_kills(std::string_view name, std::optional<std::uint64_t> kills) {
  if (Step* step = known(name)) keep_most(step->oom_kills, kills);
}

void StepTable::count_gpus(std::string_view name) {
  if (Step* step = known(name)) step->gpus = Step::Gpus::kCounted;
}

void StepTable::take_gpus(std::string_view name, const StepGpu& gpu) {
  Step* step = known(name);
  if (step == nullptr) return;
  step->gpu = gpu;
  step->gpus = Step::Gpus::kDone;
}

void StepTable::removed(std::string_view name, Moment now, bool seen) {
  Step* step = known(name);
  if (step == nullptr || !std::exchange(step->runs, false)) return;
  if (!seen || step->last_read == LastRead::kRemoval) return;
  step->last_ns = count(now.at);
  step->last_at = now.time;
}

StepUses StepTable::uses(Moment ended) const {
  const bool is_one = std::all_of(state_.steps.begin(), state_.steps.end(), [](const Step& step) {
    return step.name == kBatch || step.name == kExtern;
  });
  if (is_one) return {};
  std::vector<StepUse> steps;
  for (const Step& step : state_.steps) {
    if (step.name == kExtern && step.cpu_seconds.value_or(0) < kExternSeconds) continue;
    // One whose end nobody saw ended with its job.
    const bool known = !step.runs || step.last_read == LastRead::kRemoval;
    const std::int64_t ended_ns = known ? step.last_ns : count(ended.at);
    StepUse use;
    use.name = step.name;
    use.started_at = step.started_at;
    use.ended_at = known ? step.last_at : ended.time;
    use.elapsed_seconds = std::max(0.0, static_cast<double>(ended_ns - step.started_ns) * kNano);
    use.cpu.time_seconds = step.cpu_seconds;
    use.cpu.allocated = step.cpus;
    use.cpu.efficiency_ratio = efficiency(use.cpu, use.elapsed_seconds);
    use.memory.peak_working_set_bytes = step.peak_working_set;
    use.memory.peak_charged_bytes = step.peak_charged;
    use.memory.oom_kills = step.oom_kills;
    use.gpu = step.gpu;
    use.last_read = step.last_read;
    steps.push_back(std::move(use));
  }
  return shown(std::move(steps), state_.left_out);
}

StepTable StepTable::from(State state) {
  StepTable table;
  table.state_ = std::move(state);
  if (table.state_.steps.size() > kMostSteps) table.state_.steps.resize(kMostSteps);
  for (Step& step : table.state_.steps) step.gpus = Step::Gpus::kDone;
  return table;
}

StepUses merge_steps(const std::vector<NodeUsage>& nodes) {
  std::map<std::string, StepUse> merged;
  StepRest left_out;
  for (const NodeUsage& node : nodes) {
    for (const StepUse& one : node.steps.steps) {
      const auto [found, is_new] = merged.try_emplace(one.name, one);
      if (is_new) continue;
      StepUse& sum = found->second;
      sum.started_at = std::min(sum.started_at, one.started_at);
      sum.ended_at = std::max(sum.ended_at, one.ended_at);
      sum.elapsed_seconds = std::max(sum.elapsed_seconds, one.elapsed_seconds);
      add_known(sum.cpu.time_seconds, one.cpu.time_seconds);
      add_known(sum.cpu.allocated, one.cpu.allocated);
      add_known(sum.memory.peak_working_set_bytes, one.memory.peak_working_set_bytes);
      add_known(sum.memory.peak_charged_bytes, one.memory.peak_charged_bytes);
      if (one.memory.oom_kills)
        sum.memory.oom_kills = sum.memory.oom_kills.value_or(0) + *one.memory.oom_kills;
      add_gpus(sum.gpu, one.gpu);
      if (one.last_read == LastRead::kSample) sum.last_read = one.last_read;
    }
    if (!node.steps.other) continue;
    // Which of them were the same on several nodes is not known.
    left_out.steps = std::max(left_out.steps, node.steps.other->steps);
    if (const auto& more = node.steps.other->cpu_seconds)
      left_out.cpu_seconds = left_out.cpu_seconds.value_or(0) + *more;
  }
  std::vector<StepUse> steps;
  for (auto& [name, one] : merged) {
    one.cpu.efficiency_ratio = efficiency(one.cpu, one.elapsed_seconds);
    steps.push_back(std::move(one));
  }
  return shown(std::move(steps), left_out);
}

}  // namespace scriptorium::usage
