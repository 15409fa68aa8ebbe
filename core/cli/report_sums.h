#pragma once

#include <cstddef>
#include <string>

#include "core/cli/console.h"
#include "core/query/run_sums.h"

namespace scriptorium::cli {

// The rows as a table, at most `limit` (0: all), then the total and what the figures mean.
std::string sums_text(const query::RunSums& sums, std::size_t limit, const Console& console);

}  // namespace scriptorium::cli
