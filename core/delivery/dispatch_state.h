#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "core/api/logger.h"
#include "core/api/sink.h"
#include "core/base/guarded.h"
#include "core/base/histogram.h"
#include "core/config/config.h"
#include "core/delivery/call_watch.h"
#include "core/delivery/conclusion.h"
#include "core/delivery/crash_record.h"
#include "core/delivery/gate.h"
#include "core/delivery/hand_over_order.h"
#include "core/delivery/parked_store.h"
#include "core/delivery/plan.h"
#include "core/journal/journal.h"

// What the threads of one sink's dispatcher share.
namespace scriptorium::delivery {

// What Dispatcher::Status says of the time since the start.
struct DeliveryCounters {
  ReasonCounts retries;
  std::uint64_t acknowledged = 0;
  std::uint64_t rejected = 0;
  std::uint64_t attempts = 0;
  Histogram latency;  // from captured to acknowledged
  std::optional<std::string> last_error;
  std::optional<Timestamp> last_success;

  // All of one batch, at the time `now`.
  void count(const Answer& answer, Timestamp now);
};

struct DispatchState {
  DispatchState(std::chrono::milliseconds retry_max, std::uint64_t seed)
      : parked(retry_max, seed), gate(retry_max, ~seed) {}

  // Starting. Nothing is delivered before the sink is ready.
  bool starting = false;  // until the sink was started, or a stop
  bool ready = false;
  std::optional<Error> not_ready;  // why the last attempt to start failed
  SteadyTime start_again_at;       // meaningful then

  // Reading. One worker at a time reads from the journal or waits for it.
  bool reading = false;
  std::uint64_t position = 0;  // everything up to here was read

  CursorTrack track{0};
  std::uint64_t reported_cursor = 0;  // that the journal was told, or is about to be
  // True if the journal must be told this cursor; it then counts as told.
  bool report_cursor(std::uint64_t cursor) {
    return cursor > std::exchange(reported_cursor, std::max(reported_cursor, cursor));
  }

  HandOverOrder order;
  ParkedStore parked;
  Gate gate;
  DeliveryCounters counters;

  // Waking and stopping.
  std::stop_source interrupt;  // ends the wait for the journal; replaced each time
  std::uint64_t interrupts = 0;
  bool stopping = false;
  bool sink_stopped = false;
  std::size_t threads = 0;  // that have not ended

  // The caller requests a stop of the result, outside the lock.
  std::stop_source take_interrupt() {
    ++interrupts;
    return std::exchange(interrupt, std::stop_source{});
  }
};

// One sink, and what its dispatcher borrows for its life.
// Locks: `state`, and a BatchSettler's own; never both at once, and nothing is called or logged
// under either.
struct DispatchContext {
  const std::string name;
  const SinkConfig config;
  Sink& sink;
  Journal& journal;
  const Journal::SinkId id;
  Logger& log;
  const Clock& clock;
  CrashRecord* const crashes;  // null: none is kept
  CallWatch calls;             // into the sink
  Guarded<DispatchState> state;
  std::size_t batches_at_once = 1;  // handed over in order; 1 also with several workers

  BatchLimits batch_limits() const;
  std::uint64_t waiting_events() const;  // for this sink, in the journal
  // Ends the present wait for the journal, and wakes everyone who waits for the state.
  void interrupt();
};

}  // namespace scriptorium::delivery
