#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/base/time.h"
#include "core/delivery/batch.h"
#include "core/delivery/plan.h"

namespace scriptorium::delivery {

// The parked events of one sink that wait for their next attempt, each with a time of its own. At
// most 10,000 events or 4 MiB wait here; more of them wait in the journal alone and are fetched by
// a refill once half of the room is free.
// Pure: the clock is passed in. Threads: none; the dispatcher keeps it under its lock.
class ParkedStore {
 public:
  static constexpr std::size_t kMostEvents = 10'000;
  static constexpr std::uint64_t kMostBytes = 4U << 20;
  static constexpr std::chrono::seconds kRefillPause{30};

  ParkedStore(std::chrono::milliseconds retry_max, std::uint64_t seed)
      : back_off_(retry_max, seed) {}

  // Before the journal is told that this event is parked, so that a refill which reads it there
  // does not bring it a second time. park() or mark_settled() follows.
  void mark_in_hand(std::uint64_t sequence) { places_[sequence] = {.where = Where::kInHand}; }
  // After the journal was told. It is due after the back-off of its attempts, or the hint if that
  // is longer.
  void park(PendingEvent event, std::optional<std::chrono::milliseconds> hint, SteadyTime now);
  // The journal was told that this event needs no further attempt.
  void mark_settled(std::uint64_t sequence);

  bool is_due(SteadyTime now) const { return !waiting_.empty() && first_due() <= now; }
  std::optional<SteadyTime> next_attempt() const;
  // Takes out what is due, in the journal's order, within the limits. An event that is to be
  // delivered alone comes alone.
  std::vector<PendingEvent> take_due(SteadyTime now, BatchLimits limits);
  // Everything is due now, and the next refill too.
  void forget_back_off(SteadyTime now);

  // Parked events come back from the journal by a refill, after a start and after dead letters were
  // put back. One thread at a time does it: begin_refill(), Journal::flush(), forget_flushed(),
  // then Journal::parked() and add_page() until that returns true.

  // The journal's parked_generation(): a new one asks for a refill.
  void note_generation(std::uint64_t generation, SteadyTime now);
  bool wants_refill(SteadyTime now) const { return may_refill() && now >= refill_at_; }
  // When there is something to do: an event due or a refill; at most an hour from now.
  SteadyTime next_wake(SteadyTime now) const;
  void begin_refill();
  void forget_flushed();
  void postpone_refill(SteadyTime until) { refill_at_ = until; }
  // Whether a refill need not fetch this event.
  bool knows(std::uint64_t sequence);
  // One answer of Journal::parked(). True: the refill is over, since the store is full or the page
  // is empty.
  bool add_page(std::vector<PendingEvent> page, SteadyTime now);

 private:
  enum class Where { kWaiting, kInHand, kSettled };
  struct Place {
    Where where = Where::kWaiting;
    std::uint64_t refill = 0;  // kSettled: refills_ when the journal was told
  };

  SteadyTime first_due() const { return waiting_.begin()->first; }
  bool may_refill() const {
    return journal_has_more_ && waiting_.size() <= kMostEvents / 2 && bytes_ <= kMostBytes / 2;
  }
  void add(SteadyTime due, PendingEvent event);

  BackOff back_off_;
  std::multimap<SteadyTime, PendingEvent> waiting_;  // by when they are due
  std::uint64_t bytes_ = 0;                          // of waiting_
  // Every parked event of this process. A settled one stays until the journal has committed it:
  // until then the journal would give it out once more.
  std::map<std::uint64_t, Place> places_;
  std::uint64_t generation_ = 0;
  bool journal_has_more_ = true;  // it may hold parked events that do not wait here
  std::uint64_t overflows_ = 0;   // events that did not fit in
  SteadyTime refill_at_;
  std::uint64_t refills_ = 1;
  std::uint64_t overflows_before_ = 0;  // at the beginning of the refill
  bool met_in_hand_ = false;            // during the refill
};

}  // namespace scriptorium::delivery
