#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/api/spool_adapter.h"
#include "core/capture/range_map.h"

namespace scriptorium {

// Numbers as ranges that neither overlap nor touch, so that a million in a row cost as much as one.
class NumberRanges {
 public:
  void add(std::uint64_t first, std::uint64_t last);
  // How many of them were there.
  std::uint64_t remove(std::uint64_t first, std::uint64_t last);
  bool contains(std::uint64_t number) const;
  // How many of first..last are there.
  std::uint64_t count(std::uint64_t first, std::uint64_t last) const;
  std::uint64_t total() const { return total_; }
  std::size_t size() const { return ranges_.size(); }
  // The part within first..last.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> within(std::uint64_t first,
                                                              std::uint64_t last) const;
  const std::map<std::uint64_t, std::uint64_t>& all() const { return ranges_; }  // first -> last

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;
  std::uint64_t total_ = 0;
};

// "7" or "7-9".
std::string range_text(std::uint64_t first, std::uint64_t last);

// What is known of the numbers that were passed over.
struct GapStatus {
  std::uint64_t suspected =
      0;  // no entry was ever seen, and the scheduler does not say why; all ranges together
  std::uint64_t confirmed =
      0;  // the scheduler says that there is a script, and no entry was ever seen
  std::uint64_t without_script = 0;  // explained since the start: a job without a script
  std::uint64_t part_of_another =
      0;  // explained since the start: a part of another job, such as an array's task
  std::uint64_t late = 0;           // appeared in the spool after they had been suspected
  std::uint64_t waiting = 0;        // just passed over, or the scheduler could not be asked yet
  std::uint64_t count_changes = 0;  // the scheduler's count began elsewhere: wrapped, or set anew
  std::uint64_t forgotten = 0;      // of `suspected`: in ranges that are no longer kept one by one
  std::optional<std::uint64_t> highest;
  std::vector<std::string> ranges;            // suspected, newest first, at most kRangesShown
  std::vector<std::string> confirmed_ranges;  // likewise
  std::uint64_t queries = 0;
  std::optional<std::string> last_error;

  static constexpr std::size_t kRangesShown = 50;
};

// Watches a count that goes up by one with each job: which numbers were passed over, and why. A
// number that no entry had when a later one appeared is *waiting* for its entry, and the scheduler
// is asked. What nobody can explain once it has waited `patience` is *suspected* (a job that came
// and went unseen, or a submission that was refused after it had been given a number); what the
// scheduler says has a script is *confirmed*.
//
// Not suspected of anything: numbers below the first that was seen, numbers that come in another
// order, a count that goes back a little (an id used again after a crash) or begins anew (it
// wrapped). Memory is bounded: at most kRangesKept ranges; older ones go on counting without their
// numbers.
//
// Threads: none of its own; the caller locks.
class GapTracker {
 public:
  // When the scheduler is asked first: soon, as it forgets short jobs.
  static constexpr std::chrono::seconds kFirstQuestion{2};
  // A number of which the scheduler could not be asked for so long is suspected without.
  static constexpr std::chrono::seconds kGiveUp{600};
  static constexpr std::size_t kRangesKept = 1000;
  static constexpr std::size_t kRangesAhead = 10'000;

  explicit GapTracker(std::chrono::seconds patience) : patience_(patience) {}

  // An entry of this number was seen, in whatever state. Before scanned(), in any order.
  void seen(std::uint64_t number, SteadyTime now);
  // The spool has been listed as a whole: from here on a number that is passed over counts.
  void scanned(SteadyTime now);
  // The spool was replaced or remounted: until the next scanned(), numbers come in any order again.
  void expect_listing() { listening_ = false; }

  // What waits, and since when the last of it does; no numbers if there are more than `most`.
  NumberResolver::Question question(std::size_t most) const;
  // When there is something to ask or to judge; nothing if none waits.
  std::optional<SteadyTime> due() const;
  // Takes what the scheduler said, if it could be asked, and judges what has waited long enough.
  // `asks`: somebody can be asked at all. Returns what became suspected or confirmed by this, for
  // one log line.
  struct Verdict {
    std::uint64_t suspected = 0;
    std::uint64_t confirmed = 0;
    std::string suspected_ranges;  // the first of them: "5-7, 9"
    std::string confirmed_ranges;
  };
  Verdict judge(SteadyTime now, bool asks, const std::optional<std::vector<NumberUse>>& answer);

  GapStatus status() const;
  // What must be known after a restart. load() takes any text; one that it does not understand is
  // as none.
  std::string save() const;
  void load(std::string_view text, SteadyTime now);
  bool changed() const { return changed_; }
  void saved() { changed_ = false; }

 private:
  // An entry may be seen that much later than its successors.
  static constexpr std::uint64_t kNear = 1000;
  // A longer jump is no gap: the count was set anew.
  static constexpr std::uint64_t kJump = 1'000'000;
  // So many numbers in a row, far below the highest, and the count has wrapped.
  static constexpr int kFollowers = 3;

  enum class State { kWaiting, kSuspected, kConfirmed };
  struct Gap {
    SteadyTime since;
    State state = State::kWaiting;
    bool asked = false;  // at least once
    bool operator==(const Gap&) const = default;
  };

  void advance(std::uint64_t number, SteadyTime now);
  void pass_over(std::uint64_t first, std::uint64_t last, SteadyTime now);
  void below(std::uint64_t number);
  // Ends what was suspected of these numbers, as they appeared. False if there was nothing.
  bool appeared(std::uint64_t first, std::uint64_t last);
  // Goes on counting what was suspected of these numbers without keeping them one by one.
  void forget(std::uint64_t first, std::uint64_t last);
  void bound();
  // Removes what needs no suspicion, and returns the numbers here that have a script.
  NumberRanges explain(std::span<const NumberUse> uses);

  std::chrono::seconds patience_;
  std::optional<std::uint64_t> highest_;
  bool listening_ = false;
  NumberRanges early_;  // seen before scanned()
  RangeMap<Gap>
      gaps_;  // up to highest_, and beyond it what is left of a count that began elsewhere
  // Beyond highest_, known from the scheduler already.
  NumberRanges ahead_without_script_;
  NumberRanges ahead_part_of_another_;
  std::uint64_t follower_ = 0;
  int followers_ = 0;
  std::uint64_t without_script_ = 0;
  std::uint64_t part_of_another_ = 0;
  std::uint64_t late_ = 0;
  std::uint64_t count_changes_ = 0;
  std::uint64_t forgotten_ = 0;
  bool changed_ = false;
};

}  // namespace scriptorium
