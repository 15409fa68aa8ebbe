#include "schedulers/usage/process.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/base/number.h"
#include "schedulers/usage/step_reader.h"

namespace scriptorium::usage {
namespace {

// Processes of a job that are read one by one; a job with more of them is not measured that way.
constexpr std::size_t kMostProcesses = 4096;
// Processes whose real uid is read: when the owner is not known yet, and at each reading after
// that.
constexpr std::size_t kFirstOwnerChecks = 4096;
constexpr std::size_t kOwnerChecks = 64;

// What the counters did not give: times with those of ended children that were waited for, and the
// pages that no other process shares.
void add_usage(Files& files, const std::string& proc, const std::vector<std::uint32_t>& pids,
               Reading& into) {
  std::uint64_t ticks = 0;
  std::uint64_t user_ticks = 0;
  std::uint64_t pages = 0;
  bool any = false;
  std::string text;
  for (const std::uint32_t pid : pids) {
    if (read_text(files, process_file(proc, pid, "stat"), text, 4096) < 0) continue;
    const auto stat = parse_process_stat(text);
    if (!stat) continue;
    any = true;
    ticks += stat->ticks + stat->children_ticks;
    user_ticks += stat->user_ticks;
    if (read_text(files, process_file(proc, pid, "statm"), text, 4096) < 0) continue;
    if (const auto found = parse_statm(text)) pages += *found;
  }
  if (any && !into.source.cpu) {
    into.source.cpu = Method::kProc;
    into.cpu.time_seconds = static_cast<double>(ticks) / ticks_per_second();
    into.cpu.user_seconds = static_cast<double>(user_ticks) / ticks_per_second();
    into.cpu.system_seconds = *into.cpu.time_seconds - *into.cpu.user_seconds;
  }
  if (any && !into.source.memory) {
    into.source.memory = Method::kProc;
    into.memory.anon_bytes = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  }
}

// How long ago the oldest of them was started, in seconds; 0 if none could be read.
double oldest_age(Files& files, const std::string& proc, const std::vector<std::uint32_t>& pids) {
  std::string text;
  if (read_text(files, proc + "/uptime", text, 4096) < 0) return 0;
  std::string_view line = text;  // "350735.47 234388.90"
  const auto uptime = take_number<double>(line);
  double age = 0;
  for (const std::uint32_t pid : uptime ? pids : std::vector<std::uint32_t>()) {
    if (read_text(files, process_file(proc, pid, "stat"), text, 4096) < 0) continue;
    if (const auto stat = parse_process_stat(text))
      age = std::max(age, *uptime - static_cast<double>(stat->start_ticks) / ticks_per_second());
  }
  return age;
}

}  // namespace

std::string process_file(const std::string& proc, std::uint32_t pid, const char* file) {
  return proc + "/" + std::to_string(pid) + "/" + file;
}

double ticks_per_second() {
  static const double ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return ticks;
}

bool ProcessIo::update(Files& files, const std::string& proc,
                       const std::vector<std::uint32_t>& pids) {
  ++round_;
  bool refused = false;
  bool read_any = false;
  std::string text;
  for (const std::uint32_t pid : pids) {
    const int code = read_text(files, process_file(proc, pid, "io"), text, 4096);
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

std::optional<ProcessOwner> process_owner(Files& files, const std::string& proc,
                                          std::uint32_t pid) {
  std::string text;
  if (read_text(files, process_file(proc, pid, "status"), text, 16384) < 0) return std::nullopt;
  // Each at the start of a line: the kernel escapes a newline in the name.
  const auto field = [&](std::string_view key) -> std::string_view {
    std::size_t at = text.starts_with(key) ? 0 : text.find("\n" + std::string(key));
    if (at == std::string::npos) return {};
    at += key.size() + (at == 0 ? 0 : 1);
    return std::string_view(text).substr(at, text.find_first_of("\t\n", at) - at);
  };
  const auto uid = parse_number<std::uint32_t>(field("Uid:\t"));
  if (!uid) return std::nullopt;
  return ProcessOwner{std::string(field("Name:\t")), *uid};
}

const std::vector<ProcessGroups::Group>& ProcessGroups::list(const ReadScope& scope) {
  if (std::exchange(known_, true)) return groups_;
  groups_.clear();
  // The first tree that has tasks, else the first that has steps: they all hold the same processes.
  for (const Controller controller :
       {Controller::kUnified, Controller::kMemory, Controller::kCpuacct, Controller::kFreezer,
        Controller::kCpuset}) {
    const ControlGroup& job = scope.groups.of(controller);
    if (!job.there) continue;
    groups_.push_back({job.path});
    for (const DirectoryEntry& step : list_directories(files_, job.path)) {
      if (!is_step(step.name)) continue;
      step_listed(files_, job.path + "/" + step.name, step.name, scope);
      add_step(job.path + "/" + step.name, step.name);
    }
    break;
  }
  return groups_;
}

void ProcessGroups::add_step(const std::string& path, const std::string& step) {
  const bool foreign = step == "step_extern";
  groups_.push_back({path, foreign});
  for (const DirectoryEntry& below : list_directories(files_, path)) {
    if (is_task(below.name)) groups_.push_back({path + "/" + below.name, foreign});
    if (below.name == "slurm") groups_.push_back({path + "/slurm", true});
    if (below.name != "user") continue;
    groups_.push_back({path + "/user", foreign});
    for (const DirectoryEntry& task : list_directories(files_, path + "/user"))
      groups_.push_back({path + "/user/" + task.name, foreign});
  }
}

std::vector<std::uint32_t> ProcessGroups::processes(bool foreign_too, bool all_groups) {
  std::vector<std::uint32_t> pids;
  std::string text;
  for (Group& group : groups_) {
    if ((group.foreign && !foreign_too) || (group.empty && !all_groups)) continue;
    if (read_text(files_, group.path + "/cgroup.procs", text) < 0) continue;
    group.empty = text.empty();
    if (group.empty) continue;
    const auto some = parse_pids(text);
    pids.insert(pids.end(), some.begin(), some.end());
  }
  return pids;
}

bool has_process(Files& files, const std::string& group, int depth) {
  std::string text;
  if (read_text(files, group + "/cgroup.procs", text) == 0 && !parse_pids(text).empty())
    return true;
  if (depth == 0) return false;
  const auto below = list_directories(files, group);
  return std::any_of(below.begin(), below.end(), [&](const DirectoryEntry& entry) {
    return has_process(files, group + "/" + entry.name, depth - 1);
  });
}

bool ProcessReader::read(const ReadScope& scope, RepeatLimit& logged, Reading& into) {
  const bool all_groups = !groups_.known() || scope.retry;
  groups_.list(scope);
  own_ = groups_.processes(false, all_groups);
  if (own_.empty()) own_ = groups_.processes(false, true);
  if (!own_.empty() && !into.tasks.current) into.tasks.current = own_.size();
  const bool any = !own_.empty() || !groups_.processes(true, true).empty();
  read_owner(scope, own_);
  read_environment(scope.job, own_);
  if (own_.size() > kMostProcesses) own_.clear();
  read_usage(own_, logged, into);
  return any;
}

void ProcessReader::read_usage(const std::vector<std::uint32_t>& pids, RepeatLimit& logged,
                               Reading& into) {
  if (!into.source.cpu || !into.source.memory) add_usage(files_, options_.proc, pids, into);
  if (!options_.io || into.source.io || pids.empty()) return;
  if (!io_) io_.emplace();
  if (!io_->update(files_, options_.proc, pids) && logged.allows("process io", clock_.steady())) {
    log_.info("USAGE_NO_PROCESS_IO",
              "what jobs read and write is absent: /proc/PID/io of other users needs "
              "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH");
  }
  into.put(io_->total(), Method::kProc);
}

// A v2 path does not say whose job it is; the real uids of its processes do. A set-uid program
// keeps the real uid, one that takes another one (sudo, su) differs from the processes of the user:
// seen once, the job stays unverified.
void ProcessReader::read_owner(const ReadScope& scope, const std::vector<std::uint32_t>& pids) {
  JobSeen& job = scope.job;
  if (scope.groups.owner_in_path || job.uid_problem) return;
  std::size_t left = job.uid ? kOwnerChecks : kFirstOwnerChecks;
  std::optional<std::uint32_t> uid = job.uid;
  for (const std::uint32_t pid : pids) {
    if (left-- == 0) break;
    const auto owner = process_owner(files_, options_.proc, pid);
    // slurmstepd, which is root's, is elsewhere, but may still be on its way to become the user.
    if (!owner || (owner->uid == 0 && owner->name.starts_with("slurmstepd"))) continue;
    if (!uid) uid = owner->uid;
    if (*uid == owner->uid) continue;
    job.uid_trusted = false;
    job.uid_problem = "the job's processes run as several users: " + std::to_string(*uid) +
                      " and " + std::to_string(owner->uid);
    log_.warning("USAGE_OWNER_UNCERTAIN",
                 "the owner of a job is not verified, for its processes run as several users",
                 {{"job", job.job_id}, {"reason", *job.uid_problem}});
    return;
  }
  if (!uid) return;
  job.uid = uid;
  job.uid_trusted = true;
}

void ProcessReader::read_environment(JobSeen& job, const std::vector<std::uint32_t>& pids) {
  if (environment_tries_ == 0 || pids.empty() || job.scheduler != "slurm") return;
  --environment_tries_;
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(pids.size(), 4); ++i) {
    // Without an id it is not a process of a Slurm job, or it has cleared its environment.
    if (read_text(files_, process_file(options_.proc, pids[i], "environ"), text,
                  std::size_t{4} << 20) < 0 ||
        !variable(text, "SLURM_JOB_ID"))
      continue;
    environment_tries_ = 0;
    // Slurm sets it from the first restart on.
    const auto restarts = variable(text, "SLURM_RESTART_COUNT");
    job.restarts =
        restarts ? parse_number<std::uint32_t>(*restarts) : std::optional<std::uint32_t>(0);
    gpus_ = variable(text, "SLURM_JOB_GPUS");
    if (job.sluid && job.job_id == *job.sluid) job.job_id = *variable(text, "SLURM_JOB_ID");
    return;
  }
}

// The time of a control group's directory is the one when somebody first accessed it, so it may be
// later than the job's start, but never earlier.
double ProcessReader::age_seconds(const ReadScope& scope) {
  const Timestamp now = clock_.now();
  double age = 0;
  for (const ControlGroup& group : scope.groups) {
    Identity identity;
    if (!group.there || files_.identify(group.path, identity) != 0 || identity.mtime_ns <= 0)
      continue;
    age = std::max(age, static_cast<double>(now.nanoseconds - identity.mtime_ns) * 1e-9);
  }
  groups_.list(scope);
  return std::max(age, oldest_age(files_, options_.proc, groups_.processes(true, true)));
}

void ProcessReader::begin_life() {
  groups_.forget();
  io_.reset();
  environment_tries_ = kEnvironmentTries;
  gpus_.reset();
}

}  // namespace scriptorium::usage
