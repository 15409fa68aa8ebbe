#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/api/event.h"
#include "core/base/time.h"

namespace scriptorium::delivery {

// One event that one sink has yet to settle.
struct PendingEvent {
  std::uint64_t sequence = 0;          // in the journal
  std::shared_ptr<const Event> event;  // null: damaged; the journal has made it a dead letter
  std::uint32_t attempts = 0;
  Timestamp first_attempt;   // zero: this process has not attempted it
  std::uint32_t throws = 0;  // exceptions of the plugin while this was the only event of its batch
  bool deliver_alone = false;
  bool is_suspect = false;  // of crashing the daemon (crash_record.h): always delivered alone
  bool is_parked = false;   // the journal's cursor has passed it

  std::uint64_t bytes() const { return event ? event->bytes_size() : 0; }
};

// Events that are handed to a sink together, in the journal's order.
struct Batch {
  std::vector<PendingEvent> events;
  std::uint32_t refusals = 0;            // how often the destination refused all of it
  std::uint64_t accepts_at_refusal = 0;  // Gate::accepts() at the last refusal
  bool is_full = false;                  // the event after it did not fit
  bool is_probe = false;                 // passed the closed gate
  // Its place in HandOverOrder; nothing if batches may overtake one another.
  std::optional<std::uint64_t> place;

  bool empty() const { return events.empty(); }
  // Read from the journal in order: neither parked before nor delivered alone after an exception.
  // Only such a batch speaks for the destination as a whole.
  bool is_fresh() const {
    return !empty() && !events.front().is_parked && !events.front().deliver_alone;
  }
  bool is_suspect() const { return !empty() && events.front().is_suspect; }
};

inline std::vector<std::uint64_t> sequences_of(const Batch& batch) {
  std::vector<std::uint64_t> sequences;
  sequences.reserve(batch.events.size());
  for (const PendingEvent& event : batch.events) sequences.push_back(event.sequence);
  return sequences;
}

}  // namespace scriptorium::delivery
