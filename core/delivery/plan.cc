#include "core/delivery/plan.h"

#include <algorithm>

#include "core/base/text.h"

namespace scriptorium::delivery {

std::chrono::milliseconds BackOff::next(std::uint32_t failures,
                                        std::optional<std::chrono::milliseconds> hint) {
  using std::chrono::milliseconds;
  milliseconds limit = std::min(kBackOffBase, maximum_);
  for (std::uint32_t i = 1; i < failures && limit < maximum_; ++i)
    limit = std::min(limit * 2, maximum_);
  // Not std::uniform_int_distribution: its results differ between libraries, and one seed must give
  // one sequence of delays.
  const auto span = static_cast<std::uint64_t>(std::max<milliseconds::rep>(limit.count(), 0)) + 1;
  const milliseconds delay(static_cast<milliseconds::rep>(random_() % span));
  const milliseconds least =
      std::clamp(hint.value_or(milliseconds{0}), milliseconds{0}, std::max(kHintMax, maximum_));
  return std::max(delay, least);
}

bool BatchLimits::add(std::uint64_t bytes) {
  if (full()) return false;
  if (events_ > 0 && bytes > bytes_left()) return false;
  ++events_;
  bytes_ += bytes;
  return true;
}

std::vector<Decision> decide(std::span<const Settler::Settlement> settlements,
                             std::span<const std::uint32_t> throws, const BatchFacts& facts) {
  const auto was_thrown = [&](const Settler::Settlement& s) {
    return facts.threw && s.by_destructor;
  };
  const bool all_refused = std::all_of(
      settlements.begin(), settlements.end(),
      [&](const Settler::Settlement& s) { return s.outcome == Outcome::kRetry && !was_thrown(s); });
  std::vector<Decision> decisions;
  decisions.reserve(settlements.size());
  for (std::size_t i = 0; i < settlements.size(); ++i) {
    const Settler::Settlement& s = settlements[i];
    if (s.outcome == Outcome::kAcknowledged) {
      decisions.push_back(Decision::kAcknowledged);
    } else if (s.outcome == Outcome::kRejected) {
      decisions.push_back(Decision::kDeadLetter);
    } else if (was_thrown(s)) {
      if (settlements.size() > 1) {
        decisions.push_back(Decision::kTryAlone);
      } else {
        decisions.push_back(throws[i] + 1 >= kThrowsUntilDead ? Decision::kThrewTooOften
                                                              : Decision::kParkAlone);
      }
    } else {
      decisions.push_back(all_refused && facts.may_keep ? Decision::kKeep : Decision::kPark);
    }
  }
  return decisions;
}

std::uint64_t CursorTrack::cursor_with(std::span<const std::uint64_t> sequences) const {
  std::uint64_t cursor = cursor_;
  for (const auto& [sequence, is_settled] : open_) {
    if (!is_settled && !std::binary_search(sequences.begin(), sequences.end(), sequence)) break;
    cursor = sequence;
  }
  return cursor;
}

std::uint64_t CursorTrack::mark_settled(std::span<const std::uint64_t> sequences) {
  for (const std::uint64_t sequence : sequences) {
    if (auto found = open_.find(sequence); found != open_.end()) found->second = true;
  }
  while (!open_.empty() && open_.begin()->second) {
    cursor_ = open_.begin()->first;
    open_.erase(open_.begin());
  }
  return cursor_;
}

void ReasonCounts::add(const std::string& reason) {
  std::string key = printable(reason, kReasonBytes - 8);  // an escape and "..." may follow
  if (key.empty()) key = "no reason given";
  auto found = counts_.find(key);
  if (found == counts_.end() && counts_.size() >= kReasons - 1) key = "other";
  ++counts_[key];
}

}  // namespace scriptorium::delivery
