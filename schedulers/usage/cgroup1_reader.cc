#include <algorithm>

#include "schedulers/usage/cgroup_readers.h"

namespace scriptorium::usage {
namespace {

constexpr CounterFile kCpuUsage{0, Controller::kCpuacct, "cpuacct.usage"};
constexpr CounterFile kCpuTicks{1, Controller::kCpuacct, "cpuacct.stat"};
constexpr CounterFile kStat1{2, Controller::kMemory, "memory.stat"};
constexpr CounterFile kMaxUsage{3, Controller::kMemory, "memory.max_usage_in_bytes"};
constexpr CounterFile kUsage{4, Controller::kMemory, "memory.usage_in_bytes"};
constexpr CounterFile kFailures{5, Controller::kMemory, "memory.failcnt"};
constexpr CounterFile kCpus1{6, Controller::kCpuset, "cpuset.effective_cpus", false};
constexpr CounterFile kBlockBytes{7, Controller::kBlkio,
                                  "blkio.throttle.io_service_bytes_recursive", false};
constexpr CounterFile kDeviceList{8, Controller::kDevices, "devices.list", false};

}  // namespace

Cgroup1Reader::Cgroup1Reader(CounterFiles& files) : shared_(files.files()), files_(files) {}

void Cgroup1Reader::read(const ReadScope& scope, ProcessGroups& groups, Reading& into) {
  if (const auto usage = files_.text(scope, kCpuUsage)) {
    const std::string copy(usage->substr(0, 32));  // the next text takes its place
    into.put(cpu_time_v1(copy, files_.text(scope, kCpuTicks).value_or("")), Method::kCgroup1);
  }
  if (const auto stat = files_.text(scope, kStat1)) {
    into.put(parse_memory_stat_v1(*stat), Method::kCgroup1);
    files_.number(scope, kMaxUsage, into.memory.peak_charged_bytes);
    files_.number(scope, kUsage, into.memory.charged_bytes);
    count_kills(scope, groups, into);
  }
  if (scope.rare) {
    if (const auto cpus = files_.text(scope, kCpus1)) into.cpu.allocated = count_cpus(*cpus);
  }
  if (const auto bytes = files_.text(scope, kBlockBytes))
    into.put(parse_blkio(*bytes), Method::kCgroup1);
}

// v1 counts a kill in the very group of the task and nowhere above, and that group is gone soon
// after: so it is read when the job's memory limit was hit since the last reading, and at the end.
void Cgroup1Reader::count_kills(const ReadScope& scope, ProcessGroups& groups, Reading& into) {
  std::optional<std::uint64_t> failures;
  files_.number(scope, kFailures, failures);
  const bool hit = failures && failures != kills_.failures && *failures > 0;
  if (hit || (scope.at_end && kills_.failures.value_or(0) > 0)) {
    bool task_read = false;
    std::string text;
    for (const ProcessGroups::Group& group : groups.list(scope)) {
      if (group.foreign) continue;
      if (read_text(shared_, group.path + "/memory.oom_control", text, 4096) < 0) continue;
      const auto kills = value_of(text, "oom_kill");
      if (!kills) continue;
      if (is_task(group.path.substr(group.path.rfind('/') + 1))) task_read = true;
      std::uint64_t& counted = kills_.tasks[group.path];
      counted = std::max(counted, *kills);
    }
    if (hit) kills_.unknown = !task_read;
  }
  if (failures) kills_.failures = failures;
  into.oom_kills_unknown = kills_.unknown;
  if (failures) into.memory.oom_kills = kills_in(scope.groups.of(Controller::kMemory).path);
}

std::optional<std::uint64_t> Cgroup1Reader::kills_in(const std::string& directory) const {
  if (!kills_.failures || kills_.unknown) return std::nullopt;
  const std::string below = directory + "/";
  std::uint64_t sum = 0;
  for (const auto& [task, kills] : kills_.tasks) {
    if (task.starts_with(below)) sum += kills;
  }
  return sum;
}

std::optional<std::string_view> Cgroup1Reader::devices(const ReadScope& scope) {
  return files_.text(scope, kDeviceList);
}

}  // namespace scriptorium::usage
