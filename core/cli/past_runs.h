#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "core/cli/run_trend.h"
#include "core/query/stores.h"

namespace scriptorium::cli {

// Earlier runs of the job of a usage.job event: those of its family, where a store knows families.
// Elsewhere a person's jobs whose names differ in their numbers alone and whose scripts are nearly
// equal but for their directives; jobs without a script are left out.
//
// Reads the newest first, until kMostPastRuns of them completed, and for five seconds at most. What
// a store cannot answer is left out without a word: a report is complete without it.
std::vector<RunFigures> past_runs(const std::vector<query::Store>& stores,
                                  const nlohmann::ordered_json& usage_job);
inline constexpr std::size_t kMostPastRuns = 50;

}  // namespace scriptorium::cli
