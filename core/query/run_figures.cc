#include "core/query/run_figures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <utility>

#include "core/base/text.h"
#include "core/query/unchecked_json.h"
#include "core/query/usage_tables.h"

namespace scriptorium::query {
namespace {

using Json = nlohmann::ordered_json;

// More CPUs busy on average than a serial program can have (cpu_serial).
constexpr double kParallel = 1.05;

// "#SBATCH" of the lines that were suggested; "" if none were.
std::string directive_word(const Json& suggest) {
  const Json& lines = list_at(suggest, {"directives"});
  if (lines.empty() || !lines.front().is_string()) return {};
  const auto line = lines.front().get<std::string>();
  return line.substr(0, line.find(' '));
}

template <typename Number>
std::optional<Number> whole_number(const Json& suggest, const char* key) {
  const auto number = measured_at(suggest, {key});
  if (!number || *number > static_cast<double>(std::numeric_limits<Number>::max()))
    return std::nullopt;
  return static_cast<Number>(*number);
}

// What the event of one run suggests.
JobRequest suggested_by(const Json& suggest) {
  return {.cpus = whole_number<std::uint32_t>(suggest, "cpus"),
          .memory_bytes = whole_number<std::uint64_t>(suggest, "memory_bytes"),
          .time_limit_seconds = measured_at(suggest, {"time_limit_seconds"}),
          .gpus = whole_number<std::uint32_t>(suggest, "gpus")};
}

// Before usage.job had it, the nodes' own figures; of one node the job's.
std::optional<double> peak_of_node(const Json& usage) {
  if (const auto peak = measured_at(usage, {"memory", "peak_node_bytes"})) return peak;
  std::optional<double> most;
  for (const Json& node : list_at(usage, {"nodes"})) {
    if (const auto peak = measured_at(node, {"memory", "peak_working_set_bytes"}))
      most = std::max(most.value_or(0), *peak);
  }
  if (!most && number_at(usage, {"request", "nodes"}).value_or(1) <= 1)
    return measured_at(usage, {"memory", "peak_bytes"});
  return most;
}

}  // namespace

std::string shown_job_id(const Json& usage_job) {
  const std::string task = text_at(usage_job, {"job", "array", "task_id"});
  return task.empty() ? text_at(usage_job, {"job", "id"})
                      : text_at(usage_job, {"job", "array", "job_id"}) + "_" + task;
}

RunFigures run_figures(const Json& usage_job) {
  const Json& usage = value_at(usage_job, {kUsage});
  const std::string state = text_at(usage_job, {"job", "state"});
  const std::string exit = text_at(usage_job, {"job", "exit_code"});
  const std::string quality = text_at(usage, {"quality", "status"});
  const Json& suggest = value_at(usage, {"suggest"});
  return {.event_id = text_at(usage_job, {"id"}),
          .job = shown_job_id(usage_job),
          .started_at = parse_rfc3339(text_at(usage, {"started_at"})),
          .completed = state == "COMPLETED" && (exit.empty() || exit == "0:0"),
          .judged = quality == "ok" || quality == "accounting",
          .elapsed_seconds = measured_at(usage, {"elapsed_seconds"}),
          .nodes = measured_at(usage, {"request", "nodes"}),
          .cpus = measured_at(usage, {"cpu", "allocated"}),
          .gpus = measured_at(usage, {"gpu", "count"}),
          .cpu_ratio = measured_at(usage, {"cpu", "efficiency_ratio"}),
          .gpu_ratio = measured_at(usage, {"gpu", "utilization_ratio"}),
          .peak_node_bytes = peak_of_node(usage),
          .time_limit_seconds = measured_at(usage, {"request", "time_limit_seconds"}),
          .suggested = suggested_by(suggest),
          .condition = text_at(suggest, {"condition"}),
          .directive_word = directive_word(suggest)};
}

bool RunFigures::used_several_cpus() const noexcept {
  return cpu_ratio.value_or(0) * cpus.value_or(0) > kParallel;
}

std::optional<double> value_of(const RunFigures& run, Figure figure) {
  switch (figure) {
    case Figure::kTime: return run.elapsed_seconds;
    case Figure::kMemory: return run.peak_node_bytes;
    case Figure::kCpu: return run.cpu_ratio;
    case Figure::kGpu: return run.gpu_ratio;
  }
  return std::nullopt;
}

std::string figure_text(Figure figure, double value) {
  switch (figure) {
    case Figure::kTime: return format_seconds(value);
    case Figure::kMemory: return format_bytes(static_cast<std::uint64_t>(value));
    case Figure::kCpu:
    case Figure::kGpu: return std::to_string(std::lround(value * 100)) + " %";
  }
  return {};
}

const char* figure_title(Figure figure) {
  constexpr std::array kTitles{"time", "memory", "CPU", "GPU"};
  return kTitles.at(static_cast<std::size_t>(figure));
}

const char* figure_name(Figure figure) {
  constexpr std::array kNames{"elapsed_seconds", "peak_node_bytes", "cpu_efficiency_ratio",
                              "gpu_utilization_ratio"};
  return kNames.at(static_cast<std::size_t>(figure));
}

double quantile_of(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const double next = values[std::min(below + 1, values.size() - 1)];
  return std::lerp(values[below], next, place - static_cast<double>(below));
}

Json suggestion_json(const JobRequest& request, const std::string& word,
                     const std::optional<double>& nodes, const std::string& condition) {
  if (request.empty()) return nullptr;
  Json json = Json::object();
  if (request.cpus) json["cpus"] = *request.cpus;
  if (request.memory_bytes) json["memory_bytes"] = *request.memory_bytes;
  if (request.time_limit_seconds) json["time_limit_seconds"] = *request.time_limit_seconds;
  if (request.gpus) json["gpus"] = *request.gpus;
  json["directives"] =
      request_lines(word, request, static_cast<std::uint32_t>(std::min(nodes.value_or(1), 1e6)));
  if (!condition.empty()) json["condition"] = condition;
  return json;
}

}  // namespace scriptorium::query
