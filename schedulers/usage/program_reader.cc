#include "schedulers/usage/program_reader.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

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

bool says_out_of_reach(int code) {
  return code == -ENOENT || code == -ESRCH || code == -EACCES || code == -EPERM;
}

}  // namespace

bool programs_due(const LifeState& life, SteadyTime now) noexcept {
  if (life.programs_read_ns == 0) return true;
  const std::int64_t age = nanoseconds_of(now) - life.started_ns;
  return nanoseconds_of(now) - life.programs_read_ns >=
         std::clamp(age / kPartOfLife, kLeastApart, kMostApart);
}

void read_programs(Files& files, const std::string& proc, const std::vector<std::uint32_t>& pids,
                   SteadyTime now, LifeState& life) {
  if (!programs_due(life, now)) return;
  std::vector<ProcessNow> processes;
  processes.reserve(pids.size());
  std::string text;
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
                         .is_blocked = stat->state == 'D'});
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
    if (is_slurm && read_text(files, process_file(proc, process.pid, "cgroup"), text) == 0)
      identity->task = srun_task(text);
    return identity;
  });
  life.programs_read_ns = nanoseconds_of(now);
}

}  // namespace scriptorium::usage
