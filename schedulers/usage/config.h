#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/api/options.h"
#include "schedulers/usage/job_config.h"

namespace scriptorium::usage {

// What [source.NAME] with plugin = "usage" says.
struct UsageConfig {
  std::optional<bool> sample_node;  // absent: unless it imports accounting
  std::string root = "/sys/fs/cgroup";
  std::string proc = "/proc";
  std::string sys = "/sys";
  std::string node;  // "" = the host's name up to the first dot
  std::vector<std::string> nodes;
  std::int64_t interval_seconds = 30;
  bool samples = false;
  bool process_io = true;
  bool executables = false;
  std::int64_t kept_files = 2048;
  std::string state_file = "/var/lib/scriptorium/usage.state";
  bool gpus = true;
  std::string nvml_library = "libnvidia-ml.so.1";
  std::int64_t gpu_interval_seconds = 2;
  std::string gpu_jobs_dir = "/run/gpustat";
  std::string sluid_dir = "/run/scriptorium/sluid";
  JobConfig jobs;

  bool samples_node() const noexcept {
    return sample_node.value_or(jobs.accounting == Accounting::kNone);
  }
};

std::vector<OptionInfo> describe();

// What is wrong goes to `problems`. Touches no file.
UsageConfig read_config(const Table& table, Problems& problems);

}  // namespace scriptorium::usage
