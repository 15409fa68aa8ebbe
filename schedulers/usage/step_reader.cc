#include "schedulers/usage/step_reader.h"

#include <algorithm>
#include <optional>

#include "schedulers/usage/counters.h"
#include "schedulers/usage/files.h"

namespace scriptorium::usage {
namespace {

constexpr std::uint64_t kAllEach = 4;
constexpr std::string_view kPrefix = "step_";

std::string path_of(const ControlGroup& job, std::string_view step) {
  return std::string(job.path).append("/").append(kPrefix).append(step);
}

}  // namespace

std::string_view step_name(std::string_view directory) noexcept {
  if (directory.starts_with(kPrefix)) directory.remove_prefix(kPrefix.size());
  return directory.substr(0, directory.find('/'));
}

void step_listed(Files& files, const std::string& path, std::string_view directory,
                 const ReadScope& scope) {
  scope.job.add_step(directory);
  const std::string_view name = step_name(directory);
  if (scope.steps.find(name) != nullptr) return;
  Identity identity;
  std::int64_t age = 0;
  if (files.identify(path, identity) == 0 && identity.mtime_ns > 0)
    age = std::max<std::int64_t>(0, scope.now.time.nanoseconds - identity.mtime_ns);
  scope.steps.appeared(name, {scope.now.at - std::chrono::nanoseconds(age),
                              Timestamp{scope.now.time.nanoseconds - age}});
}

void StepReader::read_timed(const ReadScope& scope, const Cgroup1Reader& v1, bool swaps) {
  const bool all = timed_readings_++ % kAllEach == 0;
  if (!scope.job.other_steps) return;
  for (const StepTable::Step& step : scope.steps.state().steps) {
    if (!step.runs || !(all || step.readings == 0)) continue;
    // Both change the step in its place.
    if (const Reading reading = read(scope, step, swaps); reading.any()) {
      scope.steps.add(step.name, reading, false);
      count_kills(scope, v1, step.name);
    } else if (is_gone(scope, step)) {
      scope.steps.removed(step.name, scope.now, false);
    }
  }
}

void StepReader::read_at_end(const ReadScope& scope, std::string_view name) {
  const StepTable::Step* step = scope.steps.find(name);
  if (scope.job.other_steps && step != nullptr && step->runs)
    scope.steps.add(name, read(scope, *step, false), true);
}

void StepReader::read_if_empty(const ReadScope& scope, std::string_view step) {
  if (!scope.job.other_steps) return;
  path_ = path_of(scope.groups.of(Controller::kUnified), step) + "/user/cgroup.events";
  if (read_text(files_, path_, text_) == 0 && value_of(text_, "populated") == 0U)
    read_at_end(scope, step);
}

std::optional<std::string_view> StepReader::devices(const ReadScope& scope, std::string_view step) {
  const ControlGroup& group = scope.groups.of(Controller::kDevices);
  path_ = path_of(group, step) + "/devices.list";
  if (!group.there || read_text(files_, path_, text_) < 0) return std::nullopt;
  return text_;
}

void StepReader::count_kills(const ReadScope& scope, const Cgroup1Reader& v1,
                             std::string_view name) {
  const ControlGroup& memory = scope.groups.of(Controller::kMemory);
  if (!memory.path.empty()) scope.steps.count_kills(name, v1.kills_in(path_of(memory, name)));
}

bool StepReader::is_gone(const ReadScope& scope, const StepTable::Step& step) const {
  return std::none_of(scope.groups.begin(), scope.groups.end(), [&](const ControlGroup& group) {
    Identity identity;
    return group.there && !says_gone(files_.identify(path_of(group, step.name), identity));
  });
}

Reading StepReader::read(const ReadScope& scope, const StepTable::Step& step, bool swaps) {
  Reading reading;
  const auto text = [&](Controller controller,
                        const char* file) -> std::optional<std::string_view> {
    const ControlGroup& group = scope.groups.of(controller);
    if (!group.there) return std::nullopt;
    path_ = path_of(group, step.name).append("/").append(file);
    if (read_text(files_, path_, text_) < 0) return std::nullopt;
    return text_;
  };
  const auto number = [&](Controller controller, const char* file) {
    const auto found = text(controller, file);
    return found ? whole_number(*found) : std::nullopt;
  };
  if (const auto stat = text(Controller::kUnified, "cpu.stat"))
    reading.put(parse_cpu_stat_v2(*stat), Method::kCgroup2);
  if (const auto usage = text(Controller::kCpuacct, "cpuacct.usage"))
    reading.put(cpu_time_v1(*usage, ""), Method::kCgroup1);
  // At the end the memory was given back, and only then the peak is read.
  if (!scope.at_end) {
    if (const auto stat = text(Controller::kUnified, "memory.stat")) {
      reading.put(parse_memory_stat_v2(*stat), Method::kCgroup2);
      if (swaps) reading.memory.swap_bytes = number(Controller::kUnified, "memory.swap.current");
    }
    if (const auto stat = text(Controller::kMemory, "memory.stat"))
      reading.put(parse_memory_stat_v1(*stat), Method::kCgroup1);
  } else {
    const auto take_peak = [&](Controller controller, const char* file, Method method) {
      const auto peak = number(controller, file);
      if (!peak) return;
      reading.memory.peak_charged_bytes = peak;
      reading.source.memory = method;
    };
    take_peak(Controller::kUnified, "memory.peak", Method::kCgroup2);
    take_peak(Controller::kMemory, "memory.max_usage_in_bytes", Method::kCgroup1);
    if (const auto events = text(Controller::kUnified, "memory.events"))
      reading.memory.oom_kills = value_of(*events, "oom_kill");
  }
  if (step.readings == 0) {
    // v2: without a set of its own a group has all CPUs of those above it.
    const auto own = text(Controller::kUnified, "cpuset.cpus");
    const auto cpus = own && count_cpus(*own) ? text(Controller::kUnified, "cpuset.cpus.effective")
                                              : text(Controller::kCpuset, "cpuset.effective_cpus");
    if (cpus) reading.cpu.allocated = count_cpus(*cpus);
  }
  reading.at = clock_.steady();
  reading.time = clock_.now();
  return reading;
}

}  // namespace scriptorium::usage
