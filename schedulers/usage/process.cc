#include "schedulers/usage/process.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/base/number.h"

namespace scriptorium::usage {
namespace {

std::string path_of(const std::string& proc, std::uint32_t pid, const char* file) {
  return proc + "/" + std::to_string(pid) + "/" + file;
}

double ticks_per_second() {
  static const double ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return ticks;
}

std::optional<std::uint32_t> number(std::optional<std::string_view> text) {
  return text ? parse_number<std::uint32_t>(*text) : std::nullopt;
}

}  // namespace

ProcessTotals sum_processes(Files& files, const std::string& proc,
                            const std::vector<std::uint32_t>& pids) {
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  ProcessTotals totals;
  std::uint64_t ticks = 0;
  std::uint64_t user_ticks = 0;
  std::uint64_t own = 0;
  std::uint64_t shared = 0;
  std::string text;
  for (const std::uint32_t pid : pids) {
    if (read_text(files, path_of(proc, pid, "stat"), text, 4096) < 0) continue;
    const auto stat = parse_process_stat(text);
    if (!stat) continue;
    ++totals.processes;
    ticks += stat->ticks + stat->children_ticks;
    user_ticks += stat->user_ticks;
    if (read_text(files, path_of(proc, pid, "statm"), text, 4096) < 0) continue;
    if (const auto pages = parse_statm(text)) {
      own += pages->own;
      shared = std::max(shared, pages->shared);
    }
  }
  if (totals.processes > 0) {
    totals.cpu_seconds = static_cast<double>(ticks) / ticks_per_second();
    totals.user_seconds = static_cast<double>(user_ticks) / ticks_per_second();
    totals.anon_bytes = own * page;
    totals.shared_bytes = shared * page;
  }
  return totals;
}

bool ProcessIo::update(Files& files, const std::string& proc,
                       const std::vector<std::uint32_t>& pids) {
  ++round_;
  bool refused = false;
  bool read_any = false;
  std::string text;
  for (const std::uint32_t pid : pids) {
    const int code = read_text(files, path_of(proc, pid, "io"), text, 4096);
    if (code == -EACCES || code == -EPERM) refused = true;
    if (code < 0) continue;
    const IoBytes bytes = parse_process_io(text);
    if (!bytes.read_bytes || !bytes.written_bytes) continue;
    read_any = true;
    One& one = living_[pid];
    if (*bytes.read_bytes < one.read ||
        *bytes.written_bytes < one.written) {  // another process with its number
      ended_read_ += one.read;
      ended_written_ += one.written;
    }
    one = {*bytes.read_bytes, *bytes.written_bytes, round_};
  }
  for (auto it = living_.begin(); it != living_.end();) {
    if (it->second.round == round_) {
      ++it;
      continue;
    }
    ended_read_ += it->second.read;
    ended_written_ += it->second.written;
    it = living_.erase(it);
  }
  any_ = any_ || read_any;
  return read_any || !refused;
}

IoBytes ProcessIo::total() const {
  if (!any_) return {};
  IoBytes sum{ended_read_, ended_written_};
  for (const auto& [pid, one] : living_) {
    *sum.read_bytes += one.read;
    *sum.written_bytes += one.written;
  }
  return sum;
}

std::optional<double> oldest_age(Files& files, const std::string& proc,
                                 const std::vector<std::uint32_t>& pids) {
  std::string text;
  if (read_text(files, proc + "/uptime", text, 4096) < 0) return std::nullopt;
  std::string_view line = text;  // "350735.47 234388.90"
  const auto uptime = take_number<double>(line);
  if (!uptime) return std::nullopt;
  std::optional<double> age;
  for (const std::uint32_t pid : pids) {
    if (read_text(files, path_of(proc, pid, "stat"), text, 4096) < 0) continue;
    const auto stat = parse_process_stat(text);
    if (!stat) continue;
    const double one =
        std::max(0.0, *uptime - static_cast<double>(stat->start_ticks) / ticks_per_second());
    age = std::max(age.value_or(0), one);
  }
  return age;
}

std::optional<ProcessOwner> process_owner(Files& files, const std::string& proc,
                                          std::uint32_t pid) {
  std::string text;
  if (read_text(files, path_of(proc, pid, "status"), text, 16384) < 0) return std::nullopt;
  // Each at the start of a line: the kernel escapes a newline in the name.
  const auto field = [&](std::string_view key) -> std::string_view {
    std::size_t at = text.starts_with(key) ? 0 : text.find("\n" + std::string(key));
    if (at == std::string::npos) return {};
    at += key.size() + (at == 0 ? 0 : 1);
    return std::string_view(text).substr(at, text.find_first_of("\t\n", at) - at);
  };
  const auto uid = number(field("Uid:\t"));
  if (!uid) return std::nullopt;
  return ProcessOwner{std::string(field("Name:\t")), *uid};
}

std::optional<JobEnvironment> job_environment(Files& files, const std::string& proc,
                                              std::uint32_t pid) {
  std::string text;
  if (read_text(files, path_of(proc, pid, "environ"), text, std::size_t{4} << 20) < 0 ||
      text.empty())
    return std::nullopt;
  JobEnvironment found;
  if (const auto id = variable(text, "SLURM_JOB_ID")) found.job_id = *id;
  if (!found.job_id)
    return std::nullopt;  // not a process of a Slurm job, or it has cleared its environment
  // Slurm sets it from the first restart on.
  const auto restarts = variable(text, "SLURM_RESTART_COUNT");
  found.restarts = restarts ? number(restarts) : std::optional<std::uint32_t>(0);
  if (const auto gpus = variable(text, "SLURM_JOB_GPUS")) found.gpus = *gpus;
  return found;
}

}  // namespace scriptorium::usage
