#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/api/event.h"
#include "core/api/own_job.h"
#include "core/api/spool_adapter.h"
#include "core/base/result.h"

namespace scriptorium {

// Receives a free source's events. Threads: any.
class EventWriter {
 public:
  virtual ~EventWriter() = default;
  // Returns once the events are durable, or an error if they are not (journal full and stopping).
  // Blocks while the journal is full, as back-pressure. `position`, if given, is stored in the same
  // transaction, so a source that restarts at its position loses nothing and repeats nothing. Core
  // fills in empty cluster, host and captured_at members; the source sets the id.
  virtual Result<void> write(std::vector<Event> events,
                             std::optional<std::string> position = std::nullopt) = 0;
  // The position that this source instance stored last.
  virtual std::optional<std::string> position() const = 0;
};

// A source that runs its own loop, such as usage metrics, a database or a topic.
class FreeSource {
 public:
  FreeSource() = default;
  FreeSource(const FreeSource&) = delete;
  FreeSource& operator=(const FreeSource&) = delete;
  virtual ~FreeSource() = default;

  virtual Result<void> check() { return {}; }
  // Runs in its own thread until `stop`, or with `once` until everything available has been
  // written. Core logs and counts an error or exception, and calls run() again after a back-off.
  virtual Result<void> run(EventWriter& writer, std::stop_token stop, bool once) = 0;
  // One JSON object for `status --json`; "" = nothing.
  virtual std::string status_json() const { return {}; }
  // For `scriptorium usage --here`, without run(): measures the job that this process runs in. Null
  // if the source does not measure jobs; kVanished if this process does not run in one.
  virtual Result<std::unique_ptr<OwnJob>> own_job() { return std::unique_ptr<OwnJob>(); }
};

}  // namespace scriptorium
