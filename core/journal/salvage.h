#pragma once

#include <cstdint>
#include <string>

#include "core/api/logger.h"
#include "core/base/result.h"

namespace scriptorium::journal {

struct Salvaged {
  std::uint64_t events = 0;
  std::uint64_t lost_events = 0;  // seen, but not readable
  std::uint64_t dead_letters = 0;
  std::uint64_t marks = 0;
  bool redelivers = false;  // the cursors could not be trusted: every sink gets everything again
};

// A new, empty journal file at `file` (which must not exist), mode 0600, closed and synced.
Result<void> create_empty(const std::string& file);

// Reads what can be read of the damaged journal in `quarantine` into a new journal `target`, whose
// content is then on disk. Everything is checked: an event is transferred only if every byte is
// proven. A cursor is kept only if its row and the table of exceptions are intact, a mark only if
// no event was lost (otherwise the spool must be read again). `quarantine` itself stays unchanged.
Result<Salvaged> salvage(const std::string& quarantine, const std::string& target, Logger& log);

}  // namespace scriptorium::journal
