#pragma once

#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/api/searchable.h"
#include "core/query/job_text.h"
#include "core/query/run_figures.h"
#include "core/query/usage_tables.h"

// The tasks of a job array as one report. Pure.
//
// A figure of a task is unusual if it lies beyond the quartiles of the tasks that did not fail by
// more than three times the distance between them, and differs from their median by a half and a
// minute (time), a half and 64 MiB (memory), or a tenth of all CPUs or GPUs. With fewer than
// kLeastForQuartiles tasks none is.
namespace scriptorium::query {

inline constexpr std::size_t kLeastForQuartiles = 5;

// One life of a task, as its usage.job event says it; "": not known. Texts are printable.
struct TaskLife {
  RunFigures run;
  std::string cluster, user, uid, array, task;  // whose it is; `task` is "" if it is of no array
  std::string name, owner;                      // as owner_text() has it
  std::string state, exit_code;
  std::string began, ended;
  std::optional<double> peak_bytes, limit_bytes;              // memory of all its nodes together
  bool is_whole = false;                                      // nothing of it went unmeasured
  std::vector<std::pair<std::string, std::string>> findings;  // id and severity, each id once
};
TaskLife task_life(const nlohmann::ordered_json& usage_job);
// Of the usage.job events of an array's tasks, in the order of the record; of a job: none.
std::vector<TaskLife> task_lives(const Searchable::Record& record);
std::vector<Task> tasks_of(const std::vector<TaskLife>& lives);
// Those that have a usage.job.
std::vector<TaskLife> task_lives(const std::vector<UsageEvents>& jobs);

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
bool is_array(const std::vector<TaskLife>& lives);
// `lives`: of an array, all of each task; where two of a task began at one time, the last life
// first.
ArrayReport array_report(std::vector<TaskLife> lives);
// Of one in `suggest`: "4711_17 (--mem=9G)".
std::string exception_text(const nlohmann::ordered_json& exception);

}  // namespace scriptorium::query
