#pragma once

#include <memory>

#include "core/api/logger.h"
#include "core/base/time.h"
#include "core/journal/journal_types.h"
#include "core/journal/sqlite.h"

namespace scriptorium::journal {

struct OpenedDatabase {
  std::unique_ptr<Connection> connection;
  OpenReport report;
  // Read without -wal and -shm: no process has the file open, and we may not write beside it.
  bool immutable = false;
};
// Creates the directory and the file if missing, checks what is there, quarantines and salvages a
// damaged journal, and upgrades an older one.
Result<OpenedDatabase> open_database(const Options& options, Logger& log, const Clock& clock);

}  // namespace scriptorium::journal
