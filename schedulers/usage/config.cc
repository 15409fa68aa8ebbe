#include "schedulers/usage/config.h"

#include <utility>

#include "core/api/kit/path_option.h"

namespace scriptorium::usage {
namespace {

const Schema<UsageConfig>& schema() {
  static const Schema<UsageConfig> the_schema{
      option("sample_node", &UsageConfig::sample_node,
             "Whether the jobs of this machine are measured; true unless accounting is imported."),
      integer("interval_seconds", &UsageConfig::interval_seconds, 1, 3600,
              "Time between two readings of each job; a young job is read more often, and each job "
              "once more at its end."),
      option("samples", &UsageConfig::samples,
             "Whether each reading also becomes an event of its own, usage.sample."),
      option("state_file", &UsageConfig::state_file,
             "File that keeps what is known of running jobs, so that a restart of the daemon does "
             "not cut them in two; an absolute path. An instance that is not called usage has "
             "usage-NAME.state. \"\" = none."),
      option("node", &UsageConfig::node,
             "This node's name if the path of a job does not contain it; absent: the host's name "
             "up to the first dot."),
      option("nodes", &UsageConfig::nodes,
             "Names of the nodes whose jobs are measured, if several slurmds run on this machine; "
             "[] = all."),
      option(
          "process_io", &UsageConfig::process_io,
          "Whether /proc/PID/io is read if no control group counts what a job reads and writes."),
      option("executables", &UsageConfig::executables,
             "Whether the file that each program was started from is reported: its path and build "
             "id. Needs the drop-in usage-programs.conf."),
      integer("kept_files", &UsageConfig::kept_files, 0, 65536,
              "Counter files that stay open between readings. More make a reading cheaper, at "
              "about 5 KiB of kernel memory each. At most half of what the process may open."),
      option("gpus", &UsageConfig::gpus, "Whether GPUs are measured."),
      option("nvml_library", &UsageConfig::nvml_library,
             "NVIDIA's management library, loaded if it exists; \"\" = NVIDIA's GPUs are not "
             "measured."),
      integer("gpu_interval_seconds", &UsageConfig::gpu_interval_seconds, 1, 60,
              "Time between two readings of each GPU that a job holds; one reading covers less "
              "than the last second."),
      option("gpu_jobs_dir", &UsageConfig::gpu_jobs_dir,
             "Directory in which a prolog writes which job holds which GPU: one file per GPU, "
             "named by its index or id, that begins with the job's id. \"\" = none."),
      option("sluid_dir", &UsageConfig::sluid_dir,
             "Directory in which a prolog writes which job a SLUID means (Slurm >= 26.05): one "
             "file per job, named by the SLUID, that contains the job's id. \"\" = none."),
      option("root", &UsageConfig::root,
             "Directory where the control groups are mounted; an absolute path."),
      option("proc", &UsageConfig::proc, "Directory where procfs is mounted; an absolute path."),
      option("sys", &UsageConfig::sys,
             "Directory where sysfs is mounted, for AMD's GPUs; an absolute path."),
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
  for (const char* key : {"root", "proc", "sys"}) check_absolute_path(table, key, problems);
  for (const char* key : {"state_file", "gpu_jobs_dir", "sluid_dir"})
    check_absolute_path(table, key, problems, EmptyPath::kAllowed);
  for (std::string* path : {&config.root, &config.proc, &config.sys, &config.state_file,
                            &config.gpu_jobs_dir, &config.sluid_dir})
    drop_final_slashes(*path);
  // Two instances of a daemon must not write the same file.
  const std::string name = table.path.substr(table.path.rfind('.') + 1);
  if (table.find("state_file") == nullptr && name != "usage" && !name.empty()) {
    config.state_file = "/var/lib/scriptorium/usage-" + name + ".state";
  }
  if (config.nvml_library.find('\0') != std::string::npos) {
    problems.add(table, "nvml_library", "a file's name cannot hold a NUL byte");
  }
  if (config.executables && config.proc != "/proc") {
    problems.add(table, "executables", "the files of processes are only found in /proc",
                 "false, or proc = \"/proc\"");
  }
  if (!config.samples_node() && config.jobs.accounting == Accounting::kNone) {
    problems.add(table, "sample_node", "neither measures jobs nor imports accounting",
                 "true, or accounting = \"sacct\"");
  }
  return config;
}

}  // namespace scriptorium::usage
