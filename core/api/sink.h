#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/delivery.h"
#include "core/api/logger.h"
#include "core/api/maintained_sink.h"
#include "core/api/plugin_context.h"
#include "core/api/readable_sink.h"
#include "core/api/rewritable_sink.h"
#include "core/api/searchable.h"
#include "core/base/result.h"

namespace scriptorium {

// What a sink has stored about a job, for `scriptorium show`.
struct StoredFile {
  std::string name;      // "script", "environment", "metadata"
  std::string location;  // a path or another name of the place
  Bytes bytes;
};
struct StoredJob {
  std::string event_id;  // "" if the destination does not keep it
  std::string location;
  std::vector<StoredFile> files;
};

// A backend: writes events to one destination. It keeps no disk buffer, never sleeps to retry and
// never reads a config file; core does queueing, batching, back-off and dead letters.
//
// Threads: start(), deliver() and stop() are called by threads of this sink, which may hang in them
// without harm to anybody else: start() until it succeeds, then deliver() by one thread at a time,
// or by `workers` threads at once where that option is above 1, at last stop(). status_json() and
// searchable() come from any thread, beside all of them; the other calls come before start(). If
// deliver() throws, unsettled deliveries are retried; an event for which it throws three times
// becomes a dead letter.
class Sink {
 public:
  Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  virtual ~Sink() = default;

  // For `scriptorium check`: is the destination reachable, and may we write there? Must leave
  // nothing behind.
  virtual Result<void> check() { return {}; }

  // Called before the first delivery, and after an error again, with a back-off, until it succeeds:
  // the daemon captures meanwhile, and this sink's events wait in the journal. kInvalidConfig: a
  // person must do something, so a command that delivers (`run --once`, `import`) ends with it.
  virtual Result<void> start() { return {}; }

  // Must settle each delivery exactly once, now or later, from any thread. A batch has 1 to
  // batch_max_events deliveries in journal order. Core hands over the next batch when all of these
  // are settled, or earlier if batches_under_way() allows it.
  virtual void deliver(std::vector<Delivery> batch) = 0;

  // Flushes what is in flight, at most until `deadline`; unsettled events stay in the journal.
  // After it returns, the sink may settle no delivery and run no thread.
  virtual void stop(SteadyTime deadline) { static_cast<void>(deadline); }

  // What this destination has stored about a job; empty if it has nothing or cannot search. May
  // take seconds. The command calls it, not the daemon, so neither start() nor deliver() was called
  // before.
  virtual Result<std::vector<StoredJob>> find(std::string_view job_id) {
    static_cast<void>(job_id);
    return std::vector<StoredJob>{};
  }

  // For `scriptorium setup`: creates what the destination needs once (index templates, topics), or
  // with `print` only returns the text.
  virtual Result<std::string> setup(bool print) {
    static_cast<void>(print);
    return std::string{"nothing to set up\n"};
  }

  // One JSON object with plugin-specific status, shown under "plugin_status" in `status --json`; ""
  // = nothing. Must not wait: no file system, no network, no lock that another call holds over
  // either.
  virtual std::string status_json() const { return {}; }

  // How many batches core may hand over before the first of them is settled. Above 1, core reads
  // and hands over further batches while the destination is busy, so deliver() must not wait for
  // the destination. Calls still come one at a time and in journal order (as long as `workers` is
  // 1), and batch_max_bytes limits all these batches together. Called once, after start().
  virtual std::size_t batches_under_way() const { return 1; }

  // This sink as a ReadableSink; null if it cannot return what it stored, or if its options make it
  // store too little.
  virtual ReadableSink* readable() { return nullptr; }

  // Directories that only this sink may write to, as the options name them. Core refuses two sinks
  // if a directory of one equals or lies within a directory of the other.
  virtual std::vector<std::string> directories() const { return {}; }

  // This sink as a RewritableSink; null if it cannot replace what it stored.
  virtual RewritableSink* rewritable() { return nullptr; }

  // This sink as a Searchable; null if it cannot answer queries.
  virtual Searchable* searchable() { return nullptr; }

  // This sink as a MaintainedSink; null if its store needs no care.
  virtual MaintainedSink* maintained() { return nullptr; }
};

}  // namespace scriptorium
