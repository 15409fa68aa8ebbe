#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/delivery.h"
#include "core/api/logger.h"
#include "core/api/plugin_context.h"
#include "core/api/readable_sink.h"
#include "core/base/result.h"

namespace scriptorium {

// What a sink holds of a job, for `scriptorium show`.
struct StoredFile {
  std::string name;      // "script", "environment", "metadata"
  std::string location;  // a path, or whatever names the place
  Bytes bytes;
};
struct StoredJob {
  std::string event_id;  // "" if the destination does not tell
  std::string location;
  std::vector<StoredFile> files;
};

// A backend: writes events to one destination. It keeps no disk buffer, never sleeps to retry and
// never reads a config file; queueing, batching, back-off and dead letters are core's.
//
// Threads: deliver() is called by one thread at a time, or by `workers` threads at once where that
// option is above 1; the other calls come from the main thread, start() before the first deliver(),
// stop() after the last. What escapes as an exception becomes a retry of what was not settled, and
// after three on one event a dead letter.
class Sink {
 public:
  Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  virtual ~Sink() = default;

  // All of start-up but starting: is the destination reachable, may we write there? For
  // `scriptorium check`. Must leave nothing behind.
  virtual Result<void> check() { return {}; }

  // Once, before the first delivery. kInvalidConfig refuses to start the daemon; any other error is
  // logged, and deliveries begin all the same (the destination may be down now: its events wait in
  // the journal).
  virtual Result<void> start() { return {}; }

  // Settle each delivery exactly once, now or later from any thread. A batch holds 1 to
  // batch_max_events deliveries in the journal's order; core hands over the next one when all of
  // these are settled, or sooner if batches_under_way() says so.
  virtual void deliver(std::vector<Delivery> batch) = 0;

  // Flush what is in flight, at most until `deadline`. What is unsettled then stays in the journal.
  // After return no delivery may be settled any more and no thread of the sink may run.
  virtual void stop(SteadyTime deadline) { static_cast<void>(deadline); }

  // What this destination holds of a job; an empty list if it has none or cannot look. A progress
  // of seconds is allowed. Called in the command, not in the daemon: neither start() nor deliver()
  // came before.
  virtual Result<std::vector<StoredJob>> find(std::string_view job_id) {
    static_cast<void>(job_id);
    return std::vector<StoredJob>{};
  }

  // What a destination needs once (index templates, topics), for `scriptorium setup`: with `print`
  // only the text.
  virtual Result<std::string> setup(bool print) {
    static_cast<void>(print);
    return std::string{"nothing to set up\n"};
  }

  // One JSON object with what only this sink knows, shown under "plugin_status" in `status --json`;
  // "" = nothing.
  virtual std::string status_json() const { return {}; }

  // How many batches core may hand over before the first of them is settled. With more than 1 the
  // next batches are read and handed over while the destination is busy with the last; deliver()
  // then must not wait for the destination. Its calls still come one at a time and in the journal's
  // order (as long as `workers` is 1), and batch_max_bytes is for all of them together. Asked once,
  // after start().
  virtual std::size_t batches_under_way() const { return 1; }

  // Itself as something that gives back what it stored; null if it cannot, or if its options keep
  // too little for that.
  virtual ReadableSink* readable() { return nullptr; }

  // Directories in which this sink alone may write. Core refuses two sinks if a directory of one
  // is, or lies within, a directory of the other.
  virtual std::vector<std::string> directories() const { return {}; }
};

}  // namespace scriptorium
