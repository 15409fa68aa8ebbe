#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/base/time.h"
#include "core/cli/console.h"
#include "core/cli/run_trend.h"
#include "core/query/run_sums.h"
#include "core/query/usage_tables.h"

namespace scriptorium::cli {

// One run of a job, from the archive.
using JobReport = query::UsageEvents;
using query::frequent_text;
using query::most_frequent;
using query::owner_text;
using query::time_column;
using query::time_text;
using query::TimeColumn;

// A row of the table.
struct ReportedJob {
  std::string id, user, name, state;
  std::string ended;  // RFC 3339
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

// Parts of a screen.
std::string fact_line(const char* key, const std::string& value);  // "" without a value
// Lines of at most 96 columns, all but the first with so many blanks in front.
std::string wrapped(const std::string& words, std::size_t indent);
std::string coloured(const std::string& words, const std::string& severity, const Console& console);
// The lines of a block `suggest`, by the most that `by` needed; "" if it has none.
std::string suggestion_text(const nlohmann::ordered_json& suggest, const std::string& by,
                            const Console& console);
// The summary in jobstats' format: "JS1:" and base64 of gzipped JSON; "JS1:Short" or "JS1:None"
// without figures.
std::string js1_of(const JobReport& job);

}  // namespace scriptorium::cli
