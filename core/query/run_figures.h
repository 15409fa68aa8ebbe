#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/api/kit/job_request.h"
#include "core/base/time.h"

// What runs of jobs used, as figures that can be compared. Pure.
namespace scriptorium::query {

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

}  // namespace scriptorium::query
