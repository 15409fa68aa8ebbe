#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/daemon/privileges.h"
#include "core/daemon/setup.h"

namespace scriptorium {

// One line of `scriptorium check`.
struct Finding {
  enum class Level { kOk, kWarning, kFailed } level = Level::kOk;
  std::string subject;  // "sink.archive", "source.slurm", "state_dir", "journal"
  std::string text;
  // The kind of the error with which `run --once` would be refused; it gives the exit code. Absent:
  // it would run. The daemon itself also starts while a sink is not ready.
  std::optional<ErrorKind> refusal;
};

// Does everything that a start does except starting: is state_dir writable, is the journal readable
// and intact (no lock is taken, so a daemon may run), can every plugin instance be made, what does
// its check() report within 30 s, can every spool be read. Leaves nothing behind. `privileges`: how
// this process was separated; its opener reads the spools, as the daemon's would.
std::vector<Finding> check_setup(const Setup& setup, Logger& log, const Privileges& privileges);

}  // namespace scriptorium
