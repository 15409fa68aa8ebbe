#include "core/journal/commit_queue.h"

#include <algorithm>
#include <utility>

namespace scriptorium::journal {
namespace {

using std::chrono::milliseconds;

// Above it a source waits; a small journal's queue is a quarter of the journal.
constexpr std::uint64_t kQueueBytes = 8U << 20;
constexpr std::uint64_t kBatchBytes = 8U << 20;  // one transaction
constexpr std::size_t kBatchEntries = 2000;
// Uncommitted settlements, above which sinks get nothing new.
constexpr std::uint64_t kLazyLimit = 100'000;
// How long settlements may wait for others to share their commit: no caller waits for them.
constexpr milliseconds kGather{10};
// How long what no sink needs any more may stay, unless there is much of it.
constexpr milliseconds kPruneDelay{50};

}  // namespace

// What is queued is written even if the journal is full by then, so it must be small compared with
// the limit.
std::uint64_t CommitQueue::byte_limit() const { return std::min(kQueueBytes, max_bytes_ / 4); }

void CommitQueue::push(Entry entry) {
  ++(entry.urgent ? urgent_ : lazy_);
  if (entry.is_command()) ++commands_;
  bytes_ += entry.bytes;
  ++added_;
  entries_.push_back(std::move(entry));
}

bool CommitQueue::try_add(Entry& entry) {
  // An entry that alone exceeds the limit is taken once the queue is empty.
  if (full_ || (bytes_ > 0 && bytes_ + entry.bytes > byte_limit())) return false;
  push(std::move(entry));
  return true;
}

void CommitQueue::add(Entry entry, SteadyTime now) {
  if (!entry.urgent && lazy_ == 0) first_lazy_ = now;
  push(std::move(entry));
}

bool CommitQueue::is_backlogged() const {
  return lazy_ > kLazyLimit || (stuck_ && lazy_ > kLazyLimit / 10);
}

bool CommitQueue::is_busy() const {
  return urgent_ > 0 || flushing_ > 0 || lazy_ > kBatchEntries / 2;
}

bool CommitQueue::is_pressing() const {
  return commands_ > 0 || flushing_ > 0 || entries_.size() > kBatchEntries / 2 ||
         bytes_ > kBatchBytes / 2;
}

SteadyTime CommitQueue::gather_until() const { return first_lazy_ + kGather; }

std::vector<Entry> CommitQueue::take(SteadyTime now) {
  std::vector<Entry> batch;
  writing_ = 0;
  while (!entries_.empty() && batch.size() < kBatchEntries && writing_ < kBatchBytes) {
    Entry& entry = entries_.front();
    const bool command = entry.is_command();
    if (command && !batch.empty()) break;
    writing_ += entry.bytes;
    bytes_ -= entry.bytes;
    --(entry.urgent ? urgent_ : lazy_);
    if (command) --commands_;
    batch.push_back(std::move(entry));
    entries_.pop_front();
    if (command) break;
  }
  if (lazy_ > 0) first_lazy_ = now;
  return batch;
}

void CommitQueue::committed(std::uint64_t entries, bool all_pruned) {
  done_ += entries;
  writing_ = 0;
  if (all_pruned) pruned_ = done_;
  stuck_ = false;
}

std::deque<Entry> CommitQueue::break_off() {
  urgent_ = lazy_ = bytes_ = writing_ = commands_ = 0;
  broken_ = true;
  return std::exchange(entries_, {});
}

bool CommitQueue::must_prune(std::optional<SteadyTime> deferred_since, std::uint64_t used,
                             SteadyTime now) const {
  if (!deferred_since && flushing_ == 0) return false;
  return full_ || (flushing_ > 0 && pruned_ < added_) || used > max_bytes_ / 10 * 9 ||
         (deferred_since && now >= prune_until(*deferred_since));
}

SteadyTime CommitQueue::prune_until(SteadyTime deferred_since) {
  return deferred_since + kPruneDelay;
}

CommitQueue::RoomChange CommitQueue::note_used(std::uint64_t used) {
  if (!full_ && used >= max_bytes_) {
    full_ = true;
    return RoomChange::kBecameFull;
  }
  if (full_ && used < has_room_below()) {
    full_ = false;
    return RoomChange::kHasRoom;
  }
  return RoomChange::kNone;
}

}  // namespace scriptorium::journal
