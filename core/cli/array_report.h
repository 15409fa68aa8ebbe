#pragma once

#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/cli/console.h"
#include "core/cli/report_text.h"
#include "core/cli/run_trend.h"

// The tasks of a job array as one report. Pure.
//
// A figure of a task is unusual if it lies beyond the quartiles of the tasks that did not fail by
// more than three times the distance between them, and differs from their median by a half and a
// minute (time), a half and 64 MiB (memory), or a tenth of all CPUs or GPUs. With fewer than
// kLeastForQuartiles tasks none is.
namespace scriptorium::cli {

inline constexpr std::size_t kLeastForQuartiles = 5;

struct ArrayReport {
  static constexpr std::size_t kBins = 10;

  struct Spread {
    Figure figure = Figure::kTime;
    std::size_t tasks = 0;  // that have the figure
    double least = 0, median = 0, most = 0;
    std::array<std::size_t, kBins> bins{};  // tasks in each tenth from least to most
  };
  struct Outlier {
    std::string task;
    std::vector<std::string> reasons;
  };
  struct SharedFinding {
    std::string id, severity;
    std::size_t tasks = 0;
    std::string example;  // one of them
  };

  std::string id, name, owner;
  std::string began, ended;                                 // the first start and the last end
  std::size_t tasks = 0;                                    // each as it ran last
  std::size_t ran_again = 0;                                // tasks that ran more than once
  std::size_t other_jobs = 0;                               // of other people, with the same number
  std::vector<std::pair<std::string, std::size_t>> states;  // most frequent first
  std::vector<Spread> spreads;
  std::vector<Outlier> outliers;        // the rarest reasons first
  std::vector<SharedFinding> findings;  // most frequent first
  // As `usage.suggest` has it, or null. Enough for all tasks, however they ended, but those in
  // `exceptions`: at most ten, and at most a tenth of all. `tasks`: on how many it is based;
  // `not_measured`: of how many the need is not known.
  nlohmann::ordered_json suggest;
};

// Whether these are tasks of an array, and not lives of one job.
bool is_array(const std::vector<JobReport>& jobs);
// `jobs`: of an array, each life of each task, the last life first.
ArrayReport array_report(const std::vector<JobReport>& jobs);

// One screen, however many tasks there are.
std::string array_text(const ArrayReport& report, const Console& console);
nlohmann::ordered_json array_json(const ArrayReport& report);

}  // namespace scriptorium::cli
