#pragma once

#include <cstdint>
#include <functional>
#include <map>
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
  std::string tree;             // as the user wrote it, for messages and marks
  EventOrigin origin;           // cluster, scheduler and host of every event
  EnvironmentRule environment;  // what of an environment is kept
  std::uint64_t max_file_bytes = std::uint64_t{128} << 20;
  std::string sink;                   // only to this one; "" = to all
  const OwnerList* owners = nullptr;  // what accounting says; null: nobody is verified
  bool dry_run = false;               // read and count, deliver nothing and write nothing
  bool again = false;                 // also what was imported before
  std::optional<Timestamp> before;    // only jobs of an earlier time
};

struct ImportSummary {
  std::uint64_t found = 0;     // jobs of the tree, whatever became of them
  std::uint64_t imported = 0;  // durable in the journal, or with dry_run: would be
  std::uint64_t already = 0;   // imported by an earlier run, or twice in the tree
  std::uint64_t later = 0;     // not before `before`
  std::uint64_t foreign = 0;   // names that are none of this archiver's
  std::uint64_t verified = 0;  // of the imported: their owner is accounting's
  std::uint64_t doubtful = 0;  // imported, with something in `problems`
  std::uint64_t bytes = 0;     // of the imported jobs' files
  std::map<std::string, std::uint64_t> skipped;  // jobs that could not be taken, by kind
  std::optional<Timestamp> first, last;          // of the imported jobs
  struct SinkResult {
    std::uint64_t acknowledged = 0;
    std::uint64_t waiting = 0;
    std::uint64_t dead = 0;
    std::string last_error;
  };
  std::map<std::string, SinkResult> sinks;
  bool interrupted = false;  // stopped from outside
  bool stalled = false;      // the journal was full and no sink took anything
  bool hangs = false;        // a sink does not come back: the process must end with _exit
  std::string journal;       // the directory of the import's own journal
};

// What a person is told meanwhile. Calls come from one thread at a time.
struct ImportListener {
  std::function<void(const std::string& path, std::string_view kind, const std::string& why)>
      skipped;
  std::function<void(const std::string& path)> foreign;
  std::function<void(std::uint64_t read, std::uint64_t delivered)> progress;
};

// Brings a tree into the configured sinks, through a journal of its own beside the daemon's
// (STATE_DIR/import, or STATE_DIR/import-SINK with `sink`): neither waits for the other, so capture
// never stands still for an import. The daemon may run or not; each has its own instances of the
// sinks, which take an event twice without harm. The journal remembers what was imported, so a
// second run delivers what is new and what the first could not; what no sink would take stands in
// it as dead letters.
//
// Threads: the main thread; starts those of the journal and the sinks, and ends them.
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
