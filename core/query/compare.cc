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

std::vector<FactChange> request_changes(const JobRow& a, const JobRow& b) {
  std::vector<FactChange> all{
      {"name", shown(a.name), shown(b.name)},
      {"user", user_text(a), user_text(b)},
      {"account", shown(a.account), shown(b.account)},
      {"partition", shown(a.partition), shown(b.partition)},
      {"qos", shown(a.qos), shown(b.qos)},
      {"work dir", shown(a.work_dir), shown(b.work_dir)},
      {"interpreter", shown(a.interpreter), shown(b.interpreter)},
      {"array", shown(a.array_task_spec), shown(b.array_task_spec)},
      {"time limit", limit_text(a), limit_text(b)},
      {"CPUs", number_text(a.cpus), number_text(b.cpus)},
      {"memory", room_text(a.memory_limit_bytes), room_text(b.memory_limit_bytes)},
      {"GPUs", number_text(a.gpus), number_text(b.gpus)},
  };
  std::erase_if(all, [](const FactChange& fact) { return fact.before == fact.after; });
  return all;
}

std::vector<FactChange> outcomes(const JobRow& a, const JobRow& b) {
  std::vector<FactChange> all{
      {"state", state_text(a), state_text(b)},
      {"elapsed", elapsed_text(a), elapsed_text(b)},
      {"memory", memory_text(a), memory_text(b)},
      {"CPU", cpu_text(a), cpu_text(b)},
      {"GPU", gpu_text(a), gpu_text(b)},
      {"nodes", words_text(a.nodes), words_text(b.nodes)},
      {"findings", words_text(a.findings), words_text(b.findings)},
  };
  std::erase_if(all, [](const FactChange& f) { return f.before.empty() && f.after.empty(); });
  return all;
}

}  // namespace

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
  result.request = request_changes(before.job, after.job);
  result.outcome = outcomes(before.job, after.job);
  return result;
}

}  // namespace scriptorium::query
