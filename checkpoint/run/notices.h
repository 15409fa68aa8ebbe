#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/run/job.h"

// What the owner of a job should know at its start, before hours are spent.
namespace scriptorium::checkpoint {

// Pure: why a command cannot be saved, by its program's name: it is of MPI, or starts a container.
// Such a command is refused.
std::optional<std::string> why_not_saved(const std::string& program);

// Pure: the value of "name = value" in a line, or of "name=value" among words; `end` is behind each.
// "" = it is not there.
std::string value_of(std::string_view text, std::string_view name, char end);

// Pure: the exit code is in a list of slurm.conf, such as "1,90-99".
bool has_exit_code(std::string_view list, int code);

// Pure: why Slurm would not run the job again, or would not signal it. The texts are of `scontrol
// show config`, `scontrol show job` and the job script; "" = unknown, of which nothing is said.
std::vector<std::string> slurm_notices(std::string_view config, std::string_view job,
                                       std::string_view script);

// Pure: why OAR would not run the job again, or would remove its images. `job` is the text of
// `oarstat -f -j`, "" = unknown; `directory` the save directory's path.
struct OarNotices {
  std::string again;
  std::string images;
};
OarNotices oar_notices(std::string_view job, const std::string& directory);

// Asks the scheduler, for at most a few seconds, and looks for the service on this node. `first`:
// the job's first process. `requests`: the service's spool; "" = it is not needed. `directory`: the
// save directory, open.
std::vector<std::string> notices(const BatchJob& job, std::optional<pid_t> first,
                                 const std::string& requests, int directory);

}  // namespace scriptorium::checkpoint
