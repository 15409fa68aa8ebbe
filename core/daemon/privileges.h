#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "core/capture/executable_reader.h"
#include "core/capture/spool_opener.h"
#include "core/config/config.h"

namespace scriptorium {

// What this process may do, and which process does the rest for it.
struct Privileges {
  bool separated = false;
  std::string why;      // why it is not separated, and what would help
  std::string refused;  // `check` only: why a start would be refused
  std::string user;
  uid_t uid = 0;
  CapabilitySet capabilities = 0;       // that this process still has
  bool filtered = false;                // system calls that the daemon never needs are denied here
  std::string unfiltered_because;       // why they are not denied although they should be
  std::string state_dir_note;           // kLook: what kRun would do to state_dir; "" = nothing
  std::unique_ptr<SpoolOpener> opener;  // null without rights to read the spools of others
  std::unique_ptr<ExecutableReader> executables;  // null unless a source wants it
  std::string executables_problem;  // why it is null although a source wants it, and what helps
};

enum class PrivilegesFor {
  kRun,      // a daemon: state_dir is made for its user and given to that user
  kLook,     // `check`: the same, but nothing is made or given away
  kCommand,  // a command beside the daemon that may make files in state_dir: as kRun
  kRefusal,  // the configuration is bad: give up all rights, then load the plugins to report more
};

// Splits this process in two, or three. Call it before loading a plugin, reading a byte of a spool
// or starting a thread. If the process has rights to read the spools of others (CAP_SYS_ADMIN,
// CAP_DAC_READ_SEARCH), it forks the spool opener, which keeps them. If it has CAP_SYS_PTRACE and a
// source of `config` says `executables = true`, it forks the executable reader, which keeps that.
// This process becomes the user that `config` names (or keeps its own), gives up every capability
// and denies itself the system calls that it never needs. Without such rights and without another
// user, nothing changes. kInvalidConfig: the user does not exist, this process cannot become it, or
// state_dir cannot be given to it; log that and end.
Result<Privileges> separate_privileges(const Config& config, const std::string& config_file,
                                       PrivilegesFor purpose);

// For a command that root runs and that reads the journal or makes files in state_dir: becomes the
// daemon's user for the rest of the process, so that it leaves no file there that belongs to root
// and that the daemon could not open. The daemon's user is that of the configuration, otherwise the
// owner of state_dir. Does nothing unless root calls it.
Result<void> become_daemon_user(const CoreConfig& config, const std::string& config_file);
// Whether become_daemon_user() would become another user.
bool has_daemon_user(const CoreConfig& config);

// The object "privileges" of `status --json`.
std::string privileges_json(const Privileges& privileges);

}  // namespace scriptorium
