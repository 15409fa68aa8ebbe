#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "schedulers/usage/sampler.h"
#include "schedulers/usage/sampler_slots.h"

// What one reading of a job reads.
namespace scriptorium::usage {
namespace {

// Processes of a job that are read one by one; a job with more of them is not measured that
// way.
constexpr std::size_t kMostProcesses = 4096;

void put(const CpuStat& stat, Method method, Reading& into) {
  if (!stat.time_seconds) return;
  into.source.cpu = method;
  into.cpu.time_seconds = stat.time_seconds;
  into.cpu.user_seconds = stat.user_seconds;
  into.cpu.system_seconds = stat.system_seconds;
  into.cpu.throttled_seconds = stat.throttled_seconds;
}

void put(const MemoryStat& stat, Method method, Reading& into) {
  if (!stat.anon_bytes) return;
  into.source.memory = method;
  into.memory.anon_bytes = stat.anon_bytes;
  into.memory.shmem_bytes = stat.shmem_bytes;
  into.memory.swap_bytes = stat.swap_bytes;
  into.memory.file_bytes = stat.file_bytes;
  into.memory.limit_bytes = stat.limit_bytes;
}

void put(const IoBytes& bytes, Method method, Reading& into) {
  if (!bytes.read_bytes && !bytes.written_bytes) return;
  into.source.io = method;
  into.io.read_bytes = bytes.read_bytes;
  into.io.written_bytes = bytes.written_bytes;
}

}  // namespace

// By SlotName; what is kept first is what saves most.
const std::array<Sampler::SlotInfo, Sampler::kSlots>& Sampler::slot_table() {
  using enum Controller;
  static constexpr std::array<SlotInfo, kSlots> kTable = {{
      {kMemory, "memory.stat", true},
      {kCpuacct, "cpuacct.usage", true},
      {kMemory, "memory.max_usage_in_bytes", true},
      {kCpuacct, "cpuacct.stat", true},
      {kMemory, "memory.usage_in_bytes", true},
      {kMemory, "memory.failcnt", true},
      {kCpuset, "cpuset.effective_cpus", false},
      {kBlkio, "blkio.throttle.io_service_bytes_recursive", false},
      {kDevices, "devices.list", false},
      {kUnified, "cpu.stat", true},
      {kUnified, "memory.stat", true},
      {kUnified, "memory.current", true},
      {kUnified, "memory.peak", true},
      {kUnified, "memory.events", true},
      {kUnified, "memory.swap.current", true},
      {kUnified, "io.stat", true},
      {kUnified, "pids.current", false},
      {kUnified, "pids.peak", false},
      {kUnified, "cpu.pressure", true},
      {kUnified, "memory.pressure", true},
      {kUnified, "io.pressure", true},
      {kUnified, "cpuset.cpus.effective", false},
      {kUnified, "cpuset.cpus", false},
      {kUnified, "cgroup.events", false},
  }};
  return kTable;
}

void Sampler::cannot_read(const std::string& path, int code) {
  ++counts_.unreadable;
  const std::string file = path.substr(path.rfind('/') + 1);
  if (!logged_.allows("unreadable " + file, clock_.steady())) return;
  log_.warning("USAGE_UNREADABLE",
               "a counter of a job may not be read, so what it counts is absent from the events",
               {{"file", path}, {"reason", system_error("open", -code).message()}});
}

std::optional<std::string_view> Sampler::text(Tracked& job, std::size_t slot) {
  const SlotInfo& info = slot_table().at(slot);
  const Group& group = job.groups.at(index(info.controller));
  if (!group.there) return std::nullopt;
  int& fd = job.slots.at(slot).fd;
  bool& missing = job.slots.at(slot).missing;
  if (missing && job.timed_readings % kSlowEach != 0) return std::nullopt;
  const bool kept = fd >= 0;
  int reading = fd;
  if (!kept) {
    path_.assign(group.path).append("/").append(info.file);
    reading = files_.open(path_);
    missing = reading == -ENOENT;
    if (reading < 0) {
      if (reading == -EACCES || reading == -EPERM) cannot_read(path_, reading);
      return std::nullopt;
    }
  }
  const long got = files_.read(reading, buffer_.data(), buffer_.size(), 0);
  if (!kept) {
    if (info.kept && got >= 0 && counts_.open_files < options_.kept_files) {
      fd = reading;
      ++counts_.open_files;
    } else {
      UniqueFd(reading).reset();
    }
  } else if (got < 0) {
    close_file(job.slots.at(slot));
  }
  if (got < 0) return std::nullopt;
  return std::string_view(buffer_.data(), static_cast<std::size_t>(got));
}

void Sampler::read_number(Tracked& job, std::size_t slot, std::optional<std::uint64_t>& into) {
  if (const auto found = text(job, slot)) into = whole_number(*found);
}

void Sampler::measure_v1(Tracked& job, Occasion occasion, bool slow, Reading& reading) {
  if (const auto usage = text(job, kCpuUsage)) {
    const std::string copy(usage->substr(0, 32));  // the next text takes its place
    put(cpu_time_v1(copy, text(job, kCpuTicks).value_or("")), Method::kCgroup1, reading);
  }
  if (const auto stat_text = text(job, kMemoryStat)) {
    put(parse_memory_stat_v1(*stat_text), Method::kCgroup1, reading);
    read_number(job, kMemoryMax, reading.memory.peak_charged_bytes);
    read_number(job, kMemoryUsage, reading.memory.charged_bytes);
    count_kills(job, reading, occasion == Occasion::kEnd);
  }
  if (slow) {
    if (const auto cpus = text(job, kCpusV1)) reading.cpu.allocated = count_cpus(*cpus);
  }
  if (const auto bytes = text(job, kBlockBytes)) {
    put(parse_blkio(*bytes), Method::kCgroup1, reading);
  }
}

// v1 counts a kill in the very group of the task and nowhere above, and that group is gone soon
// after: so it is asked when the job's memory limit was hit since the last reading, and at the end.
void Sampler::count_kills(Tracked& job, Reading& reading, bool at_end) {
  const auto failures_text = text(job, kMemoryFailures);
  const auto failures = failures_text ? whole_number(*failures_text) : std::nullopt;
  const bool hit = failures && failures != job.failures && *failures > 0;
  if (hit || (at_end && job.failures.value_or(0) > 0)) {
    if (!job.leaves_known) find_leaves(job);
    bool asked = false;
    std::string text;
    for (const Leaf& leaf : job.leaves) {
      if (leaf.foreign) continue;
      if (read_text(files_, leaf.path + "/memory.oom_control", text, 4096) < 0) continue;
      const auto kills = value_of(text, "oom_kill");
      if (!kills) continue;
      if (is_task(leaf.path.substr(leaf.path.rfind('/') + 1))) asked = true;
      std::uint64_t& known = job.kills[leaf.path];
      known = std::max(known, *kills);
    }
    if (hit) job.kills_unknown = !asked;
  }
  if (failures) job.failures = failures;
  reading.oom_kills_unknown = job.kills_unknown;
  if (!failures || job.kills_unknown) return;
  std::uint64_t sum = 0;
  for (const auto& [task, kills] : job.kills) sum += kills;
  reading.memory.oom_kills = sum;
}

void Sampler::measure_v2(Tracked& job, bool slow, Reading& reading) {
  if (const auto stat_text = text(job, kCpuStat)) {
    put(parse_cpu_stat_v2(*stat_text), Method::kCgroup2, reading);
  }
  if (const auto stat_text = text(job, kMemoryStat2)) {
    put(parse_memory_stat_v2(*stat_text), Method::kCgroup2, reading);
    read_number(job, kSwapCurrent, reading.memory.swap_bytes);
    read_number(job, kMemoryCurrent, reading.memory.charged_bytes);
    read_number(job, kMemoryPeak, reading.memory.peak_charged_bytes);
    if (const auto events = text(job, kMemoryEvents))
      reading.memory.oom_kills = value_of(*events, "oom_kill");
  }
  if (const auto io = text(job, kIoStat)) {
    put(parse_io_stat_v2(*io), Method::kCgroup2, reading);
  }
  const auto read_pressure = [&](SlotName slot, const char* which, std::optional<double>& into) {
    if (const auto pressure = text(job, slot)) into = pressure_seconds(*pressure, which);
  };
  read_pressure(kCpuPressure, "some", reading.cpu.pressure_some_seconds);
  read_pressure(kMemoryPressure, "full", reading.memory.pressure_full_seconds);
  read_pressure(kIoPressure, "full", reading.io.pressure_full_seconds);
  read_number(job, kPidsCurrent, reading.tasks.current);
  if (!slow) return;
  read_number(job, kPidsPeak, reading.tasks.peak);
  // Without a set of its own a group has all CPUs of those above it, which says nothing of what the
  // job was given.
  const auto own = text(job, kCpusSet);
  if (own && count_cpus(*own)) {
    if (const auto cpus = text(job, kCpusV2)) reading.cpu.allocated = count_cpus(*cpus);
  }
  const Group& group = job.groups.at(index(Controller::kUnified));
  std::string above = group.path;
  std::string text_of_limit;
  while (above.size() > options_.root.size()) {
    if (read_text(files_, above + "/memory.max", text_of_limit, 64) == 0) {
      if (const auto limit = whole_number(text_of_limit)) {
        reading.memory.limit_bytes = std::min(reading.memory.limit_bytes.value_or(*limit), *limit);
      }
    }
    above.resize(above.rfind('/'));
  }
}

void Sampler::measure_processes(Tracked& job, Reading& reading) {
  const bool known = job.leaves_known;
  if (!known) find_leaves(job);
  std::vector<std::uint32_t> own =
      processes(job, false, !known || job.timed_readings % kSlowEach == 0);
  if (own.empty()) own = processes(job, false, true);
  if (!own.empty() && !reading.tasks.current) reading.tasks.current = own.size();
  const bool none = own.empty() && processes(job, true, true).empty();
  job.had_process = job.had_process || !none;
  if (!none) {
    job.empty_sweeps = 0;
  } else if (job.had_process) {
    ++job.empty_sweeps;
  }
  learn(job, own);
  if (own.size() > kMostProcesses) return;
  if (!reading.source.cpu || !reading.source.memory) {
    const ProcessTotals totals = sum_processes(files_, options_.proc, own);
    if (!reading.source.cpu && totals.cpu_seconds) {
      reading.source.cpu = Method::kProc;
      reading.cpu.time_seconds = totals.cpu_seconds;
      reading.cpu.user_seconds = totals.user_seconds;
      reading.cpu.system_seconds = *totals.cpu_seconds - *totals.user_seconds;
    }
    if (!reading.source.memory && totals.anon_bytes) {
      reading.source.memory = Method::kProc;
      reading.memory.anon_bytes = totals.anon_bytes;
    }
  }
  if (options_.process_io && !reading.source.io && !own.empty()) {
    if (!job.io) job.io.emplace();
    if (!job.io->update(files_, options_.proc, own) &&
        logged_.allows("process io", clock_.steady())) {
      log_.info("USAGE_NO_PROCESS_IO",
                "what jobs read and write is absent: /proc/PID/io of other users needs "
                "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH");
    }
    put(job.io->total(), Method::kProc, reading);
  }
}

Reading Sampler::measure(Tracked& job, Occasion occasion) {
  Reading reading;
  if (!job.just_made && job.timed_readings == 0 && job.life.state().readings == 0) guess_start(job);
  const bool slow = occasion == Occasion::kEnd
                        ? !job.life.state().cpu.allocated
                        : job.timed_readings < kSlowFirst || job.timed_readings % kSlowEach == 0;
  const bool v1 = std::any_of(job.groups.begin() + 1, job.groups.end(),
                              [](const Group& group) { return group.there; });
  // At the end there is no time to lose, so what is asked first is what matters most.
  if (v1) measure_v1(job, occasion, slow, reading);
  if (job.groups.at(index(Controller::kUnified)).there) measure_v2(job, slow, reading);
  reading.at = clock_.steady();
  reading.time = clock_.now();
  if (occasion == Occasion::kTimed) {
    measure_processes(job, reading);
    claim_gpus(job);
    ++job.timed_readings;
  }
  return reading;
}

bool Sampler::read(Tracked& job, Occasion occasion) {
  const Reading reading = measure(job, occasion);
  if (!reading.any()) return false;
  ++counts_.readings;
  take_reading(job, reading, false);
  return true;
}

void Sampler::take_reading(Tracked& job, const Reading& reading, bool sample) {
  if (job.life.is_reset(reading)) end_old_life(job, reading.time, reading.at);
  job.life.add(reading, std::chrono::duration<double>(options_.interval).count());
  if (!sample) return;
  UsageSample made = job.life.sample(reading);
  made.gpus = gpus_.now(made.job.key());
  if (!made.gpus.empty()) made.source.gpu = gpus_.method();
  output_.samples.push_back(std::move(made));
}

}  // namespace scriptorium::usage
