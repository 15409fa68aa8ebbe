#include "schedulers/torque/source.h"

#include <unistd.h>

#include <algorithm>

#include "schedulers/torque/owner.h"
#include "schedulers/torque/parse.h"

namespace scriptorium::torque {

bool TorqueSource::file_exists(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

SpoolPath TorqueSource::classify(std::string_view path) const { return classify_path(path); }

Assessment TorqueSource::assess(const SpoolEntry& entry) const { return assess_entry(entry); }

Result<ParsedJob> TorqueSource::parse(const SpoolEntry& entry) const { return parse_entry(entry); }

std::string TorqueSource::path_of(std::string_view entry, std::string_view file) const {
  return path_of_file(entry, file);
}

std::span<const std::string_view> TorqueSource::file_names() const { return entry_files(); }

std::unique_ptr<OwnerResolver> TorqueSource::make_resolver() {
  return std::make_unique<AccountResolver>(context_.clock);
}

Result<void> TorqueSource::check_root(std::span<const std::string> names) const {
  const auto refuse = [&](std::string_view why) {
    return Error(ErrorKind::kInvalidConfig, "spool " + config_.spool + ": " + std::string(why));
  };
  const std::string home = home_folder(config_.spool);
  // Made by OpenPBS and PBS Pro since 13, and by no Torque.
  if (exists_(home + "/datastore") || exists_(home + "/pbs_version")) {
    return refuse(
        "this is OpenPBS (or PBS Professional), not Torque: its server keeps job scripts in a "
        "database and none in its spool, so "
        "there is nothing to capture here; leave this source out, and have each script archived by "
        "a queuejob hook of the "
        "server, which gets it as it is submitted");
  }
  if (home.ends_with("/mom_priv")) {
    return refuse(
        "this is the spool of an execution host's pbs_mom, where a job can change its own script; "
        "give the home of pbs_server, "
        "on the host that it runs on");
  }
  const auto is_ours = [](std::string_view name) {
    return classify_path(name).role != SpoolPath::Role::kForeign;
  };
  if (names.empty() || std::any_of(names.begin(), names.end(), is_ours)) return {};
  if (std::any_of(names.begin(), names.end(),
                  [](std::string_view name) { return name.starts_with("hash."); }))
    return refuse("this is Slurm's spool; use plugin = \"slurm\"");
  if (std::all_of(names.begin(), names.end(), [](std::string_view name) {
        return name.starts_with('.') || name.ends_with(".BK") || name.ends_with(".BD") ||
               name.ends_with(".JB");
      })) {
    return {};  // nothing that says anything about a job
  }
  return refuse(
      "nothing in it is pbs_server's; give its home (such as /var/spool/torque), server_priv, or "
      "server_priv/jobs");
}

}  // namespace scriptorium::torque
