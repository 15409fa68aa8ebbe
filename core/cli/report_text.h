#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/base/time.h"
#include "core/cli/console.h"
#include "core/cli/run_trend.h"

namespace scriptorium::cli {

// One run of a job, from the archive. The events are unchecked: other versions or programs may have
// written them.
struct JobReport {
  nlohmann::ordered_json const* event =
      nullptr;  // usage.job; null if there are only events of nodes
  std::vector<nlohmann::ordered_json const*> nodes;  // usage.node
};

// GPUs are expensive: an idle GPU hour counts as ten core hours.
inline constexpr double kCoreHoursOfGpuHour = 10;

// A row of the table.
struct ReportedJob {
  std::string id, user, name, state, ended;
  std::optional<double> elapsed_seconds, cpus, cpu_ratio, memory_ratio, gpu_ratio;
  double wasted_core_hours = 0, wasted_gpu_hours = 0, wasted_gib_hours = 0;
  std::string quality;
  std::vector<std::string> findings;  // ids

  double waste() const noexcept {
    return wasted_core_hours + kCoreHoursOfGpuHour * wasted_gpu_hours;
  }
};
ReportedJob row_of(const nlohmann::ordered_json& usage_job);
void sort_by_waste(std::vector<ReportedJob>& rows);

// The report of one job, for its owner, beside the earlier runs of its family where they were read.
std::string screen_of(const JobReport& job, const std::optional<RunTrend>& trend,
                      const Console& console);
// A table sorted by waste with at most `limit` rows (0: all), and the totals.
std::string table_of(std::vector<ReportedJob> rows, std::size_t limit, const Console& console);
nlohmann::ordered_json json_of(const ReportedJob& row);

// The summary in jobstats' format: "JS1:" and base64 of gzipped JSON; "JS1:Short" or "JS1:None"
// without figures.
std::string js1_of(const JobReport& job);

}  // namespace scriptorium::cli
