#include "core/page/job_page.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/text.h"
#include "core/page/array_part.h"
#include "core/page/chain_part.h"
#include "core/page/job_plots.h"
#include "core/page/request.h"
#include "core/page/shown.h"
#include "core/page/use_values.h"
#include "core/query/array_report.h"
#include "core/query/checkpoint_chain.h"
#include "core/query/job_record.h"
#include "core/query/job_text.h"
#include "core/query/unchecked_json.h"
#include "core/query/usage_tables.h"

namespace scriptorium::page {
namespace {

using Json = nlohmann::ordered_json;
using List = kainjow::mustache::list;

constexpr const char* kUsage = "usage";  // the events' block, no plugin
constexpr std::size_t kMostNodes = 64;
constexpr std::size_t kMostTasks = 1'000;
constexpr std::size_t kMostDirectives = 200;
constexpr std::size_t kMostFindingBytes = 1'000;

std::string state_class(const JobRow& job) {
  switch (query::ending_of(job)) {
    case query::Ending::kGood: return "good";
    case query::Ending::kStopped: return "warn";
    case query::Ending::kBad: return "bad";
    case query::Ending::kUnknown: break;
  }
  return {};
}

// ---- use

// Of the newest run: its event has the sentences, steps and programs. Null: there is none, or it is
// an array, whose tasks have theirs.
Json usage_of(const Searchable::Record& record) {
  const auto last = std::find_if(record.later.rbegin(), record.later.rend(),
                                 [](const auto& event) { return event->kind == "usage.job"; });
  if (last == record.later.rend() || (*last)->job.array) return {};
  return Json::parse((*last)->extra_json, nullptr, false);
}

List findings_of(const Json& usage) {
  List list;
  for (const Json& finding : query::list_at(usage, {kUsage, "findings"})) {
    Values values;
    values.set("severity", severity_class(query::text_at(finding, {"severity"})));
    values.set("text", query::text_at(finding, {"text"}, kMostFindingBytes));
    list.push_back(std::move(values));
  }
  return list;
}

void add_advice(Values& values, const Json& usage,
                const std::vector<query::CheckpointFinding>& of_chain) {
  List suggest;
  for (const Json& line : query::list_at(usage, {kUsage, "suggest", "directives"})) {
    if (line.is_string()) suggest.push_back(text_value(printable(line.get<std::string>())));
  }
  set_list(values, "suggest", suggest);
  List findings = findings_of(usage);
  for (const query::CheckpointFinding& found : of_chain) {
    Values finding = text_value(found.text);
    finding.set("severity", severity_class(found.severity));
    findings.push_back(std::move(finding));
  }
  set_list(values, "findings", findings);
}

// Programs and steps.
void add_table(List& tables, const char* title, const query::UsageTable& from) {
  if (from.rows.empty()) return;
  const auto cells_of = [&](const std::vector<std::string>& texts) {
    List cells;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      Values cell = text_value(texts[i]);
      const bool is_number =
          std::find(from.numbers.begin(), from.numbers.end(), i) != from.numbers.end();
      cell.set("class", is_number ? "n" : "");
      cells.push_back(std::move(cell));
    }
    return cells;
  };
  List rows;
  for (const auto& row : from.rows) rows.push_back({"cells", cells_of(row)});
  Values table;
  table.set("title", words(title));
  table.set("head", cells_of(from.head));
  table.set("rows", rows);
  tables.push_back(std::move(table));
}

// ---- facts

std::string nodes_text(std::vector<std::string> nodes) {
  const std::size_t all = nodes.size();
  nodes.resize(std::min(all, kMostNodes));
  const std::string text = query::shown(nodes);
  return all > kMostNodes ? words("more_nodes", {text, std::to_string(all - kMostNodes)}) : text;
}

List facts_of(const JobRow& job) {
  List facts;
  const auto add = [&](const char* what, const std::string& value) {
    if (value.empty()) return;
    Values fact;
    fact.set("what", words(what));
    fact.set("value", value);
    facts.push_back(std::move(fact));
  };
  const std::string owner = query::user_text(job);
  add("owner",
      job.verified || owner.empty() ? owner : words("unconfirmed", {query::shown(job.user)}));
  if (job.group != job.user) add("group", query::shown(job.group));
  add("cluster", printable(job.cluster));
  add("account", query::shown(job.account));
  add("partition", query::shown(job.partition));
  add("qos", query::shown(job.qos));
  add("submitted_at", local_text(job.time) + " " + local_zone(job.time));
  add("directory", query::shown(job.work_dir));
  add("array", query::shown(job.array_task_spec));
  add("nodes", nodes_text(job.nodes));
  add("modules", query::shown(job.modules));
  add("software", query::shown(job.software));
  add("interpreter", query::shown(job.interpreter));
  add("event", job.event_id);
  return facts;
}

// ---- texts

// Says what the picture of a text leaves out or hides.
template <typename RestText>
List notes_on(const Shown& shown, RestText rest_text) {
  List notes;
  if (shown.left_out > 0) notes.push_back(text_value(rest_text(format_bytes(shown.left_out))));
  if (shown.foreign > 0) {
    notes.push_back(text_value(count_text(shown.foreign, "one_foreign", "foreign")));
  }
  if (shown.dos_lines) notes.push_back(text_value(words("dos_lines")));
  return notes;
}

Values script_values(const JobRow& job, std::string_view script, const std::string& root) {
  Shown shown = shown_lines(script, "L", Kind::kScript);
  Values values;
  values.set("href", root + job_path(job, "script"));
  values.set("size", format_bytes(script.size()));
  values.set("notes", notes_on(shown, [](const std::string& size) {
               return words("script_left_out", {size});
             }));
  set_html(values, shown.html);
  return values;
}

// A part of an environment.
Values text_part(const JobRow& job, const std::string& title, const Shown& shown) {
  Values values;
  values.set("title", title);
  values.set("notes", notes_on(shown, [&](const std::string& size) {
               return words("environment_left_out", {size, printable(job.id)});
             }));
  set_html(values, shown.html);
  return values;
}

// Variables by what made them.
struct VariableGroup {
  const char* title;
  bool (*has)(std::string_view name, std::string_view value);
};
bool begins_with_any(std::string_view name, std::initializer_list<std::string_view> begins) {
  return std::any_of(begins.begin(), begins.end(),
                     [&](std::string_view begin) { return name.starts_with(begin); });
}
constexpr std::array<VariableGroup, 4> kGroups = {{
    {"scheduler_variables",
     [](std::string_view name, std::string_view) {
       return begins_with_any(name, {"SLURM", "SBATCH_", "PBS_", "OAR_", "SGE_", "JOB_"});
     }},
    {"module_variables",
     [](std::string_view name, std::string_view) {
       return begins_with_any(name, {"LOADEDMODULES", "MODULE", "LMOD_", "_LMFILES_", "__LMOD",
                                     "_ModuleTable", "EBROOT", "EBVERSION", "EBDEVEL"});
     }},
    {"path_variables",
     [](std::string_view name, std::string_view value) {
       return name.ends_with("PATH") || value.find(":/") != std::string_view::npos;
     }},
    {"other_variables", [](std::string_view, std::string_view) { return true; }},
}};

List environment_groups(const JobRow& job, std::string_view environment) {
  std::array<std::string, kGroups.size()> bytes;
  std::array<std::size_t, kGroups.size()> counts{};
  for (const Variable& variable : split_environment(environment)) {
    const auto group =
        std::find_if(kGroups.begin(), kGroups.end(), [&](const VariableGroup& candidate) {
          return candidate.has(variable.name, variable.value);
        });
    const auto index = static_cast<std::size_t>(group - kGroups.begin());
    bytes.at(index).append(variable.name);
    if (variable.value.data() != nullptr) bytes.at(index).append("=").append(variable.value);
    bytes.at(index) += '\0';
    ++counts.at(index);
  }
  List groups;
  for (std::size_t i = 0; i < kGroups.size(); ++i) {
    if (counts.at(i) == 0) continue;
    groups.push_back(
        text_part(job, words(kGroups.at(i).title, {std::to_string(counts.at(i))}),
                  shown_lines(bytes.at(i), "E" + std::to_string(i) + "-", Kind::kVariables)));
  }
  return groups;
}

// What is no list of variables is one text.
List environment_of(const JobRow& job, std::string_view environment) {
  if (environment.find('\0') != std::string_view::npos) return environment_groups(job, environment);
  return {text_part(job, words("as_captured"), shown_lines(environment, "E"))};
}

List directives_of(const JobRow& job) {
  List list;
  for (const std::string& line : job.directives) {
    if (list.size() >= kMostDirectives) break;
    list.push_back(text_value(printable(line, kMostFindingBytes)));
  }
  return list;
}

List job_notes(const Searchable::Record& record) {
  List notes;
  if (record.job.redacted) notes.push_back(text_value(words("redacted")));
  if (!record.job.complete) notes.push_back(text_value(words("incomplete")));
  for (const std::string& problem : record.problems)
    notes.push_back(text_value(printable(problem, kMostFindingBytes)));
  return notes;
}

List task_rows(const std::vector<query::Task>& tasks) {
  List rows;
  for (const query::Task& task : tasks) {
    Values row = run_values(task.run);
    row.set("task", task.id);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::string severity_class(const std::string& severity) {
  return severity == "critical" || severity == "warning" ? severity : "info";
}

Values run_values(const JobRow& job) {
  Values values;
  values.set("state", query::state_text(job));
  values.set("state_class", state_class(job));
  values.set("span", query::span_text(job));
  const bool is_array = job.runs > 0;
  values.set("elapsed", is_array ? std::string{} : query::elapsed_text(job));
  values.set("cpu", is_array ? std::string{} : query::cpu_text(job));
  values.set("memory", is_array ? std::string{} : query::memory_text(job));
  return values;
}

void add_advice(Values& values, const Searchable::Record& record) {
  add_advice(values, usage_of(record), query::checkpoint_findings(record, system_clock().now()));
}
void add_advice(Values& values, const Event& usage_job) {
  add_advice(values, Json::parse(usage_job.extra_json, nullptr, false), {});
}

std::string job_path(const JobRow& job, const std::string& below) {
  const bool is_whole = job.time.nanoseconds % kSecond == 0;
  return "job/" + percent_encoded(job.cluster) + "/" + percent_encoded(job.id) +
         (below.empty() ? "" : "/" + below) + "?at=" +
         percent_encoded(format_rfc3339(
             job.time, is_whole ? TimePrecision::kSeconds : TimePrecision::kNanoseconds));
}

std::string compare_path(const std::vector<const JobRow*>& jobs) {
  std::string path = "compare";
  for (const JobRow* job : jobs)
    path += (job == jobs.front() ? "?job=" : "&job=") + percent_encoded(job_path(*job));
  return path;
}

Values job_values(const std::vector<Searchable::Record>& records, const std::vector<JobRow>& family,
                  const std::string& root) {
  const Searchable::Record& record = records.front();
  const JobRow& job = record.job;
  Values values;
  std::string title = printable(job.id);
  if (job.name) title += " " + query::shown(job.name);
  if (job.state) title += " - " + query::state_text(job);
  values.set("title", title);
  values.set("id", printable(job.id));
  values.set("name", query::shown(job.name));
  values.set("outcome", job.state ? Values(run_values(job)) : Values(false));
  values.set("notes", job_notes(record));
  set_list(values, "use", use_rows(job));
  const Json usage = usage_of(record);
  add_advice(values, usage, query::checkpoint_findings(record, system_clock().now()));
  List tables;
  add_table(tables, "programs", query::program_table({.event = &usage, .nodes = {}}));
  add_table(tables, "steps", query::step_table({.event = &usage, .nodes = {}}));
  values.set("tables", tables);
  set_list(values, "plots", job_plots(record));
  const std::vector<query::TaskLife> task_lives = query::task_lives(record);
  values.set("array", array_part(task_lives));
  std::vector<query::Task> tasks = query::tasks_of(task_lives);
  set_list(values, "failed_tasks", task_rows(query::failed_of(tasks)));
  values.set("task_count", std::to_string(tasks.size()));
  std::sort(tasks.begin(), tasks.end(), [](const query::Task& one, const query::Task& other) {
    return std::pair(one.id.size(), one.id) < std::pair(other.id.size(), other.id);  // 9 before 10
  });
  const bool has_more = tasks.size() > kMostTasks;
  values.set("tasks_shown", has_more ? Values(std::to_string(kMostTasks)) : Values(false));
  tasks.resize(std::min(tasks.size(), kMostTasks));
  set_list(values, "tasks", task_rows(tasks));
  List lives;
  if (job.lives > 1) {
    for (const JobRow& life : query::lives_of(record)) {
      if (life.state) lives.push_back(run_values(life));
    }
  }
  set_list(values, "lives", lives);
  values.set("chain", chain_part(query::checkpoint_chains(record)));
  values.set("facts", facts_of(job));
  set_list(values, "directives", directives_of(job));
  const auto script = query::script_text(record);
  values.set("script", script ? script_values(job, *script, root) : Values(false));
  const auto environment = query::environment_bytes(record);
  set_list(values, "environment", environment ? environment_of(job, *environment) : List{});
  List others;
  for (auto other = records.begin() + 1; other != records.end(); ++other) {
    Values row = run_values(other->job);
    row.set("href", root + job_path(other->job));
    row.set("time", query::local_time(other->job.time));
    row.set("name", query::shown(other->job.name));
    others.push_back(std::move(row));
  }
  set_list(values, "others", others);
  List runs;
  for (const JobRow& run : family) {
    Values row = run_values(run);
    row.set("is_this", run.id == job.id && run.cluster == job.cluster && run.time == job.time);
    row.set("href", root + job_path(run));
    row.set("id", printable(run.id));
    row.set("time", query::local_time(run.time));
    row.set("compare", root + compare_path({&job, &run}));
    runs.push_back(std::move(row));
  }
  if (runs.size() < 2) runs.clear();
  set_list(values, "family", runs);
  values.set("zone", local_zone(job.time));
  return values;
}

}  // namespace scriptorium::page
