#include "schedulers/usage/program_reader.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "core/base/number.h"
#include "schedulers/usage/counters.h"
#include "schedulers/usage/process.h"

namespace scriptorium::usage {
namespace {

// A sweep comes up to a second early or late.
constexpr std::int64_t kMostApart = 119 * kSecond;
constexpr std::int64_t kPartOfLife = 8;
constexpr std::int64_t kLeastApart = kSecond / 2;
constexpr std::size_t kMostOfFile = 4096;

std::int64_t nanoseconds_of(SteadyTime at) noexcept {
  return std::chrono::nanoseconds(at.time_since_epoch()).count();
}

// A thread that used less has not run yet, as far as times of processes show.
constexpr std::uint64_t kLeastOfThread = 10'000'000;  // ns
constexpr std::uint64_t kPartOfBusiest = 10;
// Of the processes of a job, one by one at each reading; each takes about 5 us.
constexpr std::uint64_t kMostThreads = 1024;

bool says_out_of_reach(int code) {
  return code == -ENOENT || code == -ESRCH || code == -EACCES || code == -EPERM;
}

// The first number in a thread's schedstat is its time on a CPU in ns (Documentation/scheduler/
// sched-stats.rst of Linux). Nothing where threads that have ended used most of the process's time.
std::optional<std::uint64_t> busy_threads(Files& files, const std::string& process,
                                          double cpu_seconds) {
  std::uint64_t most = 0;
  std::uint64_t sum = 0;
  std::vector<std::uint64_t> times;
  std::string text;
  for (const DirectoryEntry& thread : list_directories(files, process)) {
    std::string path = process;
    if (read_text(files, path.append("/").append(thread.name).append("/schedstat"), text, 128) < 0)
      continue;
    std::string_view fields = text;
    const auto time = take_number<std::uint64_t>(fields);
    if (!time) return std::nullopt;
    times.push_back(*time);
    most = std::max(most, *time);
    sum += *time;
  }
  if (times.empty() || static_cast<double>(sum) < cpu_seconds / 2 * kSecond) return std::nullopt;
  return std::count_if(times.begin(), times.end(), [&](std::uint64_t time) {
    return time >= std::max(kLeastOfThread, most / kPartOfBusiest);
  });
}

// The mount that a container's runtime made first is its root, and the kernel makes a line of text
// only for what is read.
constexpr std::size_t kMostOfMounts = 512;

// The daemon's own root directory is taken for the machine's.
std::string read_container(Files& files, const std::string& proc, const std::string& mounts_file) {
  std::string text;
  if (read_text(files, mounts_file, text, kMostOfMounts) < 0) return {};
  const RootDirectory root = root_directory(text);
  if (root.path.size() <= 1) return {};
  std::string own;
  if (read_text(files, proc + "/self/mountinfo", own, kMostOfFile) < 0) return {};
  return container_of(root, root_directory(own));
}

}  // namespace

bool programs_due(const LifeState& life, SteadyTime now) noexcept {
  if (life.programs_read_ns == 0) return true;
  const std::int64_t age = nanoseconds_of(now) - life.started_ns;
  return nanoseconds_of(now) - life.programs_read_ns >=
         std::clamp(age / kPartOfLife, kLeastApart, kMostApart);
}

void read_programs(Files& files, const std::string& proc, const std::vector<std::uint32_t>& pids,
                   SteadyTime now, Executables* executables, LifeState& life) {
  // Before the reading, because an answer is that of the command that was read before.
  learn_executables(executables, life);
  if (!programs_due(life, now)) return;
  std::vector<ProcessNow> processes;
  processes.reserve(pids.size());
  std::string text;
  std::uint64_t threads_left = kMostThreads;
  for (const std::uint32_t pid : pids) {
    const int code = read_text(files, process_file(proc, pid, "stat"), text, kMostOfFile);
    if (code < 0 && !says_out_of_reach(code)) return;
    auto stat = code < 0 ? std::nullopt : parse_process_stat(text);
    // slurmstepd on its way to become the job's program.
    if (!stat || stat->command.starts_with("slurmstepd")) continue;
    processes.push_back({.pid = pid,
                         .start_ticks = stat->start_ticks,
                         .command = std::move(stat->command),
                         .cpu_seconds = static_cast<double>(stat->ticks) / ticks_per_second(),
                         .threads = stat->threads,
                         .busy_threads = stat->ticks > 0 ? 1 : 0,
                         .is_blocked = stat->state == 'D'});
    if (stat->threads <= 1 || stat->ticks == 0) continue;
    const bool fits = stat->threads <= threads_left;
    threads_left -= fits ? stat->threads : 0;
    processes.back().busy_threads =
        fits ? busy_threads(files, process_file(proc, pid, "task"), processes.back().cpu_seconds)
             : std::nullopt;
  }
  const bool is_slurm = life.job.scheduler == "slurm";
  life.programs.take(std::move(processes), [&](const ProcessNow& process) {
    std::optional<ProcessIdentity> identity;
    // The kernel reads a command line from the process's memory, where another thread of it may
    // wait for a file server that is down.
    if (process.is_blocked) return identity;
    identity.emplace();
    static_cast<void>(
        read_text(files, process_file(proc, process.pid, "cmdline"), text, kMostOfFile));
    identity->program = name_program(process.command, text);
    identity->container = read_container(files, proc, process_file(proc, process.pid, "mountinfo"));
    if (is_slurm && read_text(files, process_file(proc, process.pid, "cgroup"), text) == 0)
      identity->task = srun_task(text);
    return identity;
  });
  learn_executables(executables, life);
  life.programs_read_ns = nanoseconds_of(now);
}

void learn_executables(Executables* executables, LifeState& life) {
  if (executables == nullptr) return;
  life.programs.learn([executables](std::uint32_t pid, std::uint64_t start_ticks) {
    return executables->find(pid, start_ticks);
  });
}

}  // namespace scriptorium::usage
