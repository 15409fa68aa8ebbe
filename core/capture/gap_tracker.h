#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/spool_adapter.h"
#include "core/capture/range_map.h"

namespace scriptorium {

// "7" or "7-9".
std::string range_text(std::uint64_t first, std::uint64_t last);

// What is known about the numbers that were passed over.
struct GapStatus {
  // No entry was ever seen, and the scheduler does not say why; including `forgotten`.
  std::uint64_t suspected = 0;
  // The scheduler says that the job has a script, but no entry was ever seen.
  std::uint64_t confirmed = 0;
  // Explained by the scheduler since the start: a job without a script, or a part of another job,
  // such as a task of an array.
  std::uint64_t without_script = 0;
  std::uint64_t part_of_another = 0;
  std::uint64_t late = 0;           // appeared in the spool after they had been suspected
  std::uint64_t waiting = 0;        // just passed over, or the scheduler could not be asked yet
  std::uint64_t count_changes = 0;  // the scheduler's count wrapped or was reset
  std::uint64_t forgotten = 0;      // suspected, but their ranges are no longer stored
  std::optional<std::uint64_t> highest;
  std::vector<std::string> ranges;            // suspected, newest first, at most kRangesShown
  std::vector<std::string> confirmed_ranges;  // likewise
  std::uint64_t queries = 0;
  std::optional<std::string> last_error;

  static constexpr std::size_t kRangesShown = 50;
};

// Follows a count that goes up by one with each job, and keeps track of the numbers that were
// passed over. When a number has no entry although a later one has appeared, it is *waiting* for
// its entry, and the scheduler is asked about it. A number that is still unexplained after
// `patience` is *suspected*: its job came and went unseen, or the submission was refused after it
// had been given a number. A number of which the scheduler says that it has a script is
// *confirmed*.
//
// Several numbers are never suspected: those below the first that was seen, those that come out of
// order, those of a count that goes back a little (an id is used again after a crash), and those of
// a count that starts again (it wrapped).
// Memory: at most kRangesKept ranges; older ones are still counted, but without their numbers.
//
// Threads: none of its own; the caller locks.
class GapTracker {
 public:
  // The scheduler is first asked after this long: soon, because it forgets short jobs.
  static constexpr std::chrono::seconds kFirstQuestion{2};
  // If the scheduler cannot be asked for this long, the number is suspected without its answer.
  static constexpr std::chrono::seconds kGiveUp{600};
  static constexpr std::size_t kRangesKept = 1000;
  static constexpr std::size_t kRangesAhead = 10'000;

  explicit GapTracker(std::chrono::seconds patience) : patience_(patience) {}

  void change_patience(std::chrono::seconds patience) { patience_ = patience; }

  // An entry with this number was seen, in whatever state. Before scanned(), in any order.
  void seen(std::uint64_t number, SteadyTime now);
  // The whole spool has been listed: from here on, numbers that are passed over count.
  void scanned(SteadyTime now);
  // The spool was replaced or remounted: until the next scanned(), numbers come in any order again.
  void expect_listing() { listening_ = false; }

  // The numbers that wait, and since when the latest of them does. The list of numbers is empty if
  // there are more than `most`.
  NumberResolver::Question question(std::size_t most) const;
  // When to ask or judge next; nothing if no number waits.
  std::optional<SteadyTime> due() const;
  // Takes the scheduler's answer, if there is one, and judges what has waited long enough. `asks`:
  // there is a resolver to ask. Returns what has become suspected or confirmed, for one log line.
  struct Verdict {
    std::uint64_t suspected = 0;
    std::uint64_t confirmed = 0;
    std::string suspected_ranges;  // the first of them: "5-7, 9"
    std::string confirmed_ranges;
  };
  Verdict judge(SteadyTime now, bool asks, const std::optional<std::vector<NumberUse>>& answer);

  GapStatus status() const;
  // State that must survive a restart. load() accepts any text, and ignores what it does not
  // understand.
  std::string save() const;
  void load(std::string_view text, SteadyTime now);
  bool changed() const { return changed_; }
  void saved() { changed_ = false; }

 private:
  // An entry may be seen this many numbers after its successors.
  static constexpr std::uint64_t kNear = 1000;
  // A longer jump is not a gap: the count was reset.
  static constexpr std::uint64_t kJump = 1'000'000;
  // After this many numbers in a row far below the highest, the count has wrapped.
  static constexpr int kFollowers = 3;

  enum class State { kWaiting, kSuspected, kConfirmed };
  struct Gap {
    SteadyTime since;
    State state = State::kWaiting;
    bool asked = false;  // the scheduler has answered at least once
    bool operator==(const Gap&) const = default;
  };

  void advance(std::uint64_t number, SteadyTime now);
  void pass_over(std::uint64_t first, std::uint64_t last, SteadyTime now);
  void below(std::uint64_t number);
  // Entries with these numbers have appeared. False if none of the numbers was in a gap.
  bool appeared(std::uint64_t first, std::uint64_t last);
  // Drops these numbers from the gaps; those that were suspected are still counted.
  void forget(std::uint64_t first, std::uint64_t last);
  void bound();
  // Removes the numbers that the answer explains, and returns those in gaps that have a script.
  NumberRanges explain(std::span<const NumberUse> uses);

  std::chrono::seconds patience_;
  std::optional<std::uint64_t> highest_;
  bool listening_ = false;
  NumberRanges early_;  // seen before scanned()
  // Up to highest_; above it, what remains from a count that has since begun elsewhere.
  RangeMap<Gap> gaps_;
  // Above highest_, already explained by the scheduler.
  NumberRanges ahead_without_script_;
  NumberRanges ahead_part_of_another_;
  std::uint64_t follower_ = 0;
  int followers_ = 0;
  GapStatus counters_;  // what is counted since the start; the rest is empty
  bool changed_ = false;
};

}  // namespace scriptorium
