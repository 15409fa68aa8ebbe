#pragma once

#include <string>
#include <vector>

#include "core/cli/console.h"
#include "core/cli/run_trend.h"

// How a report shows a run beside the earlier ones of its family. Pure.
namespace scriptorium::cli {

// A table; "" if there is nothing to compare with.
std::string trend_text(const RunTrend& trend, const Console& console);
// What is typical of these runs, "1.2 GiB +" if it rises and "-" if it falls; "-" if not known.
std::string typical_text(const std::vector<RunFigures>& runs, Figure figure, const RunTrend& trend);
// The block usage with the trend's findings behind its own, and with its suggestion.
nlohmann::ordered_json with_trend(nlohmann::ordered_json usage, const RunTrend& trend);

}  // namespace scriptorium::cli
