#include "schedulers/slurm_client/command.h"

#include <cstdlib>

#include "core/base/command.h"
#include "core/base/random.h"

namespace scriptorium::slurm_client {
namespace {

constexpr const char* kFolders = "/usr/local/bin:/usr/bin:/bin:/opt/slurm/bin";

}  // namespace

Result<std::string> find_command(const std::string& configured, const std::string& name) {
  if (auto found = find_program(configured, name, kFolders)) return *std::move(found);
  if (!configured.empty()) {
    return Error{ErrorKind::kInvalidConfig,
                 name + ": " + configured + " cannot be executed; correct the path"};
  }
  return Error{ErrorKind::kInvalidConfig, name + " is not in " + kFolders +
                                              "; install Slurm's client commands, or set " + name};
}

std::string choose_slurm_conf(const std::string& configured) {
  // A daemon that was started with SLURM_CONF must not ask another cluster.
  const char* inherited = std::getenv("SLURM_CONF");
  return !configured.empty() || inherited == nullptr ? configured : inherited;
}

std::vector<std::string> environment(const std::string& slurm_conf, std::vector<std::string> more) {
  more.insert(more.end(), {"PATH=/usr/bin:/bin", "TZ=UTC"});
  if (const std::string conf = choose_slurm_conf(slurm_conf); !conf.empty())
    more.push_back("SLURM_CONF=" + conf);
  return more;
}

std::vector<std::string> squeue_environment(const std::string& slurm_conf,
                                            const std::string& format) {
  return environment(slurm_conf,
                     {"SLURM_TIME_FORMAT=%s", "SLURM_BITSTR_LEN=0", "SQUEUE_FORMAT2=" + format});
}

Result<std::string> new_guard() {
  auto digits = random_hex(16);
  if (!digits) return digits.error();
  // squeue takes what follows a field's colon for its width if it begins with a digit.
  return "@" + *digits;
}

bool says_unknown_job(std::string_view standard_error) noexcept {
  return standard_error.find("Invalid job id") != std::string_view::npos;
}

bool says_no_accounting(std::string_view standard_error) noexcept {
  return standard_error.find("accounting storage is disabled") != std::string_view::npos ||
         standard_error.find("not running a supported accounting_storage") !=
             std::string_view::npos;
}

}  // namespace scriptorium::slurm_client
