#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/api/kit/job_request.h"
#include "core/base/time.h"

// A run of a job held against the earlier runs of its family. Pure.
namespace scriptorium::cli {

// What a usage.job event says of one run; absent: not measured. The event is unchecked.
struct RunFigures {
  std::string event_id;
  std::string job;  // "4711", "4711_3": as commands take it
  std::optional<Timestamp> started_at;
  bool completed = false;  // by itself, with exit code 0
  bool judged = false;     // enough of it was measured, and it was not too short
  std::optional<double> elapsed_seconds;
  std::optional<double> nodes, cpus, gpus;  // allocated
  std::optional<double> cpu_ratio, gpu_ratio;
  std::optional<double> peak_node_bytes;  // memory on the node with most
  std::optional<double> time_limit_seconds;
  JobRequest suggested;        // for next time, by the event
  std::string condition;       // of that
  std::string directive_word;  // "#SBATCH": of that

  // Nothing was left to run, and what was measured is the whole of it.
  bool came_to_its_end() const noexcept { return completed && judged; }
  bool used_several_cpus() const noexcept;
};
// The id that a person types: "4711", of a task of an array "4711_3".
std::string shown_job_id(const nlohmann::ordered_json& usage_job);
RunFigures run_figures(const nlohmann::ordered_json& usage_job);

// Seconds, bytes of the fullest node, shares of the CPUs and of the GPUs.
enum class Figure { kTime, kMemory, kCpu, kGpu };
std::optional<double> value_of(const RunFigures& run, Figure figure);
// "18 min 20 s", "1.2 GiB", "90 %".
std::string figure_text(Figure figure, double value);
const char* figure_title(Figure figure);  // "time"
const char* figure_name(Figure figure);   // "elapsed_seconds": in JSON

// The value below which that share of the values is, interpolated: 0.5 is the median. `values`: at
// least one.
double quantile_of(std::vector<double> values, double share);

// As `usage.suggest` has it; null if nothing is requested. `word`: "#SBATCH".
nlohmann::ordered_json suggestion_json(const JobRequest& request, const std::string& word,
                                       const std::optional<double>& nodes,
                                       const std::string& condition);

// One figure of this run beside those of the runs that it is compared with.
struct FigureTrend {
  enum class Course { kSteady, kRising, kFalling };
  Figure figure = Figure::kTime;
  double now = 0;
  double median = 0, least = 0, most = 0;  // of the earlier runs
  Course course = Course::kSteady;         // from the oldest of them to this run
};

struct RunTrend {
  // The earlier runs that completed and had as many nodes, CPUs and GPUs: at most kMostCompared,
  // the newest ones; fewer than kLeastCompared are not compared.
  std::size_t compared = 0;
  std::vector<FigureTrend> figures;
  // As `usage.findings` has them: slower_than_before, memory_grew, cpu_fell.
  nlohmann::ordered_json findings;
  // In place of the event's own `usage.suggest`, from what the most demanding of so many runs
  // needed; null: nothing is suggested. 0: no run but this one came to its end, so what the event
  // says remains.
  std::size_t runs = 0;
  nlohmann::ordered_json suggest;
};

inline constexpr std::size_t kLeastCompared = 3;
inline constexpr std::size_t kMostCompared = 10;

// The median of the runs that completed and were measured well enough; nothing if none was.
std::optional<double> typical(const std::vector<RunFigures>& runs, Figure figure);

// `runs`: in any order; this run may be among them. The suggestion is never less than any of them
// needed, however they ended.
RunTrend run_trend(const nlohmann::ordered_json& usage_job, std::vector<RunFigures> runs);

// For --json.
nlohmann::ordered_json trend_json(const RunTrend& trend);

}  // namespace scriptorium::cli
