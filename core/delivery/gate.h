#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "core/base/time.h"
#include "core/delivery/plan.h"

namespace scriptorium::delivery {

// Whether a sink's destination is tried, and when. Open: every batch passes. Closed, because the
// destination refused a whole batch: once the back-off is over, one batch at a time passes as a
// probe, and its outcome opens the gate or prolongs the back-off.
// Pure: the clock is passed in. Threads: none; the dispatcher keeps it under its lock.
class Gate {
 public:
  Gate(std::chrono::milliseconds retry_max, std::uint64_t seed) : back_off_(retry_max, seed) {}

  bool is_closed() const { return closed_; }
  // Closed, and no probe is under way.
  bool awaits_probe() const { return closed_ && !probing_; }
  // When the next probe may pass; meaningful while awaits_probe().
  SteadyTime retry_at() const { return retry_at_; }
  // True: the caller's batch is the probe, and conclude() must be called for it.
  bool begin_probe(SteadyTime now);
  // How many batches had an event that the destination acknowledged or rejected. A change between
  // two refusals of a batch proves that the destination is up and the batch is the problem.
  std::uint64_t accepts() const { return accepts_; }

  // What became of one batch.
  struct Outcome {
    bool fresh = false;                             // Batch::is_fresh()
    bool probe = false;                             // Batch::is_probe
    bool refused = false;                           // the destination refused every event
    bool accepted = false;                          // it acknowledged or rejected at least one
    std::optional<std::chrono::milliseconds> hint;  // the longest that the destination asked for
  };
  enum class Announcement { kNone, kDown, kBack };  // what is to be logged now
  // Only fresh batches and probes close or open the gate: a refusal of parked events says nothing
  // about the destination.
  Announcement conclude(const Outcome& outcome, SteadyTime now);

  // The next probe may pass at once, and the back-off starts from its base.
  void forget_back_off(SteadyTime now);

 private:
  void prolong(const Outcome& outcome, SteadyTime now);

  BackOff back_off_;
  bool closed_ = false;
  bool probing_ = false;
  std::uint32_t failures_ = 0;  // in a row
  std::uint64_t accepts_ = 0;
  SteadyTime retry_at_;
  bool announced_ = false;  // that it is down
  SteadyTime announce_again_at_;
};

}  // namespace scriptorium::delivery
