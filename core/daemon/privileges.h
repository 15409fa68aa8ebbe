#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "core/capture/spool_opener.h"
#include "core/config/config.h"

namespace scriptorium {

// What this process may do, and which process does the rest for it.
struct Privileges {
  bool separated = false;
  std::string why;      // not separated: why, and what would help
  std::string refused;  // `check` only: why a start would be refused
  std::string user;
  uid_t uid = 0;
  CapabilitySet capabilities = 0;       // that this process still has
  bool filtered = false;                // the system calls that only the opener needs fail here
  std::string unfiltered_because;       // why they do not, although they should
  std::string state_dir_note;           // kLook: what kRun would do to state_dir; "" = nothing
  std::unique_ptr<SpoolOpener> opener;  // null unless separated
};

enum class PrivilegesFor {
  kRun,      // a daemon: state_dir is made for its user and given to that user
  kLook,     // `check`: the same, but nothing is made or given away
  kCommand,  // a command beside the daemon that may make files in state_dir: as kRun
  kRefusal,  // the configuration is bad: give up all rights, so that plugins can be loaded to say
             // more about it
};

// Splits this process in two, before it has loaded a plugin, read a byte of a spool or started a
// thread. If it has rights that reach spools of others (CAP_SYS_ADMIN, CAP_DAC_READ_SEARCH), it
// forks the spool opener, which keeps them. This process becomes the user that `config` names (or
// stays who it is), gives up every capability and denies itself the system calls that only the
// opener needs. Without such rights and without another user, nothing changes. kInvalidConfig:
// there is no such user, this process cannot become it, or state_dir cannot be given to it; log
// that and end.
Result<Privileges> separate_privileges(const CoreConfig& config, const std::string& config_file,
                                       PrivilegesFor purpose);

// For a command of root that reads the journal or makes files in state_dir: becomes the daemon's
// user, for good, so that it leaves no file of root there which the daemon could not open. That is
// the user of the configuration, or without one the owner of state_dir. Nothing changes unless root
// calls it.
Result<void> become_daemon_user(const CoreConfig& config, const std::string& config_file);
// Whether become_daemon_user() would become another user.
bool has_daemon_user(const CoreConfig& config);

// The object "privileges" of `status --json`.
std::string privileges_json(const Privileges& privileges);

}  // namespace scriptorium
