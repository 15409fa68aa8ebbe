#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/api/kit/search/job_facts.h"
#include "core/base/text.h"
#include "core/cli/job_text.h"
#include "core/cli/show_text.h"

namespace scriptorium::cli {
namespace {

constexpr std::size_t kMostTasks = 100;  // of an array that are listed

void add_line(std::string& text, const std::string& key, const std::string& value) {
  if (!value.empty()) text += "  " + padded(key, 12) + value + "\n";
}

std::string names_text(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& item : list) text += (text.empty() ? "" : ", ") + printable(item);
  return text;
}

std::string painted_state(const JobRow& job, const Console& console) {
  std::string text = state_text(job);
  switch (state_paint(job)) {
    case Paint::kGood: return console.green(text);
    case Paint::kWarning: return console.yellow(text);
    case Paint::kBad: return console.red(text);
    default: return text;
  }
}

// "FAILED (2) after 1 h 10 min, 2026-11-20 10:00 to 2026-11-20 11:10"
std::string outcome_text(const JobRow& job, const Console& console) {
  std::string text = painted_state(job, console);
  if (text.empty() || job.runs > 0) return text;
  if (job.elapsed_seconds) text += " after " + elapsed_text(job);
  if (job.started_at) text += ", " + local_time(*job.started_at);
  if (job.started_at && job.ended_at) text += " to " + local_time(*job.ended_at);
  return text;
}

std::string used_text(const JobRow& job) {
  std::string text;
  const auto add = [&](const std::string& what, const std::string& value) {
    if (!value.empty()) text += (text.empty() ? "" : ", ") + what + " " + value;
  };
  add("CPU", cpu_text(job));
  add("memory", memory_text(job));
  add("GPU", gpu_text(job));
  return text;
}

// The first one first. Several events may describe one life: its start, its end, its use.
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

// The tasks of an array that failed, the newest first.
std::vector<std::pair<std::string, JobRow>> failed_tasks(const Searchable::Record& record) {
  std::vector<std::pair<std::string, JobRow>> tasks;
  for (const auto& event : record.later) {
    if (!event->job.array || event->kind != "usage.job") continue;
    JobRow run;
    join(run, *event);
    run.runs = 0;  // it is shown as a job of its own
    if (is_failure(run.state))
      tasks.emplace_back(printable(event->job.array->task_id.value_or("?")), std::move(run));
  }
  std::sort(tasks.begin(), tasks.end(),
            [](const auto& a, const auto& b) { return a.second.ended_at > b.second.ended_at; });
  if (tasks.size() > kMostTasks) tasks.resize(kMostTasks);
  return tasks;
}

}  // namespace

std::string use_text(const Searchable::Record& record, const Console& console) {
  const JobRow& job = record.job;
  std::string text;
  add_line(text, "outcome", outcome_text(job, console));
  add_line(text, "used", used_text(job));
  add_line(text, "nodes", names_text(job.nodes));
  add_line(text, "findings", names_text(job.findings));
  add_line(text, "modules", names_text(job.modules));
  add_line(text, "software", names_text(job.software));
  for (const auto& [task, run] : failed_tasks(record))
    add_line(text, "task " + task, outcome_text(run, console));
  if (job.lives > 1) {
    std::size_t number = 0;
    for (const JobRow& life : lives_of(record)) {
      if (life.state)
        add_line(text, "life " + std::to_string(++number), outcome_text(life, console));
    }
  }
  if (job.family)
    add_line(text, "family",
             std::to_string(*job.family) + "; its runs: scriptorium history " + printable(job.id));
  for (const std::string& problem : record.problems)
    add_line(text, "problem", console.yellow(printable(problem, 1024)));
  return text;
}

}  // namespace scriptorium::cli
