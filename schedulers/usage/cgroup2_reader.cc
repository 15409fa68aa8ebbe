#include <algorithm>

#include "schedulers/usage/cgroup_readers.h"

namespace scriptorium::usage {
namespace {

constexpr Controller kTree = Controller::kUnified;
constexpr CounterFile kCpuStat{0, kTree, "cpu.stat"};
constexpr CounterFile kStat2{1, kTree, "memory.stat"};
constexpr CounterFile kSwapCurrent{2, kTree, "memory.swap.current"};
constexpr CounterFile kCurrent{3, kTree, "memory.current"};
constexpr CounterFile kPeak{4, kTree, "memory.peak"};
constexpr CounterFile kEvents{5, kTree, "memory.events"};
constexpr CounterFile kIoStat{6, kTree, "io.stat"};
constexpr CounterFile kCpuPressure{7, kTree, "cpu.pressure"};
constexpr CounterFile kMemoryPressure{8, kTree, "memory.pressure"};
constexpr CounterFile kIoPressure{9, kTree, "io.pressure"};
constexpr CounterFile kPidsCurrent{10, kTree, "pids.current", false};
constexpr CounterFile kPidsPeak{11, kTree, "pids.peak", false};
constexpr CounterFile kCpusSet{12, kTree, "cpuset.cpus", false};
constexpr CounterFile kCpus2{13, kTree, "cpuset.cpus.effective", false};
constexpr CounterFile kGroupEvents{14, kTree, "cgroup.events", false};

}  // namespace

Cgroup2Reader::Cgroup2Reader(CounterFiles& files, const std::string& root)
    : shared_(files.files()), root_(root), files_(files) {}

void Cgroup2Reader::read(const ReadScope& scope, Reading& into) {
  if (!scope.groups.of(kTree).there) return;
  if (const auto stat = files_.text(scope, kCpuStat))
    into.put(parse_cpu_stat_v2(*stat), Method::kCgroup2);
  if (const auto stat = files_.text(scope, kStat2)) {
    into.put(parse_memory_stat_v2(*stat), Method::kCgroup2);
    files_.number(scope, kSwapCurrent, into.memory.swap_bytes);
    files_.number(scope, kCurrent, into.memory.charged_bytes);
    files_.number(scope, kPeak, into.memory.peak_charged_bytes);
    if (const auto events = files_.text(scope, kEvents))
      into.memory.oom_kills = value_of(*events, "oom_kill");
  }
  if (const auto io = files_.text(scope, kIoStat))
    into.put(parse_io_stat_v2(*io), Method::kCgroup2);
  const auto pressure = [&](const CounterFile& file, const char* which,
                            std::optional<double>& seconds) {
    if (const auto text = files_.text(scope, file)) seconds = pressure_seconds(*text, which);
  };
  pressure(kCpuPressure, "some", into.cpu.pressure_some_seconds);
  pressure(kMemoryPressure, "full", into.memory.pressure_full_seconds);
  pressure(kIoPressure, "full", into.io.pressure_full_seconds);
  files_.number(scope, kPidsCurrent, into.tasks.current);
  if (!scope.rare) return;
  files_.number(scope, kPidsPeak, into.tasks.peak);
  // Without a set of its own a group has all CPUs of those above it, which says nothing of what the
  // job was given.
  const auto own = files_.text(scope, kCpusSet);
  if (own && count_cpus(*own)) {
    if (const auto cpus = files_.text(scope, kCpus2)) into.cpu.allocated = count_cpus(*cpus);
  }
  read_limit(scope.groups.of(kTree).path, into);
}

// The smallest limit of the job and of the groups above it.
void Cgroup2Reader::read_limit(const std::string& job, Reading& into) const {
  std::string text;
  for (std::string path = job; path.size() > root_.size(); path.resize(path.rfind('/'))) {
    if (read_text(shared_, path + "/memory.max", text, 64) != 0) continue;
    if (const auto limit = whole_number(text))
      into.memory.limit_bytes = std::min(into.memory.limit_bytes.value_or(*limit), *limit);
  }
}

bool Cgroup2Reader::is_empty(const ReadScope& scope) {
  const auto events = files_.text(scope, kGroupEvents);
  return events && value_of(*events, "populated") == 0U;
}

}  // namespace scriptorium::usage
