#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/query/run_figures.h"

// A run of a job held against the earlier runs of its family. Pure.
namespace scriptorium::cli {

using query::Figure;
using query::figure_name;
using query::figure_text;
using query::figure_title;
using query::quantile_of;
using query::run_figures;
using query::RunFigures;
using query::shown_job_id;
using query::suggestion_json;
using query::value_of;

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
