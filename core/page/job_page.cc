#include "core/page/job_page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/text.h"
#include "core/page/request.h"
#include "core/page/shown.h"
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

Values text_value(const std::string& text) { return {"text", text}; }

void set_list(Values& values, const std::string& name, const List& list) {
  values.set("has_" + name, !list.empty());
  values.set(name, list);
}

std::string state_class(const JobRow& job) {
  switch (query::ending_of(job)) {
    case query::Ending::kGood: return "good";
    case query::Ending::kStopped: return "warn";
    case query::Ending::kBad: return "bad";
    case query::Ending::kUnknown: break;
  }
  return {};
}

// ---- request and use

// What is at its limit is a warning, or what is hardly used.
enum class Good : std::uint8_t { kBelowLimit, kUsed };

void add_use(List& rows, const std::string& what, Good good, const std::string& asked,
             const std::string& used, const std::optional<double>& ratio) {
  if (asked.empty() && used.empty() && !ratio) return;
  Values row;
  row.set("what", what);
  row.set("asked", asked);
  row.set("used", used);
  row.set("limit", good == Good::kBelowLimit);
  row.set("share", ratio.has_value());
  row.set("percent", ratio ? std::to_string(std::lround(*ratio * 100)) : std::string{});
  rows.push_back(std::move(row));
}

std::optional<double> ratio_of(const std::optional<double>& part, const std::optional<double>& of) {
  return part && of && *of > 0 ? std::optional(*part / *of) : std::nullopt;
}
template <typename Number>
std::optional<double> as_double(const std::optional<Number>& number) {
  return number ? std::optional(static_cast<double>(*number)) : std::nullopt;
}

List use_rows(const JobRow& job) {
  List rows;
  if (job.runs > 0) return rows;  // an array's row has the figures of one task
  const auto count = [](const auto& n) { return n ? std::to_string(*n) : std::string{}; };
  const auto bytes = [](const auto& n) { return n ? format_bytes(*n) : std::string{}; };
  const auto seconds = [](const auto& n) {
    return n ? format_seconds(static_cast<double>(*n)) : std::string{};
  };
  add_use(rows, "CPUs", Good::kUsed, count(job.cpus),
          job.cpu_seconds ? format_seconds(*job.cpu_seconds) + " of CPU time" : "", job.cpu_ratio);
  add_use(rows, "Memory", Good::kBelowLimit, bytes(job.memory_limit_bytes),
          bytes(job.memory_peak_bytes),
          ratio_of(as_double(job.memory_peak_bytes), as_double(job.memory_limit_bytes)));
  add_use(rows, "Time", Good::kBelowLimit, seconds(job.time_limit_seconds),
          seconds(job.elapsed_seconds),
          ratio_of(job.elapsed_seconds, as_double(job.time_limit_seconds)));
  if (job.gpus.value_or(0) > 0)
    add_use(rows, "GPUs", Good::kUsed, count(job.gpus), "", job.gpu_ratio);
  return rows;
}

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
    const std::string severity = query::text_at(finding, {"severity"});
    Values values;
    values.set("severity", severity == "critical" || severity == "warning" ? severity : "info");
    values.set("text", query::text_at(finding, {"text"}, kMostFindingBytes));
    list.push_back(std::move(values));
  }
  return list;
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
  table.set("title", title);
  table.set("head", cells_of(from.head));
  table.set("rows", rows);
  tables.push_back(std::move(table));
}

// ---- facts

std::string nodes_text(std::vector<std::string> nodes) {
  const std::size_t all = nodes.size();
  nodes.resize(std::min(all, kMostNodes));
  const std::string more = all > kMostNodes ? " and " + std::to_string(all - kMostNodes) : "";
  return query::shown(nodes) + (more.empty() ? "" : more + " more");
}

List facts_of(const JobRow& job) {
  List facts;
  const auto add = [&](const char* what, const std::string& value) {
    if (value.empty()) return;
    Values fact;
    fact.set("what", what);
    fact.set("value", value);
    facts.push_back(std::move(fact));
  };
  const std::string owner = query::user_text(job);
  add("Owner", job.verified || owner.empty()
                   ? owner
                   : query::shown(job.user) + " (not confirmed by the scheduler)");
  if (job.group != job.user) add("Group", query::shown(job.group));
  add("Cluster", printable(job.cluster));
  add("Account", query::shown(job.account));
  add("Partition", query::shown(job.partition));
  add("QOS", query::shown(job.qos));
  add("Submitted", local_text(job.time) + " " + local_zone(job.time));
  add("Directory", query::shown(job.work_dir));
  add("Array", query::shown(job.array_task_spec));
  add("Nodes", nodes_text(job.nodes));
  add("Modules", query::shown(job.modules));
  add("Software", query::shown(job.software));
  add("Interpreter", query::shown(job.interpreter));
  add("Event", job.event_id);
  return facts;
}

// ---- texts

