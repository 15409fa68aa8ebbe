#include "core/query/job_text.h"

#include <algorithm>
#include <cmath>

#include "core/api/kit/search/job_facts.h"
#include "core/base/text.h"

namespace scriptorium::query {
namespace {

constexpr std::size_t kMostTasks = 100;  // of an array
// No signal: what Slurm's accounting shows in its place for a job that was out of memory.
constexpr std::int64_t kOutOfMemory = 125;

std::string share_text(const std::optional<double>& ratio,
                       const std::optional<std::uint64_t>& count) {
  if (!count) return {};
  if (!ratio) return std::to_string(*count);
  return std::to_string(std::lround(*ratio * 100)) + " % of " + std::to_string(*count);
}

// "3.5 GiB of 8 GiB"; either may be "".
std::string used_of(const std::string& used, const std::string& limit) {
  if (limit.empty()) return used;
  return used + (used.empty() ? "of " : " of ") + limit;
}

}  // namespace

std::string local_time(Timestamp time) { return local_text(time).substr(0, 16); }

std::string shown(const std::optional<std::string>& text) {
  return text ? printable(*text) : std::string{};
}

std::string user_text(const JobRow& job) {
  if (!job.user) return job.uid ? "uid " + printable(*job.uid) : std::string{};
  return printable(*job.user) + (job.verified ? "" : "?");
}

std::string state_text(const JobRow& job) {
  std::string text = shown(job.state);
  if (job.runs > 0) {
    const std::string of = std::to_string(job.runs);
    return job.failed_runs > 0 ? std::to_string(job.failed_runs) + " of " + of + " failed"
                               : of + " " + text;
  }
  if (job.state == "OUT_OF_MEMORY" && job.exit_signal == kOutOfMemory) return text;
  if (job.exit_signal.value_or(0) != 0)
    return text + " (signal " + std::to_string(*job.exit_signal) + ")";
  if (job.exit_code.value_or(0) != 0) return text + " (" + std::to_string(*job.exit_code) + ")";
  return text;
}

bool succeeded(const JobRow& job) {
  return job.state == "COMPLETED" && job.exit_code.value_or(0) == 0 &&
         job.exit_signal.value_or(0) == 0;
}

Ending ending_of(const JobRow& job) {
  if (!job.state || job.state == "RUNNING" || job.state == "PENDING") return Ending::kUnknown;
  if (succeeded(job)) return Ending::kGood;
  return job.state->starts_with("CANCELLED") || job.state == "PREEMPTED" ? Ending::kStopped
                                                                         : Ending::kBad;
}

std::string elapsed_text(const JobRow& job) {
  return job.elapsed_seconds ? format_seconds(*job.elapsed_seconds) : std::string{};
}

std::string time_use_text(const JobRow& job) {
  const auto limit = job.time_limit_seconds;
  return used_of(elapsed_text(job), limit ? format_seconds(static_cast<double>(*limit)) : "");
}

std::string memory_text(const JobRow& job) {
  return used_of(job.memory_peak_bytes ? format_bytes(*job.memory_peak_bytes) : "",
                 job.memory_limit_bytes ? format_bytes(*job.memory_limit_bytes) : "");
}

std::string cpu_text(const JobRow& job) { return share_text(job.cpu_ratio, job.cpus); }
std::string gpu_text(const JobRow& job) { return share_text(job.gpu_ratio, job.gpus); }

std::string shown(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& item : list) text += (text.empty() ? "" : ", ") + printable(item);
  return text;
}

std::string span_text(const JobRow& job) {
  std::string text;
  if (job.runs > 0) return text;
  if (job.elapsed_seconds) text += " after " + elapsed_text(job);
  if (job.started_at) text += ", " + local_time(*job.started_at);
  if (job.started_at && job.ended_at) text += " to " + local_time(*job.ended_at);
  return text;
}

std::vector<JobRow> lives_of(const Searchable::Record& record) {
  std::vector<JobRow> lives;
  for (const auto& event : record.later) {
    JobRow life;
    join(life, *event);
    const auto same = std::find_if(lives.begin(), lives.end(), [&](const JobRow& other) {
      JobRow both = other;
      join(both, *event);
      return both.lives == other.lives;
    });
    if (same == lives.end()) {
      lives.push_back(std::move(life));
    } else {
      join(*same, *event);
    }
  }
  std::sort(lives.begin(), lives.end(),
            [](const JobRow& a, const JobRow& b) { return a.started_at < b.started_at; });
  return lives;
}

std::vector<Task> failed_of(std::vector<Task> tasks) {
  std::erase_if(tasks, [](const Task& task) { return !is_failure(task.run.state); });
  std::sort(tasks.begin(), tasks.end(),
            [](const Task& a, const Task& b) { return a.run.ended_at > b.run.ended_at; });
  if (tasks.size() > kMostTasks) tasks.resize(kMostTasks);
  return tasks;
}

}  // namespace scriptorium::query
