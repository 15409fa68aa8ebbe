#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/api/event.h"
#include "core/api/spool_adapter.h"
#include "core/base/result.h"

namespace scriptorium {

// Where a free source puts its events. Threads: any.
class EventWriter {
 public:
  virtual ~EventWriter() = default;
  // Returns when the events are durable, or with an error when they are not (journal full and
  // stopping). Waits while the journal is full: that is the back-pressure. `position`, if given, is
  // stored in the same transaction, so a source that restarts at its position loses nothing and
  // repeats nothing. Core fills cluster, host and captured_at where they are empty; the id is the
  // source's.
  virtual Result<void> write(std::vector<Event> events,
                             std::optional<std::string> position = std::nullopt) = 0;
  // The position that was last stored by this source instance.
  virtual std::optional<std::string> position() const = 0;
};

// A source with a loop of its own: usage metrics, a database, a topic.
class FreeSource {
 public:
  FreeSource() = default;
  FreeSource(const FreeSource&) = delete;
  FreeSource& operator=(const FreeSource&) = delete;
  virtual ~FreeSource() = default;

  virtual Result<void> check() { return {}; }
  // Runs in a thread of its own until `stop`, or with `once` until all that is there has been
  // written. An error or an exception is logged and counted, and run() is called again after a
  // back-off.
  virtual Result<void> run(EventWriter& writer, std::stop_token stop, bool once) = 0;
  // One JSON object for `status --json`; "" = nothing.
  virtual std::string status_json() const { return {}; }
};

}  // namespace scriptorium
