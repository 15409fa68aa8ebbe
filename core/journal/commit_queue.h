#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "core/base/time.h"
#include "core/journal/entry.h"

namespace scriptorium::journal {

// What waits for the writer thread, and who must wait because of it. It decides and counts; it has
// no lock and no clock. Guarded<CommitQueue> carries it between the threads.
//
// Back-pressure: a source may add an event only while the journal is not full and the queue is
// below its limit in bytes; sinks get new events only while the settlements queued are few enough.
// Settlements and marks themselves are always accepted.
class CommitQueue {
 public:
  CommitQueue() = default;
  explicit CommitQueue(std::uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // Producers

  // Under back-pressure. False: no room, and `entry` is untouched.
  bool try_add(Entry& entry);
  void add(Entry entry, SteadyTime now);
  std::uint64_t added() const { return added_; }             // entries ever added
  std::uint64_t done() const { return done_; }               // entries ever committed
  std::uint64_t bytes() const { return bytes_ + writing_; }  // queued or being committed
  bool is_full() const { return full_; }                     // the journal is at its limit
  // Nothing will be taken soon: the journal is full, or commits fail.
  bool is_blocked() const { return full_ || stuck_ || broken_; }
  // More deliveries would only add to settlements that the disk does not take.
  bool is_backlogged() const;

  // flush(): everything added before is committed, and what it made superfluous is removed.
  void begin_flush() { ++flushing_; }
  void end_flush() { --flushing_; }
  bool is_flushed(std::uint64_t upto) const { return done_ >= upto && pruned_ >= upto; }
  bool is_broken() const { return broken_; }

  // The writer thread

  bool has_work() const { return !entries_.empty() || (flushing_ > 0 && pruned_ < added_); }
  // An entry that somebody waits for, or many others: no reason to gather more.
  bool is_busy() const;
  // So much that the pause between two commits is not worth its delay.
  bool is_pressing() const;
  // Lazy entries may wait until then for others to share their commit.
  SteadyTime gather_until() const;
  // The entries of the next commit; a command comes alone.
  std::vector<Entry> take(SteadyTime now);
  // `all_pruned`: what no sink needs any more is removed, or its removal has begun.
  void committed(std::uint64_t entries, bool all_pruned);
  void commit_failed() { stuck_ = true; }
  // Nothing will be committed any more. Returns what was queued.
  std::deque<Entry> break_off();
  // Whether to remove what no sink needs any more, however little that is. `deferred_since`: since
  // when it waits for more; `used`: bytes that the journal uses.
  bool must_prune(std::optional<SteadyTime> deferred_since, std::uint64_t used,
                  SteadyTime now) const;
  // Until when an idle writer may leave what no sink needs any more.
  static SteadyTime prune_until(SteadyTime deferred_since);

  enum class RoomChange { kNone, kBecameFull, kHasRoom };
  RoomChange note_used(std::uint64_t used);
  std::uint64_t has_room_below() const { return max_bytes_ / 100 * 95; }

 private:
  std::uint64_t byte_limit() const;
  void push(Entry entry);

  std::uint64_t max_bytes_ = 0;
  std::deque<Entry> entries_;
  std::uint64_t bytes_ = 0;    // of `entries_`
  std::uint64_t writing_ = 0;  // of those that the writer has taken, until they are committed
  std::uint64_t lazy_ = 0, urgent_ = 0, commands_ = 0;  // in `entries_`
  SteadyTime first_lazy_;
  std::uint64_t added_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t pruned_ = 0;    // of those, up to where pruning was done or has begun
  std::uint64_t flushing_ = 0;  // flush() calls that wait
  bool full_ = false;
  bool stuck_ = false;   // commits fail at the moment
  bool broken_ = false;  // nothing will be committed any more
};

}  // namespace scriptorium::journal
