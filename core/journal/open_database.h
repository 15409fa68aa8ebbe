#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/api/logger.h"
#include "core/base/time.h"
#include "core/journal/capture_key.h"
#include "core/journal/journal_types.h"
#include "core/journal/sqlite.h"

namespace scriptorium::journal {

enum class Extent {
  kStructure,  // SQLite's quick check, the tables' definitions, the checksums of cursors
  kWhole,      // every index, reference and content too, which reads all bytes
};
// What is wrong with the journal, in words; "" = nothing.
std::string verify(Connection& connection, Extent extent);

struct OpenedDatabase {
  std::unique_ptr<Connection> connection;
  std::optional<CaptureSecret> secret;  // empty: opened for reading only
  OpenReport report;
  // Read without -wal and -shm: no process has the file open, and we may not write beside it.
  bool immutable = false;
};
// Creates the directory and the file if missing, checks what is there, quarantines and salvages a
// damaged journal, makes the secret of the capture keys if it is missing, and upgrades an older
// journal.
Result<OpenedDatabase> open_database(const Options& options, Logger& log, const Clock& clock);

}  // namespace scriptorium::journal
