#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/text.h"
#include "core/cli/job_text.h"
#include "core/cli/show_text.h"
#include "core/query/array_report.h"

namespace scriptorium::cli {
namespace {

void add_line(std::string& text, const std::string& key, const std::string& value) {
  if (!value.empty()) text += "  " + padded(key, 12) + value + "\n";
}

std::string outcome_text(const JobRow& job, const Console& console) {
  std::string text = state_text(job);
  if (text.empty()) return text;
  switch (state_paint(job)) {
    case Paint::kGood: text = console.green(text); break;
    case Paint::kWarning: text = console.yellow(text); break;
    case Paint::kBad: text = console.red(text); break;
    default: break;
  }
  return text + query::span_text(job);
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

// Their ids, each once.
std::string findings_text(const JobRow& job,
                          const std::vector<query::CheckpointFinding>& of_chain) {
  std::vector<std::string> ids = job.findings;
  for (const query::CheckpointFinding& found : of_chain) {
    if (std::ranges::find(ids, found.id) == ids.end()) ids.push_back(found.id);
  }
  return shown(ids);
}

}  // namespace

std::string use_text(const Searchable::Record& record, const Console& console) {
  const JobRow& job = record.job;
  std::string text;
  add_line(text, "outcome", outcome_text(job, console));
  add_line(text, "used", used_text(job));
  add_line(text, "nodes", shown(job.nodes));
  const auto of_chain = query::checkpoint_findings(record, system_clock().now());
  add_line(text, "findings", findings_text(job, of_chain));
  add_line(text, "modules", shown(job.modules));
  add_line(text, "software", shown(job.software));
  for (const query::Task& task : query::failed_of(query::tasks_of(query::task_lives(record))))
    add_line(text, "task " + task.id, outcome_text(task.run, console));
  if (job.lives > 1) {
    std::size_t number = 0;
    for (const JobRow& life : query::lives_of(record)) {
      if (life.state)
        add_line(text, "life " + std::to_string(++number), outcome_text(life, console));
    }
  }
  text += chain_text(record, of_chain, console);
  if (job.family)
    add_line(text, "family",
             std::to_string(*job.family) + "; its runs: scriptorium history " + printable(job.id));
  for (const std::string& problem : record.problems)
    add_line(text, "problem", console.yellow(printable(problem, 1024)));
  return text;
}

}  // namespace scriptorium::cli
