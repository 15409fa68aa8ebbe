#include "core/delivery/parked_store.h"

#include <algorithm>
#include <utility>

namespace scriptorium::delivery {

void ParkedStore::park(PendingEvent event, std::optional<std::chrono::milliseconds> hint,
                       SteadyTime now) {
  const SteadyTime due = now + back_off_.next(event.attempts, hint);
  add(due, std::move(event));
}

void ParkedStore::add(SteadyTime due, PendingEvent event) {
  const bool fits =
      waiting_.size() < kMostEvents && (waiting_.empty() || bytes_ + event.bytes() <= kMostBytes);
  if (!fits) {
    places_.erase(event.sequence);
    journal_has_more_ = true;
    ++overflows_;
    return;
  }
  places_[event.sequence] = {.where = Where::kWaiting};
  bytes_ += event.bytes();
  waiting_.emplace(due, std::move(event));
}

void ParkedStore::mark_settled(std::uint64_t sequence) {
  if (auto found = places_.find(sequence); found != places_.end())
    found->second = {.where = Where::kSettled, .refill = refills_};
}

std::optional<SteadyTime> ParkedStore::next_attempt() const {
  return waiting_.empty() ? std::nullopt : std::optional(first_due());
}

std::vector<PendingEvent> ParkedStore::take_due(SteadyTime now, BatchLimits limits) {
  std::vector<PendingEvent> due;
  while (is_due(now)) {
    auto first = waiting_.begin();
    const bool alone = first->second.deliver_alone || first->second.is_suspect;
    if (alone && !due.empty()) break;
    if (!limits.add(first->second.bytes())) break;
    bytes_ -= first->second.bytes();
    mark_in_hand(first->second.sequence);
    due.push_back(std::move(first->second));
    waiting_.erase(first);
    if (alone) break;
  }
  std::sort(due.begin(), due.end(),
            [](const PendingEvent& a, const PendingEvent& b) { return a.sequence < b.sequence; });
  return due;
}

void ParkedStore::forget_back_off(SteadyTime now) {
  refill_at_ = now;
  std::multimap<SteadyTime, PendingEvent> waiting;
  for (auto& [due, event] : waiting_) waiting.emplace(std::min(due, now), std::move(event));
  waiting_ = std::move(waiting);
}

void ParkedStore::note_generation(std::uint64_t generation, SteadyTime now) {
  if (generation == generation_) return;
  generation_ = generation;
  journal_has_more_ = true;
  refill_at_ = now;
}

SteadyTime ParkedStore::next_wake(SteadyTime now) const {
  SteadyTime wake = now + std::chrono::hours{1};
  if (!waiting_.empty()) wake = std::min(wake, first_due());
  if (may_refill()) wake = std::min(wake, refill_at_);
  return wake;
}

void ParkedStore::begin_refill() {
  ++refills_;
  overflows_before_ = overflows_;
  met_in_hand_ = false;
}

void ParkedStore::forget_flushed() {
  std::erase_if(places_, [&](const auto& entry) {
    return entry.second.where == Where::kSettled && entry.second.refill < refills_;
  });
}

bool ParkedStore::knows(std::uint64_t sequence) {
  const auto found = places_.find(sequence);
  if (found == places_.end()) return false;
  met_in_hand_ = met_in_hand_ || found->second.where != Where::kWaiting;
  return true;
}

bool ParkedStore::add_page(std::vector<PendingEvent> page, SteadyTime now) {
  if (!page.empty()) {
    for (PendingEvent& event : page) {
      if (event.event != nullptr && !places_.contains(event.sequence)) add(now, std::move(event));
    }
    return waiting_.size() >= kMostEvents || bytes_ >= kMostBytes / 2;
  }
  // An event that was in hand may have become a dead letter that is already put back: the journal
  // holds it as parked once more, and only another refill finds it.
  journal_has_more_ = met_in_hand_ || overflows_ != overflows_before_;
  refill_at_ = journal_has_more_ ? now + kRefillPause : now;
  return true;
}

}  // namespace scriptorium::delivery