// Says what the picture of a text leaves out or hides.
List notes_on(const Shown& shown, const std::string& rest) {
  List notes;
  if (shown.left_out > 0) notes.push_back(text_value(format_bytes(shown.left_out) + rest));
  if (shown.foreign > 0) {
    notes.push_back(text_value(std::to_string(shown.foreign) +
                               (shown.foreign == 1 ? " character" : " characters") +
                               " outside ASCII: some look like others."));
  }
  if (shown.dos_lines) notes.push_back(text_value("Its lines end as under DOS, with CR LF."));
  return notes;
}

Values script_values(const JobRow& job, std::string_view script, const std::string& root) {
  Shown shown = shown_lines(script, "L", Kind::kScript);
  Values values;
  values.set("href", root + job_path(job, "script"));
  values.set("size", format_bytes(script.size()));
  values.set("notes", notes_on(shown, " more are in the download."));
  set_html(values, shown.html);
  return values;
}

// A part of an environment.
Values text_part(const JobRow& job, const std::string& title, const Shown& shown) {
  Values values;
  values.set("title", title);
  values.set("notes", notes_on(shown, " more: scriptorium show --environment " + job.id));
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
    {"Scheduler",
     [](std::string_view name, std::string_view) {
       return begins_with_any(name, {"SLURM", "SBATCH_", "PBS_", "OAR_", "SGE_", "JOB_"});
     }},
    {"Modules",
     [](std::string_view name, std::string_view) {
       return begins_with_any(name, {"LOADEDMODULES", "MODULE", "LMOD_", "_LMFILES_", "__LMOD",
                                     "_ModuleTable", "EBROOT", "EBVERSION", "EBDEVEL"});
     }},
    {"Paths",
     [](std::string_view name, std::string_view value) {
       return name.ends_with("PATH") || value.find(":/") != std::string_view::npos;
     }},
    {"Others", [](std::string_view, std::string_view) { return true; }},
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
        text_part(job, std::string(kGroups.at(i).title) + " (" + std::to_string(counts.at(i)) + ")",
                  shown_lines(bytes.at(i), "E" + std::to_string(i) + "-", Kind::kVariables)));
  }
  return groups;
}

// What is no list of variables is one text.
List environment_of(const JobRow& job, std::string_view environment) {
  if (environment.find('\0') != std::string_view::npos) return environment_groups(job, environment);
  return {text_part(job, "As it was captured", shown_lines(environment, "E"))};
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
  if (record.job.redacted)
    notes.push_back(text_value("Secrets were removed before this job was stored."));
  if (!record.job.complete)
    notes.push_back(text_value("The capture is not complete: a part of the job was missing."));
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

std::string job_path(const JobRow& job, const std::string& below) {
  const bool is_whole = job.time.nanoseconds % kSecond == 0;
  return "job/" + percent_encoded(job.cluster) + "/" + percent_encoded(job.id) +
         (below.empty() ? "" : "/" + below) + "?at=" +
         percent_encoded(format_rfc3339(
             job.time, is_whole ? TimePrecision::kSeconds : TimePrecision::kNanoseconds));
}

std::string compare_path(const JobRow& job, const JobRow* before) {
  std::string path = job_path(job, "compare");
  if (before != nullptr) {
    path += "&with=" + percent_encoded(before->id) +
            "&cluster=" + percent_encoded(before->cluster) +
            "&time=" + percent_encoded(format_rfc3339(before->time, TimePrecision::kNanoseconds));
  }
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
  List suggest;
  for (const Json& line : query::list_at(usage, {kUsage, "suggest", "directives"})) {
    if (line.is_string()) suggest.push_back(text_value(printable(line.get<std::string>())));
  }
  set_list(values, "suggest", suggest);
  set_list(values, "findings", findings_of(usage));
  List tables;
  add_table(tables, "Programs", query::program_table({.event = &usage, .nodes = {}}));
  add_table(tables, "Steps", query::step_table({.event = &usage, .nodes = {}}));
  values.set("tables", tables);
  std::vector<query::Task> tasks = query::tasks_of(record);
  set_list(values, "failed_tasks", task_rows(query::failed_of(tasks)));
  values.set("task_count", std::to_string(tasks.size()));
  std::sort(tasks.begin(), tasks.end(), [](const query::Task& one, const query::Task& other) {
    return std::pair(one.id.size(), one.id) < std::pair(other.id.size(), other.id);  // 9 before 10
  });
  tasks.resize(std::min(tasks.size(), kMostTasks));
  set_list(values, "tasks", task_rows(tasks));
  List lives;
  if (job.lives > 1) {
    for (const JobRow& life : query::lives_of(record)) {
      if (life.state) lives.push_back(run_values(life));
    }
  }
  set_list(values, "lives", lives);
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
    row.set("compare",
            root + (run.time < job.time ? compare_path(job, &run) : compare_path(run, &job)));
    runs.push_back(std::move(row));
  }
  if (runs.size() < 2) runs.clear();
  set_list(values, "family", runs);
  values.set("zone", local_zone(job.time));
  return values;
}

}  // namespace scriptorium::page
