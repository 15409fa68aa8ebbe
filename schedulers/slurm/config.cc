#include "schedulers/slurm/config.h"

#include "core/api/kit/path_option.h"

namespace scriptorium::slurm {
namespace {

const Schema<SlurmConfig>& schema() {
  static const Schema<SlurmConfig> the_schema{
      required(
          "spool", &SlurmConfig::spool,
          "slurmctld's StateSaveLocation, as `scontrol show config` prints it; an absolute path."),
      choice("resolve", &SlurmConfig::resolve,
             {{"slurmctld", Resolve::kSlurmctld}, {"none", Resolve::kNone}},
             "Whom to ask for a job's owner: slurmctld by squeue, or nobody, which leaves every "
             "user unverified."),
      option("slurm_conf", &SlurmConfig::slurm_conf,
             "The slurm.conf for squeue, an absolute path; absent: the one that SLURM_CONF names "
             "in the daemon's environment, otherwise squeue's default."),
      option("squeue", &SlurmConfig::squeue,
             "The squeue command, an absolute path; absent: the first one in /usr/local/bin, "
             "/usr/bin, /bin, /opt/slurm/bin."),
  };
  return the_schema;
}

}  // namespace

std::vector<OptionInfo> describe() { return schema().options(); }

SlurmConfig read_config(const Table& table, Problems& problems) {
  SlurmConfig config = schema().parse(table, problems);
  for (const char* key : {"spool", "slurm_conf", "squeue"})
    check_absolute_path(table, key, problems);
  return config;
}

}  // namespace scriptorium::slurm
