#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>

#include "core/api/event.h"

namespace scriptorium::journal {

// The newest events by number, without a gap: everything in (floor, newest]. A reader that is not
// behind the floor therefore needs no disk. Bounded in bytes; the oldest leave first. Not
// thread-safe.
class RecentEvents {
 public:
  struct Entry {
    std::uint64_t number = 0;
    std::shared_ptr<const Event> event;  // null: erased, or only on disk
    std::uint64_t cost = 0;
  };

  RecentEvents() = default;
  explicit RecentEvents(std::uint64_t limit) : limit_(limit) {}

  void start_after(std::uint64_t number) { floor_ = number; }
  void add(std::uint64_t number, std::shared_ptr<const Event> event) {
    const std::uint64_t cost = (event ? event->memory_size() : 0) + kOverhead;
    entries_.push_back({number, std::move(event), cost});
    bytes_ += cost;
    while (bytes_ > limit_ && !entries_.empty()) drop_front();
  }
  void drop_until(std::uint64_t number) {
    while (!entries_.empty() && entries_.front().number <= number) drop_front();
  }
  void erase(std::uint64_t number) {
    const auto it = after(number - 1);
    if (it == entries_.end() || it->number != number || !it->event) return;
    it->event.reset();
    bytes_ -= it->cost;
    it->cost = 0;
    while (!entries_.empty() && !entries_.front().event) drop_front();
  }
  bool covers(std::uint64_t number) const { return number >= floor_; }
  std::deque<Entry>::iterator after(std::uint64_t number) {
    return std::upper_bound(entries_.begin(), entries_.end(), number,
                            [](std::uint64_t n, const Entry& e) { return n < e.number; });
  }
  std::deque<Entry>::iterator end() { return entries_.end(); }
  std::shared_ptr<const Event> find(std::uint64_t number) {
    const auto it = after(number - 1);
    return it != entries_.end() && it->number == number ? it->event : nullptr;
  }

 private:
  // In bytes, of one event: nodes, small strings, the allocator's own.
  static constexpr std::uint64_t kOverhead = 1024;

  void drop_front() {
    bytes_ -= entries_.front().cost;
    floor_ = std::max(floor_, entries_.front().number);
    entries_.pop_front();
  }

  std::uint64_t limit_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t floor_ = 0;
  std::deque<Entry> entries_;
};

}  // namespace scriptorium::journal
