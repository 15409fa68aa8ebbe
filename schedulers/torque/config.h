#pragma once

#include <string>
#include <vector>

#include "core/api/options.h"

namespace scriptorium::torque {

// Options of [source.NAME] with plugin = "torque".
struct TorqueConfig {
  std::string spool;  // the server's home, its server_priv, or that one's jobs
};

std::vector<OptionInfo> describe();

// Reads and cross-checks the table; what is wrong goes to `problems`. Touches no file.
TorqueConfig read_config(const Table& table, Problems& problems);

// Where the configured folder has its jobs, and the server's home: decided by its last name alone.
std::string jobs_folder(const std::string& spool);
std::string home_folder(const std::string& spool);

}  // namespace scriptorium::torque
