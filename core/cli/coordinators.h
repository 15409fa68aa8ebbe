#pragma once

#include <map>
#include <set>
#include <stop_token>
#include <string>

#include "core/base/result.h"
#include "core/cli/user_summaries.h"

namespace scriptorium::cli {

// The accounts that each user coordinates, as the schedulers of the configuration have it.
using Coordinators = std::map<Person, std::set<std::string>>;

// Asks each spool source, for a minute at most. An error of the configuration or of a scheduler
// names it.
Result<Coordinators> find_coordinators(const std::string& config_file, const std::stop_token& stop);

}  // namespace scriptorium::cli
