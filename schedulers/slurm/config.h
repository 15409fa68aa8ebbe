#pragma once

#include <string>
#include <vector>

#include "core/api/options.h"

namespace scriptorium::slurm {

enum class Resolve {
  kSlurmctld,  // ask slurmctld, by squeue, who owns a job
  kNone,       // ask nobody: every event goes out with user.verified = false
};

// Options of [source.NAME] with plugin = "slurm".
struct SlurmConfig {
  std::string spool;  // slurmctld's StateSaveLocation
  Resolve resolve = Resolve::kSlurmctld;
  std::string slurm_conf;  // "" = where squeue looks by itself
  std::string squeue;      // "" = the first in the usual folders
};

std::vector<OptionInfo> describe();

// Reads and cross-checks the table; what is wrong goes to `problems`. Touches no file.
SlurmConfig read_config(const Table& table, Problems& problems);

}  // namespace scriptorium::slurm
