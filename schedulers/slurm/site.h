#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/spool_adapter.h"
#include "core/base/result.h"
#include "core/base/time.h"
#include "schedulers/slurm/config.h"

// What a Slurm says of itself, for people who configure us: its slurm.conf, or scontrol where there
// is no file.
namespace scriptorium::slurm {

struct SiteFacts {
  std::optional<std::string> cluster;          // ClusterName, in lower case as Slurm uses it
  std::optional<std::string> state_directory;  // StateSaveLocation
};

// Reads one line of slurm.conf or of `scontrol show config` into `facts`. Pure. Returns the file
// that an "Include" names.
std::optional<std::string> read_fact(std::string_view line, SiteFacts& facts);

// The slurm.conf that squeue would read: the configuration's, that of SLURM_CONF, or the first of
// the usual places. "" if none of the usual ones is there, as on a host that gets its configuration
// from slurmctld.
std::string slurm_conf_of(const SlurmConfig& config);

// One of Slurm's commands: beside the configuration's squeue, as that may be an installation of its
// own, else in the usual folders.
Result<std::string> find_slurm_command(const SlurmConfig& config, const std::string& command);

// `file` with all that it includes; at most a few MiB and a few levels.
Result<SiteFacts> read_slurm_conf(const std::string& file);

// What does not fit: a slurm.conf that is not there, another cluster's name, another state
// directory than our spool.
std::vector<Mismatch> compare_with_site(const SlurmConfig& config, const std::string& cluster,
                                        const std::stop_token& stop, SteadyTime deadline);

// Under which ids the script of a job may lie: "8_1" under "8", "10+1" under "11"; a task's own
// number under its array's, which slurmctld or accounting is asked for.
std::vector<std::string> ids_of_script(const SlurmConfig& config, std::string_view job_id,
                                       const std::stop_token& stop, SteadyTime deadline);
// The ids that follow from the text alone. Pure.
std::vector<std::string> ids_in_text(std::string_view job_id);

}  // namespace scriptorium::slurm
