#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/time.h"
#include "core/cli/console.h"
#include "core/cli/report_text.h"
#include "core/cli/run_trend.h"

namespace scriptorium::cli {

// The runs of many jobs, a row for each family: the jobs that a person would call the same. Pure.
// Where no store knows families, the jobs of one user whose names differ in their numbers alone.
// Memory: the figures of each run, and an event for each family.
class FamilyReport {
 public:
  void add(const nlohmann::ordered_json& usage_job, std::optional<std::uint64_t> family);

  // The most wasteful first, at most `limit` (0: all).
  std::string text(std::size_t limit, const Console& console) const;
  nlohmann::ordered_json json() const;

 private:
  struct Family {
    ReportedJob last;  // its newest run
    std::optional<Timestamp> last_start;
    nlohmann::ordered_json event;  // of that
    std::vector<RunFigures> runs;
    double wasted_core_hours = 0, wasted_gpu_hours = 0, waste = 0;
    FindingCounts findings;
    bool by_name = false;

    std::size_t completed() const;
  };
  std::vector<const Family*> by_waste() const;

  std::map<std::string, Family> families_;
};

}  // namespace scriptorium::cli
