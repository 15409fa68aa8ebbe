#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/api/sink.h"
#include "core/base/histogram.h"
#include "core/config/config.h"
#include "core/delivery/call_watch.h"
#include "core/delivery/crash_record.h"
#include "core/journal/journal.h"

namespace scriptorium {

// Brings events from the journal to one sink. It makes batches by count, bytes and age, hands each
// over, waits until all of it is settled, and tells the journal. Retries follow a full-jitter
// exponential back-off up to retry_max_ms, but come no sooner than a destination's hint. Sinks are
// independent: no dispatcher waits for another's.
//
// - The sink does not start: it is started again after a back-off, until it does. Nothing is handed
//   over before.
// - Every event of a batch came back as retry: the destination is down, and the gate closes
//   (gate.h). The same events wait for the back-off; none is parked, so a million waiting events
//   cost no memory. New events join that batch while it has room. A full one is parked after ten
//   refusals, so that a batch which is refused for its content holds nothing up.
// - Some did: those are parked in the journal and tried again on their own time (parked_store.h),
//   and the others are done.
// - The plugin threw: what it left unsettled is tried again one by one. An event that makes it
//   throw three times alone becomes a dead letter ("plugin threw: ...").
// - The process died while events were in the sink's hands: CrashRecord makes them suspect. Each is
//   then a batch of its own, at its place in the order, with nothing else of this sink in hand. One
//   that is found guilty becomes a dead letter ("plugin crashed").
// - A sink that takes several batches at once (Sink::batches_under_way) gets them one after the
//   other in the journal's order, each while earlier ones may still be unsettled. While it is down,
//   the first of them probes it (hand_over_order.h).
//
// Owns:    its threads: one, or `workers`, or one for each batch under way. Borrows everything else
//          for its life. The clock must be the machine's, since the threads wait by it.
// Memory:  a batch for each worker (batches that are handed over in order share the bytes of one),
//          and the parked events of ParkedStore.
// Threads: start() and stop() from one thread at a time; the rest from any.
class Dispatcher {
 public:
  // `start_sink` calls Sink::start(), and is called on the dispatcher's own thread until it
  // succeeds; empty: there is nothing to start.
  using StartSink = std::function<Result<void>()>;
  Dispatcher(std::string name, const SinkConfig& config, Sink& sink, Journal& journal,
             Journal::SinkId id, Logger& log, const Clock& clock, std::uint64_t jitter_seed,
             CrashRecord* crashes = nullptr, StartSink start_sink = {});
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // Throws std::system_error if no thread can be had. With one it delivers; for want of more it
  // has fewer workers, and logs that.
  void start();
  // Waits until the sink was started once. Fails with what start_sink() did, or with kTransient if
  // it did not come back by `deadline`.
  Result<void> await_start(SteadyTime deadline);
  // Hands over no new batch; waits until what is in flight is settled and the sink has stopped, or
  // until `deadline`. False: the sink hangs in a call, or the archive that events are read from.
  // Its thread is left behind, and the process must end with _exit().
  bool stop(SteadyTime deadline);

  struct Status {
    bool ready = false;
    std::optional<std::string> not_ready;          // why the last start failed
    std::optional<CallWatch::Call> call;           // the oldest that is under way in the sink
    std::map<std::string, std::uint64_t> retries;  // by reason, since start
    std::uint64_t acknowledged = 0;                // since start
    std::uint64_t rejected = 0;
    std::uint64_t attempts = 0;
    std::uint64_t in_flight = 0;
    Histogram latency;                      // from captured to acknowledged
    std::optional<std::string> last_error;  // reason of the last retry or rejection
    std::optional<Timestamp> last_success;
    std::optional<std::int64_t> next_attempt_in_ms;  // while backing off, also of a start
  };
  Status status() const;
  // Every event up to now is settled and committed; only dead letters may be left.
  bool idle() const;
  // Forgets the back-off and tries now (after a reload, or for `--once`).
  void wake();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace scriptorium
