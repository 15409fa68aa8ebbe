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

// The small decisions of a dispatcher, without its threads: no clock, no lock, no journal. Not
// thread-safe; the dispatcher keeps each of these under its lock.
namespace scriptorium::delivery {

inline constexpr std::chrono::milliseconds kBackOffBase{200};
// A hint is followed up to this, or up to retry_max_ms if that is more, so that no answer of a
// destination stops its sink for days.
inline constexpr std::chrono::milliseconds kHintMax{3'600'000};
inline constexpr std::uint32_t kThrowsUntilDead = 3;

// Full jitter (Brooker, "Exponential Backoff And Jitter"): a random delay between zero and a limit
// that doubles. Many daemons that lost one destination then do not return to it in step.
class BackOff {
 public:
  BackOff(std::chrono::milliseconds maximum, std::uint64_t seed)
      : maximum_(maximum), random_(seed) {}

  // After `failures` failures in a row: in [0, min(maximum, base * 2^(failures-1))], and at least
  // the hint.
  std::chrono::milliseconds next(std::uint32_t failures,
                                 std::optional<std::chrono::milliseconds> hint);

 private:
  std::chrono::milliseconds maximum_;
  std::mt19937_64 random_;
};

// How much may still go into a batch. The first event always fits, however large it is.
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

// What becomes of one delivery once its whole batch is settled.
enum class Decision {
  kAcknowledged,
  kDeadLetter,     // the sink rejected it
  kThrewTooOften,  // dead letter as well: the third exception while it was the only one
  kKeep,           // the whole batch was refused: the same events again after the back-off
  kPark,           // set aside in the journal, tried again on its own time
  kParkAlone,      // the same after an exception: never again together with others
  kTryAlone,       // one of several when the plugin threw: again at once, in a batch of its own
};

struct BatchFacts {
  bool threw = false;
  bool may_keep = true;  // see may_keep() in conclusion.h
};
// `throws`: for each settlement, how often the plugin threw before while it had that event alone.
std::vector<Decision> decide(std::span<const Settler::Settlement> settlements,
                             std::span<const std::uint32_t> throws, const BatchFacts& facts);

// The journal's cursor of one sink while several batches are under way: every event up to it that
// Journal::read() gave out has a settlement that was queued.
class CursorTrack {
 public:
  explicit CursorTrack(std::uint64_t cursor) : cursor_(cursor) {}

  void give_out(std::uint64_t sequence) { open_.emplace(sequence, false); }
  // What the cursor would be if these, in ascending order, were settled too; changes nothing.
  std::uint64_t cursor_with(std::span<const std::uint64_t> sequences) const;
  // The settlements of these were queued; returns the cursor.
  std::uint64_t mark_settled(std::span<const std::uint64_t> sequences);

 private:
  std::uint64_t cursor_;
  // What was given out above the cursor; true: settled, but an event before it is not.
  std::map<std::uint64_t, bool> open_;
};

// Counts by reason. Plugins word the reasons, so there are at most kReasons of kReasonBytes each;
// later ones count as "other".
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
