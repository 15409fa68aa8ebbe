#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/api/sink.h"
#include "core/base/histogram.h"
#include "core/config/config.h"
#include "core/delivery/crash_record.h"
#include "core/journal/journal.h"

namespace scriptorium {

// Brings events from the journal to one sink: batches by count, bytes and age, hands a batch over,
// waits until all of it is settled, tells the journal. Retries with full-jitter exponential
// back-off up to retry_max_ms, a destination's hint as the least. One sink's dispatcher never waits
// for another's.
//
// - All of a batch came back as retry: the destination is down. The same events wait for the
// back-off; nothing is
//   parked, so a million waiting events cost no memory. New events join that batch while it has
//   room; a full one is parked after ten refusals. So what a destination refuses for its own sake
//   does not hold what comes after.
// - Some did: those are parked in the journal and tried again on their own time, the rest goes on.
// - The plugin threw: what it left unsettled is tried again one by one; an event that makes it
// throw three times
//   alone becomes a dead letter ("plugin threw: ...").
// - The process died while events were in hand: CrashRecord makes them suspect. Each is then a
// batch of its own, in its place in
//   the order, with nothing else of this sink in hand; one that is found guilty becomes a dead
//   letter ("plugin crashed").
// - A sink that takes several batches at once (Sink::batches_under_way) is handed them one after
// the other in the journal's
//   order, each while the ones before it may still be unsettled. While it is down, the first of
//   them tries it.
//
// Owns:    its threads (one, or `workers`, or one for each batch under way). Borrows all else for
// its life. The clock is the
//          machine's: threads wait by it.
// Memory:  a batch for each worker (batches that are handed over in order share one's bytes), and
// parked events up to 10,000 or 16 MiB; more of them wait in the journal. Threads: start(), stop()
// from the main thread; status() and idle() from any.
class Dispatcher {
 public:
  Dispatcher(std::string name, const SinkConfig& config, Sink& sink, Journal& journal,
             Journal::SinkId id, Logger& log, const Clock& clock, std::uint64_t jitter_seed,
             CrashRecord* crashes = nullptr);
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  void start();
  // No new batch is handed over; waits until what is in flight is settled and the sink has stopped,
  // or `deadline`. False: the sink hangs in a call; its thread is left behind and the process must
  // end with _exit.
  bool stop(SteadyTime deadline);

  struct Status {
    std::map<std::string, std::uint64_t> retries;  // by reason, since start
    std::uint64_t acknowledged = 0;                // since start
    std::uint64_t rejected = 0;
    std::uint64_t attempts = 0;
    std::uint64_t in_flight = 0;
    Histogram latency;  // captured_at -> acknowledged; durable is some milliseconds after captured
    std::optional<std::string> last_error;  // reason of the last retry or rejection
    std::optional<Timestamp> last_success;
    std::optional<std::int64_t> next_attempt_in_ms;  // while backing off
  };
  Status status() const;
  // Nothing waits for this sink but dead letters: every event up to now is settled and committed.
  bool idle() const;
  // Forget the back-off and try now (after a reload, or for `--once`).
  void wake();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace scriptorium
