#include "core/query/job_fields.h"

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "core/base/text.h"
#include "core/base/time.h"

namespace scriptorium::query {
namespace {

using Json = nlohmann::ordered_json;

Json value_of(const std::string& text) { return text.empty() ? Json() : Json(text); }
Json value_of(bool value) { return value; }
Json value_of(Timestamp time) { return format_rfc3339(time, TimePrecision::kMilliseconds); }
Json value_of(double number) { return number; }
Json value_of(std::int64_t number) { return number; }
Json value_of(std::uint64_t number) { return number; }
Json value_of(const std::vector<std::string>& list) { return list.empty() ? Json() : Json(list); }
template <typename T>
Json value_of(const std::optional<T>& value) {
  return value ? value_of(*value) : Json();
}

struct Column {
  std::string_view name;
  Json (*value)(const JobRow&);
};
template <auto Member>
Json of(const JobRow& job) {
  return value_of(job.*Member);
}
Json family_of(const JobRow& job) {  // in digits: JavaScript cannot hold all 64 bits
  return job.family ? Json(std::to_string(*job.family)) : Json();
}

constexpr std::array kColumns{
    Column{"cluster", of<&JobRow::cluster>},
    Column{"scheduler", of<&JobRow::scheduler>},
    Column{"id", of<&JobRow::id>},
    Column{"submitted_at", of<&JobRow::time>},
    Column{"name", of<&JobRow::name>},
    Column{"user", of<&JobRow::user>},
    Column{"uid", of<&JobRow::uid>},
    Column{"group", of<&JobRow::group>},
    Column{"verified", of<&JobRow::verified>},
    Column{"account", of<&JobRow::account>},
    Column{"partition", of<&JobRow::partition>},
    Column{"qos", of<&JobRow::qos>},
    Column{"work_dir", of<&JobRow::work_dir>},
    Column{"interpreter", of<&JobRow::interpreter>},
    Column{"directives", of<&JobRow::directives>},
    Column{"modules", of<&JobRow::modules>},
    Column{"software", of<&JobRow::software>},
    Column{"script_sha256", of<&JobRow::script_sha256>},
    Column{"script_size", of<&JobRow::script_size>},
    Column{"environment_size", of<&JobRow::environment_size>},
    Column{"complete", of<&JobRow::complete>},
    Column{"redacted", of<&JobRow::redacted>},
    Column{"array_job_id", of<&JobRow::array_job_id>},
    Column{"array_task_spec", of<&JobRow::array_task_spec>},
    Column{"het_job_id", of<&JobRow::het_job_id>},
    Column{"family", family_of},
    Column{"state", of<&JobRow::state>},
    Column{"exit_code", of<&JobRow::exit_code>},
    Column{"exit_signal", of<&JobRow::exit_signal>},
    Column{"started_at", of<&JobRow::started_at>},
    Column{"ended_at", of<&JobRow::ended_at>},
    Column{"elapsed_seconds", of<&JobRow::elapsed_seconds>},
    Column{"time_limit_seconds", of<&JobRow::time_limit_seconds>},
    Column{"cpus", of<&JobRow::cpus>},
    Column{"cpu_seconds", of<&JobRow::cpu_seconds>},
    Column{"cpu_ratio", of<&JobRow::cpu_ratio>},
    Column{"memory_peak_bytes", of<&JobRow::memory_peak_bytes>},
    Column{"memory_limit_bytes", of<&JobRow::memory_limit_bytes>},
    Column{"gpus", of<&JobRow::gpus>},
    Column{"gpu_ratio", of<&JobRow::gpu_ratio>},
    Column{"nodes", of<&JobRow::nodes>},
    Column{"findings", of<&JobRow::findings>},
    Column{"lives", of<&JobRow::lives>},
    Column{"runs", of<&JobRow::runs>},
    Column{"failed_runs", of<&JobRow::failed_runs>},
    Column{"event_id", of<&JobRow::event_id>},
};

std::string cell_of(const Json& value, std::string_view between) {
  if (value.is_null()) return {};
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const Json& item : value)
    text += (text.empty() ? "" : std::string(between)) + item.get<std::string>();
  return text;
}

}  // namespace

Json job_json(const JobRow& job) {
  Json json = Json::object();
  for (const Column& column : kColumns) {
    Json value = column.value(job);
    if (!value.is_null()) json[std::string(column.name)] = std::move(value);
  }
  return json;
}

std::vector<std::string> job_columns() {
  std::vector<std::string> names;
  for (const Column& column : kColumns) names.emplace_back(column.name);
  return names;
}

std::vector<std::string> job_cells(const JobRow& job) {
  std::vector<std::string> cells;
  for (const Column& column : kColumns)
    cells.push_back(cell_of(column.value(job),
                            column.name == "directives" || column.name == "software" ? "; " : " "));
  return cells;
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& cell : cells) {
    if (&cell != &cells.front()) line += ',';
    std::string text = printable(cell, 4 * cell.size() + 16);
    // A spreadsheet takes such a cell for a formula, and a user may have written it.
    if (!text.empty() && std::string_view("=+-@").find(text.front()) != std::string_view::npos)
      text.insert(0, 1, '\'');
    if (text.find_first_of(",\"") == std::string::npos) {
      line += text;
      continue;
    }
    line += '"';
    for (const char c : text) line += c == '"' ? std::string("\"\"") : std::string(1, c);
    line += '"';
  }
  return line + "\r\n";
}

}  // namespace scriptorium::query
