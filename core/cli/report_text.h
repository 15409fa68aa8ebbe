#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/base/time.h"
#include "core/cli/console.h"

namespace scriptorium::cli {

// One life of a job, as the archive has it. The events are as they were read: other versions, and
// hands, may have written them.
struct JobReport {
  nlohmann::ordered_json const* event =
      nullptr;  // usage.job; null if there is only what nodes said
  std::vector<nlohmann::ordered_json const*> nodes;  // usage.node
};

// A line of the table.
struct JobRow {
  std::string id, user, name, state, ended;
  std::optional<double> elapsed_seconds, cpus, cpu_ratio, memory_ratio, gpu_ratio;
  double wasted_core_hours = 0, wasted_gpu_hours = 0, wasted_gib_hours = 0;
  std::string quality;
  std::vector<std::string> findings;  // ids

  // A GPU is dear: an hour of one that does nothing counts as ten of a core.
  double waste() const noexcept { return wasted_core_hours + 10 * wasted_gpu_hours; }
};
JobRow row_of(const nlohmann::ordered_json& usage_job);
void sort_by_waste(std::vector<JobRow>& rows);

// A screen for the job's owner.
std::string screen_of(const JobReport& job, const Console& console);
// Sorted by waste; at most `limit` rows (0: all), and what they come to.
std::string table_of(std::vector<JobRow> rows, std::size_t limit, const Console& console);
nlohmann::ordered_json json_of(const JobRow& row);

// The summary as jobstats keeps it: "JS1:" and base64 of a gzip of its JSON; "JS1:Short" or
// "JS1:None" without figures.
std::string js1_of(const JobReport& job);

}  // namespace scriptorium::cli
