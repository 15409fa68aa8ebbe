#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <vector>

#include "core/delivery/batch.h"
#include "core/delivery/dispatch_state.h"

namespace scriptorium::delivery {

// Makes the batches of one sink: from the journal in its order, and from the parked events that are
// due.
// Owns:    nothing; borrows the context.
// Threads: any worker; among themselves they agree on who reads.
class BatchReader {
 public:
  explicit BatchReader(DispatchContext& context) : context_(context) {}

  // The next batch; waits for one. Empty at a stop, and sometimes without one. `after_parked`: the
  // worker's last batch held parked events, so that new ones come first this time.
  Batch next(const std::stop_token& stop, bool after_parked);
  // A refused batch that has room takes new events along: if it was refused for its content, they
  // prove that the destination works.
  void top_up(Batch& batch);

 private:
  // What a worker that wants a batch does next.
  struct Turn {
    std::vector<PendingEvent> due;  // not empty: that is the batch
    bool reads = false;             // else: this worker reads, the others wait
    bool refills = false;           // it begins with a refill of the parked events
    std::uint64_t generation = 0;   // of Journal::parked_generation()
    std::uint64_t interrupts = 0;
    SteadyTime wake_at;
    std::stop_token interrupted;
  };
  Turn take_turn(bool after_parked);
  void wait_for_reader(const Turn& turn, const std::stop_token& stop);
  void wait_for_events(const Turn& turn, const std::stop_token& stop);

  Batch read_fresh(const Turn& turn, const std::stop_token& stop);
  bool append_fresh(Batch& batch, BatchLimits& limits, std::uint64_t& after);
  void give_out(Batch& batch, std::size_t from, std::uint64_t position);
  void refill();
  std::optional<std::vector<PendingEvent>> next_parked_page(std::uint64_t& after);
  PendingEvent pending_of(Journal::Item item, bool is_parked) const;
  void report_failure(const Error& error);

  DispatchContext& context_;
};

}  // namespace scriptorium::delivery
