#include "core/cli/run_trend.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/api/kit/job_request.h"
#include "core/cli/console.h"
#include "core/query/sum.h"

namespace scriptorium::cli {
namespace {

using Json = nlohmann::ordered_json;
using Course = FigureTrend::Course;

// When a run differs from the median of those before it, and from each of them.
constexpr double kSlower = 2.0;
constexpr double kMoreMemory = 1.5;
constexpr double kLessCpu = 2.0 / 3;
constexpr double kLeastCpuLost = 0.1;

// A course is told where most pairs of runs are in the same order (Kendall's tau) and the whole
// difference is worth a word.
constexpr double kOrdered = 0.6;
constexpr double kLeastChange = 0.1;
constexpr std::size_t kLeastForCourse = 5;

// `values`: the oldest first.
Course course_of(const std::vector<double>& values) {
  const std::size_t count = values.size();
  if (count < kLeastForCourse) return Course::kSteady;
  double order = 0;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = i + 1; j < count; ++j)
      order += values[j] > values[i] ? 1 : values[j] < values[i] ? -1 : 0;
  }
  order /= static_cast<double>(count * (count - 1)) / 2;
  const double change = std::abs(values.back() - values.front());
  if (std::abs(order) < kOrdered || change < kLeastChange * std::abs(values.front()))
    return Course::kSteady;
  return order > 0 ? Course::kRising : Course::kFalling;
}

// `earlier`: the newest first.
std::optional<FigureTrend> figure_trend(Figure figure, const RunFigures& now,
                                        const std::vector<const RunFigures*>& earlier) {
  const auto current = value_of(now, figure);
  std::vector<double> values;
  for (const RunFigures* run : earlier) {
    if (const auto value = value_of(*run, figure)) values.push_back(*value);
  }
  if (!current || values.size() < kLeastCompared) return std::nullopt;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  FigureTrend trend{.figure = figure,
                    .now = *current,
                    .median = quantile_of(values, 0.5),
                    .least = *least,
                    .most = *most};
  std::reverse(values.begin(), values.end());
  values.push_back(*current);
  trend.course = course_of(values);
  return trend;
}

bool like(const RunFigures& a, const RunFigures& b) {
  return a.nodes == b.nodes && a.cpus == b.cpus && a.gpus == b.gpus;
}

// ---- words

Json finding(const char* id, const char* severity, double value, double threshold,
             std::string text) {
  return {{"id", id},
          {"severity", severity},
          {"value", value},
          {"unit", "ratio"},
          {"threshold", threshold},
          {"scope", "job"},
          {"text", std::move(text)}};
}

// `diff`: the command that shows what changed.
std::optional<Json> finding_of(const FigureTrend& trend, std::size_t runs,
                               const std::string& diff) {
  if (trend.median <= 0) return std::nullopt;
  const double factor = trend.now / trend.median;
  const std::string before = " its last " + std::to_string(runs) + " runs";
  const std::string median = figure_text(trend.figure, trend.median);
  const std::string most = figure_text(trend.figure, trend.most);
  switch (trend.figure) {
    case Figure::kTime:
      if (factor < kSlower || trend.now <= trend.most) return std::nullopt;
      return finding("slower_than_before", "warning", factor, kSlower,
                     "It ran for " + query::format_tenths(factor) + " times as long as" + before +
                         " (" + median + ", at most " + most +
                         "). If that was not to be expected, see what changed: " + diff);
    case Figure::kMemory:
      if (factor < kMoreMemory || trend.now <= trend.most) return std::nullopt;
      return finding("memory_grew", "notice", factor, kMoreMemory,
                     "It needed " + query::format_tenths(factor) + " times the memory of" + before +
                         " (" + median + ", at most " + most +
                         "). If that grows with each run, the job will be killed for it one day.");
    case Figure::kCpu:
      if (factor > kLessCpu || trend.now >= trend.least || trend.median - trend.now < kLeastCpuLost)
        return std::nullopt;
      return finding("cpu_fell", "notice", factor, kLessCpu,
                     "It used " + figure_text(trend.figure, trend.now) + " of its CPUs;" + before +
                         " used " + median + ", at least " +
                         figure_text(trend.figure, trend.least) +
                         ". If that was not to be expected, see what changed: " + diff);
    case Figure::kGpu: break;
  }
  return std::nullopt;
}

// ---- what to ask for next time

