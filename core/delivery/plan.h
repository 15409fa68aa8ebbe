#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/api/delivery.h"

// What a dispatcher decides, without its threads: no clock, no lock, no journal. Not thread-safe;
// the dispatcher keeps each of these under its lock.
namespace scriptorium::delivery {

inline constexpr std::chrono::milliseconds kBackOffBase{200};
// A hint is followed up to here, or up to retry_max_ms if that is more: no answer of a destination
// stops us for days.
inline constexpr std::chrono::milliseconds kHintMax{3'600'000};
inline constexpr std::uint32_t kThrowsUntilDead = 3;

// Full jitter (Brooker, "Exponential Backoff And Jitter"): anything from nothing to the doubled
// limit, so that many daemons that lost one destination do not come back to it in step.
class BackOff {
 public:
  BackOff(std::chrono::milliseconds maximum, std::uint64_t seed)
      : maximum_(maximum), random_(seed) {}

  // For the failure number `failures` in a row, 1 = the first: in [0, min(maximum, base *
  // 2^(failures-1))], and never less than the hint.
  std::chrono::milliseconds next(std::uint32_t failures,
                                 std::optional<std::chrono::milliseconds> hint);

 private:
  std::chrono::milliseconds maximum_;
  std::mt19937_64 random_;
};

// How much may still go into a batch. An event alone is always let in, however large.
class BatchLimits {
 public:
  BatchLimits(std::uint64_t max_events, std::uint64_t max_bytes)
      : max_events_(max_events), max_bytes_(max_bytes) {}

  bool add(std::uint64_t bytes);  // false, and not counted, if it does not fit
  bool full() const { return events_ >= max_events_ || (events_ > 0 && bytes_ >= max_bytes_); }
  std::uint64_t events_left() const { return max_events_ - events_; }
  std::uint64_t bytes_left() const { return bytes_ >= max_bytes_ ? 0 : max_bytes_ - bytes_; }

 private:
  std::uint64_t max_events_;
  std::uint64_t max_bytes_;
  std::uint64_t events_ = 0;
  std::uint64_t bytes_ = 0;
};

// What becomes of one delivery of a batch, now that all of it is settled.
enum class Decision {
  kAcknowledged,
  kDeadLetter,     // the sink rejected it
  kThrewTooOften,  // dead letter as well: the third exception while it was the only one
  kKeep,           // the whole batch was refused: these same events again after the back-off
  kPark,           // put aside in the journal, again on its own time
  kParkAlone,      // the same after an exception: never again together with others
  kTryAlone,       // one of several when the plugin threw: again at once, the only one of its batch
};

struct BatchFacts {
  bool threw = false;
  bool may_keep = true;  // false: one that was parked, or is tried alone: its refusal says nothing
                         // of the destination
};
// `throws`: for each settlement, how often the plugin has thrown on that event alone.
std::vector<Decision> decide(std::span<const Settler::Settlement> settlements,
                             std::span<const std::uint32_t> throws, const BatchFacts& facts);

// Up to where everything that read() gave out was told to the journal, with several batches under
// way.
class CursorTrack {
 public:
  explicit CursorTrack(std::uint64_t cursor) : cursor_(cursor) {}

  void give_out(std::uint64_t sequence) { open_.emplace(sequence, false); }
  // Where the cursor stands if these (in ascending order) are told next; nothing changes.
  std::uint64_t cursor_with(std::span<const std::uint64_t> sequences) const;
  // These were told; returns the cursor.
  std::uint64_t told(std::span<const std::uint64_t> sequences);

 private:
  std::uint64_t cursor_;
  std::map<std::uint64_t, bool>
      open_;  // given out above the cursor; true: told already, something before it is not
};

// Counts by reason, of which there are at most kReasons; what comes later counts as "other".
class ReasonCounts {
 public:
  static constexpr std::size_t kReasons = 64;
  static constexpr std::size_t kReasonBytes = 200;

  void add(const std::string& reason);
  const std::map<std::string, std::uint64_t>& counts() const { return counts_; }

 private:
  std::map<std::string, std::uint64_t> counts_;
};

}  // namespace scriptorium::delivery
