#include "schedulers/slurm/config.h"

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
             "in the daemon's environment, "
             "else where squeue "
             "looks by itself."),
      option("squeue", &SlurmConfig::squeue,
             "The squeue command, an absolute path; without it the first one in /usr/local/bin, "
             "/usr/bin, /bin, /opt/slurm/bin."),
  };
  return the_schema;
}

void check_path(const Table& table, const char* key, const std::string& path, Problems& problems) {
  if (table.find(key) == nullptr) return;
  if (path.empty() || path.front() != '/') {
    problems.add(table, key, "not an absolute path", "a path that begins with '/'");
  } else if (path.find('\0') != std::string::npos) {
    problems.add(table, key, "a path cannot hold a NUL byte");
  }
}

}  // namespace

std::vector<OptionInfo> describe() { return schema().options(); }

SlurmConfig read_config(const Table& table, Problems& problems) {
  SlurmConfig config = schema().parse(table, problems);
  // A value of another type was reported already and left its member empty.
  const auto is_text = [&](const char* key) {
    const Value* value = table.find(key);
    return value != nullptr && std::holds_alternative<std::string>(value->data);
  };
  if (is_text("spool")) check_path(table, "spool", config.spool, problems);
  if (is_text("slurm_conf")) check_path(table, "slurm_conf", config.slurm_conf, problems);
  if (is_text("squeue")) check_path(table, "squeue", config.squeue, problems);
  return config;
}

}  // namespace scriptorium::slurm