// The most that any run had of it.
template <typename Value>
double most_of(const RunFigures& now, const std::vector<RunFigures>& earlier, Value value) {
  double most = value(now).value_or(0);
  for (const RunFigures& run : earlier) most = std::max(most, value(run).value_or(0));
  return most;
}

void add_memory(const RunFigures& now, const std::vector<RunFigures>& earlier,
                JobRequest& request) {
  const double peak =
      most_of(now, earlier, [](const RunFigures& run) { return run.peak_node_bytes; });
  if (peak <= 0) return;
  request.memory_bytes = std::max(request.memory_bytes.value_or(0), memory_to_ask_for(peak));
}

// Only where this run had far too much time; but not less than the longest run needed.
void raise_time(const RunFigures& now, const std::vector<RunFigures>& earlier,
                const std::optional<double>& asked, JobRequest& request) {
  if (!request.time_limit_seconds) return;
  const double longest =
      most_of(now, earlier, [](const RunFigures& run) { return run.elapsed_seconds; });
  request.time_limit_seconds = std::max(*request.time_limit_seconds, time_to_ask_for(longest));
  if (asked && *request.time_limit_seconds >= *asked) request.time_limit_seconds.reset();
}

Json suggestion_of(const RunFigures& now, const std::vector<RunFigures>& earlier) {
  JobRequest request = now.suggested;
  add_memory(now, earlier, request);
  raise_time(now, earlier, now.time_limit_seconds, request);
  if (std::any_of(earlier.begin(), earlier.end(),
                  [](const RunFigures& run) { return run.used_several_cpus(); }))
    request.cpus.reset();
  std::string word = now.directive_word;
  for (const RunFigures& run : earlier) {
    if (word.empty()) word = run.directive_word;
  }
  return suggestion_json(request, word, now.nodes, now.condition);
}

const char* name_of(Course course) {
  constexpr std::array kNames{"steady", "rising", "falling"};
  return kNames.at(static_cast<std::size_t>(course));
}

}  // namespace

std::optional<double> typical(const std::vector<RunFigures>& runs, Figure figure) {
  std::vector<double> values;
  for (const RunFigures& run : runs) {
    const auto value = value_of(run, figure);
    if (run.came_to_its_end() && value) values.push_back(*value);
  }
  return values.empty() ? std::nullopt : std::optional(quantile_of(std::move(values), 0.5));
}

RunTrend run_trend(const Json& usage_job, std::vector<RunFigures> runs) {
  const RunFigures now = run_figures(usage_job);
  std::erase_if(runs, [&](const RunFigures& run) { return run.event_id == now.event_id; });
  std::stable_sort(runs.begin(), runs.end(), [](const RunFigures& a, const RunFigures& b) {
    return a.started_at > b.started_at;  // the newest first
  });
  RunTrend trend;
  trend.findings = Json::array();
  std::vector<const RunFigures*> compared;
  for (const RunFigures& run : runs) {
    if (run.came_to_its_end() && like(run, now) && compared.size() < kMostCompared)
      compared.push_back(&run);
  }
  if (now.judged && compared.size() >= kLeastCompared) {
    trend.compared = compared.size();
    const std::string diff = "scriptorium diff " + compared.front()->job + " " + now.job;
    for (const Figure figure : {Figure::kTime, Figure::kMemory, Figure::kCpu}) {
      auto one = figure_trend(figure, now, compared);
      if (!one) continue;
      if (auto found = finding_of(*one, compared.size(), diff))
        trend.findings.push_back(*std::move(found));
      trend.figures.push_back(*one);
    }
  }
  if (std::any_of(runs.begin(), runs.end(),
                  [](const RunFigures& run) { return run.came_to_its_end(); })) {
    trend.suggest = suggestion_of(now, runs);
    trend.runs = runs.size() + 1;
  }
  return trend;
}

Json trend_json(const RunTrend& trend) {
  Json figures = Json::array();
  for (const FigureTrend& one : trend.figures)
    figures.push_back({{"figure", figure_name(one.figure)},
                       {"value", one.now},
                       {"median", one.median},
                       {"least", one.least},
                       {"most", one.most},
                       {"course", name_of(one.course)}});
  Json json{{"compared_runs", trend.compared}, {"figures", std::move(figures)}};
  json["findings"] = trend.findings;
  if (!trend.suggest.is_null()) {
    json["suggest"] = trend.suggest;
    json["suggest"]["runs"] = trend.runs;
  }
  return json;
}

}  // namespace scriptorium::cli
