#include "core/query/compare.h"

#include <utility>

#include "core/base/text.h"
#include "core/query/job_record.h"
#include "core/query/job_text.h"

namespace scriptorium::query {
namespace {

std::string limit_text(const JobRow& job) {
  return job.time_limit_seconds ? format_seconds(static_cast<double>(*job.time_limit_seconds))
                                : std::string{};
}
std::string number_text(const std::optional<std::uint64_t>& number) {
  return number ? std::to_string(*number) : std::string{};
}
std::string room_text(const std::optional<std::uint64_t>& bytes) {
  return bytes ? format_bytes(*bytes) : std::string{};
}
std::string words_text(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& item : list) text += (text.empty() ? "" : " ") + printable(item);
  return text;
}

std::vector<FactChange> changes_of(std::vector<Fact> before, std::vector<Fact> after) {
  std::vector<FactChange> changes;
  for (std::size_t i = 0; i < before.size(); ++i)
    changes.push_back({before[i].name, std::move(before[i].value), std::move(after[i].value)});
  return changes;
}

}  // namespace

std::vector<Fact> request_facts(const JobRow& job) {
  return {{"name", shown(job.name)},
          {"user", user_text(job)},
          {"account", shown(job.account)},
          {"partition", shown(job.partition)},
          {"qos", shown(job.qos)},
          {"work dir", shown(job.work_dir)},
          {"interpreter", shown(job.interpreter)},
          {"array", shown(job.array_task_spec)},
          {"time limit", limit_text(job)},
          {"CPUs", number_text(job.cpus)},
          {"memory", room_text(job.memory_limit_bytes)},
          {"GPUs", number_text(job.gpus)}};
}

std::vector<Fact> outcome_facts(const JobRow& job) {
  return {{"state", state_text(job)},
          {"elapsed", elapsed_text(job)},
          {"memory", memory_text(job)},
          {"CPU", cpu_text(job)},
          {"GPU", gpu_text(job)},
          {"nodes", words_text(job.nodes)},
          {"findings", words_text(job.findings)}};
}

bool Comparison::differs() const {
  return script_differs() || !environment.empty() || modules.any() || directives.any() ||
         !request.empty();
}

Comparison compare(const Searchable::Record& before, const Searchable::Record& after) {
  Comparison result;
  const auto old_script = script_text(before);
  const auto new_script = script_text(after);
  result.has_scripts = old_script && new_script;
  if (result.has_scripts) result.script = line_diff(*old_script, *new_script);
  const auto old_environment = environment_bytes(before);
  const auto new_environment = environment_bytes(after);
  result.has_environments = old_environment && new_environment;
  if (result.has_environments)
    result.environment = environment_diff(*old_environment, *new_environment);
  result.modules = list_diff(before.job.modules, after.job.modules);
  result.directives = list_diff(before.job.directives, after.job.directives);
  result.request = changes_of(request_facts(before.job), request_facts(after.job));
  std::erase_if(result.request, [](const FactChange& fact) { return fact.before == fact.after; });
  result.outcome = changes_of(outcome_facts(before.job), outcome_facts(after.job));
  std::erase_if(result.outcome,
                [](const FactChange& fact) { return fact.before.empty() && fact.after.empty(); });
  return result;
}

}  // namespace scriptorium::query
