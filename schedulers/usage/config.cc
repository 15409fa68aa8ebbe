#include "schedulers/usage/config.h"

#include <array>
#include <utility>

namespace scriptorium::usage {
namespace {

const Schema<UsageConfig>& schema() {
  static const Schema<UsageConfig> the_schema{
      option("sample_node", &UsageConfig::sample_node,
             "Whether the jobs of this machine are measured; true unless accounting is imported."),
      integer("interval_seconds", &UsageConfig::interval_seconds, 1, 3600,
              "Time between two readings of each job; there are more while it is young, and one at "
              "its end."),
      option("samples", &UsageConfig::samples,
             "Whether each reading becomes an event usage.sample of its own."),
      option("state_file", &UsageConfig::state_file,
             "Where it is kept what is known of running jobs, so that a restart of the daemon does "
             "not cut them in two; an "
             "absolute path. An instance that is not called usage has usage-NAME.state. \"\" = "
             "nowhere."),
      option("node", &UsageConfig::node,
             "This node's name where the path of a job does not tell it; without it the host's up "
             "to the first dot."),
      option("nodes", &UsageConfig::nodes,
             "Names of the nodes whose jobs are measured, where several slurmds run on this "
             "machine; [] = all."),
      option("process_io", &UsageConfig::process_io,
             "Whether /proc/PID/io is read where no control group counts what a job reads and "
             "writes."),
      integer("kept_files", &UsageConfig::kept_files, 0, 65536,
              "Counter files that stay open between readings; more make a reading cheaper, at "
              "about 5 KiB of kernel memory each. "
              "At most half of what the process may open."),
      option("gpus", &UsageConfig::gpus, "Whether GPUs are looked for."),
      option("nvml_library", &UsageConfig::nvml_library,
             "NVIDIA's management library, loaded if it is there; \"\" = do not look for NVIDIA's "
             "GPUs."),
      integer("gpu_interval_seconds", &UsageConfig::gpu_interval_seconds, 1, 60,
              "Time between two readings of each GPU that a job holds; one covers less than the "
              "last second."),
      option("gpu_jobs_dir", &UsageConfig::gpu_jobs_dir,
             "Where a prolog writes which job holds which GPU: a file for each, named by its index "
             "or its id, that begins with "
             "the job's id. \"\" = nowhere."),
      option("sluid_dir", &UsageConfig::sluid_dir,
             "Where a prolog writes which job a SLUID stands for (Slurm >= 26.05): a file for "
             "each, named by the SLUID, that "
             "holds the job's id. \"\" = nowhere."),
      option("root", &UsageConfig::root, "Where the control groups are mounted; an absolute path."),
      option("proc", &UsageConfig::proc, "Where procfs is mounted; an absolute path."),
      option("sys", &UsageConfig::sys, "Where sysfs is mounted, for AMD's GPUs; an absolute path."),
  };
  return the_schema;
}

}  // namespace

std::vector<OptionInfo> describe() {
  std::vector<OptionInfo> options = schema().options();
  for (OptionInfo& option : describe_job()) options.push_back(std::move(option));
  return options;
}

UsageConfig read_config(const Table& table, Problems& problems) {
  UsageConfig config = schema().parse(table, problems);
  config.jobs = read_job_config(table, problems);
  struct Path {
    const char* key;
    std::string UsageConfig::* member;
    bool may_be_empty;
  };
  constexpr std::array kPaths = {
      Path{"root", &UsageConfig::root, false},
      Path{"proc", &UsageConfig::proc, false},
      Path{"sys", &UsageConfig::sys, false},
      Path{"state_file", &UsageConfig::state_file, true},
      Path{"gpu_jobs_dir", &UsageConfig::gpu_jobs_dir, true},
      Path{"sluid_dir", &UsageConfig::sluid_dir, true},
  };
  for (const Path& path : kPaths) {
    const Value* value = table.find(path.key);
    // A value of another type was reported already.
    if (value == nullptr || !std::holds_alternative<std::string>(value->data)) continue;
    std::string& given = config.*path.member;
    if (given.empty() && path.may_be_empty) continue;
    if (given.empty() || given.front() != '/') {
      problems.add(table, path.key, "not an absolute path", "a path that begins with '/'");
    } else if (given.find('\0') != std::string::npos) {
      problems.add(table, path.key, "a path cannot hold a NUL byte");
    }
    while (given.size() > 1 && given.back() == '/') given.pop_back();
  }
  // Two instances of a daemon must not write the same file.
  const std::string name = table.path.substr(table.path.rfind('.') + 1);
  if (table.find("state_file") == nullptr && name != "usage" && !name.empty()) {
    config.state_file = "/var/lib/scriptorium/usage-" + name + ".state";
  }
  if (config.nvml_library.find('\0') != std::string::npos) {
    problems.add(table, "nvml_library", "a file's name cannot hold a NUL byte");
  }
  if (!config.samples_node() && config.jobs.accounting == Accounting::kNone) {
    problems.add(table, "sample_node", "neither measures jobs nor imports accounting",
                 "true, or accounting = \"sacct\"");
  }
  return config;
}

}  // namespace scriptorium::usage
