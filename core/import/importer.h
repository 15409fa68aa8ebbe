#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/logger.h"
#include "core/capture/assemble.h"
#include "core/capture/spool_access.h"
#include "core/daemon/setup.h"
#include "core/import/owners.h"
#include "core/import/tree_path.h"

namespace scriptorium::import {

struct ImportOptions {
  TreeFormat format = TreeFormat::kSarchive;
  std::string tree;    // as the user wrote it, for messages and marks
  EventOrigin origin;  // cluster, scheduler and host of every event
  std::shared_ptr<const redact::Redactor> redactor = redact::Redactor::none();
  std::uint64_t max_file_bytes = std::uint64_t{128} << 20;
  std::string sink;                   // deliver only to this sink; "" = to all
  const OwnerList* owners = nullptr;  // from accounting; null: no owner is verified
  bool dry_run = false;               // read and count, but deliver and write nothing
  bool again = false;                 // include jobs that were imported before
  std::optional<Timestamp> before;    // only jobs before this time
};

struct ImportSummary {
  std::uint64_t found = 0;     // all jobs in the tree
  std::uint64_t imported = 0;  // durable in the journal; with dry_run: would be imported
  std::uint64_t already = 0;   // imported by an earlier run, or twice in the tree
  std::uint64_t later = 0;     // not before `before`
  std::uint64_t foreign = 0;   // names that this archiver does not write
  std::uint64_t verified = 0;  // imported with an owner from accounting
  std::uint64_t doubtful = 0;  // imported, with something in `problems`
  std::uint64_t bytes = 0;     // of the imported jobs' files
  std::map<std::string, std::uint64_t> skipped;  // jobs that could not be imported, by kind
  std::optional<Timestamp> first, last;          // of the imported jobs
  struct SinkResult {
    std::uint64_t acknowledged = 0;
    std::uint64_t waiting = 0;
    std::uint64_t dead = 0;
    std::string last_error;
  };
  std::map<std::string, SinkResult> sinks;
  bool interrupted = false;  // stopped by a signal
  bool stalled = false;      // the journal was full and no sink took events
  bool hangs = false;        // a sink hangs: the process must end with _exit
  std::string journal;       // the directory of the import's own journal
};

// Reports progress to a person. Called by one thread at a time.
struct ImportListener {
  std::function<void(const std::string& path, std::string_view kind, const std::string& why)>
      skipped;
  std::function<void(const std::string& path)> foreign;
  std::function<void(std::uint64_t read, std::uint64_t delivered)> progress;
};

// Imports a tree into the configured sinks, through a separate journal beside the daemon's
// (STATE_DIR/import, or STATE_DIR/import-SINK with `sink`), so that an import never delays capture.
// The daemon may be running: each has its own instances of the sinks, and delivering an event twice
// is safe. The journal remembers what was imported, so a second run delivers new jobs and those
// that failed before; rejected events are dead letters in this journal.
//
// Threads: the main thread; starts and stops the threads of the journal and the sinks.
// Fails:   kInvalidConfig: a sink refuses to start, there is no such sink, or the journal holds
//          events of a sink that is no longer configured; kExhausted: another import runs;
//          kVanished: there is no such tree. The summary reports everything else.
Result<ImportSummary> run_import(const ImportOptions& options, const Setup& setup,
                                 SpoolAccess& tree, const SpoolAdapter* adapter,
                                 const ImportListener& listener, Logger& log,
                                 const std::stop_token& stop);

// STATE_DIR/import or STATE_DIR/import-SINK.
std::string import_directory(const std::string& state_dir, const std::string& sink);

}  // namespace scriptorium::import
