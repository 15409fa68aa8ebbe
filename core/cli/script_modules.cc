#include "core/cli/script_modules.h"

#include <algorithm>
#include <utility>

#include "core/api/kit/search/job_facts.h"

namespace scriptorium::cli {
namespace {

std::string key_of(const Event& event) {
  return event.cluster + '\n' + event.scheduler + '\n' + owning_job_id(event);
}

// The first number in a text; "" if there is none. `text` becomes what follows it.
std::string_view take_number(std::string_view& text) {
  constexpr std::string_view kDigits = "0123456789";
  text.remove_prefix(std::min(text.find_first_of(kDigits), text.size()));
  const std::string_view number = text.substr(0, text.find_first_not_of(kDigits));
  text.remove_prefix(number.size());
  return number;
}

bool is_other_user(const JobRun& run, const User& user) {
  return run.verified && user.verified && run.user && user.name && run.user != user.name;
}

}  // namespace

void ScriptModules::add(const Event& usage, JobRun run) {
  std::string_view id = owning_job_id(usage);
  const std::string_view number = take_number(id);
  if (number.empty()) {
    has_other_ids_ = true;
  } else {
    numbers_.emplace(number);
  }
  run.nodes = {};
  run.programs = {};
  jobs_[key_of(usage)].push_back(
      {.run = std::move(run), .submitted_at = usage.time, .script_at = {}});
}

bool ScriptModules::wants(std::string_view path) const {
  if (has_other_ids_) return true;
  while (!path.empty()) {
    if (numbers_.contains(std::string(take_number(path)))) return true;
  }
  return false;
}

void ScriptModules::take(const Event& script) {
  const auto job = jobs_.find(key_of(script));
  if (job == jobs_.end()) return;
  const auto modules = modules_.insert(row_of(script).modules).first;
  for (Waiting& waiting : job->second) {
    if (!can_be_life_of(script.time, waiting.submitted_at)) continue;
    if (is_other_user(waiting.run, script.user)) continue;
    // A longer capture of the same submission is the whole script.
    if (waiting.modules != nullptr && (script.time < waiting.script_at ||
                                       (script.time == waiting.script_at && !script.supersedes)))
      continue;
    waiting.modules = &*modules;
    waiting.script_at = script.time;
  }
}

std::size_t ScriptModules::use_all(const std::function<void(const JobRun&)>& use) {
  std::size_t without = 0;
  for (auto& [key, runs] : jobs_) {
    for (Waiting& waiting : runs) {
      if (waiting.modules == nullptr) ++without;
      if (waiting.modules != nullptr) waiting.run.modules = *waiting.modules;
      use(waiting.run);
      waiting.run.modules.clear();
    }
  }
  return without;
}

}  // namespace scriptorium::cli
