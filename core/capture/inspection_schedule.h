#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "core/base/time.h"

namespace scriptorium {

// When which entry is inspected next, earliest first. An entry that was scheduled anew, or needs no
// inspection any more, leaves its old place behind: the caller says which places are current.
//
// Pure. Memory: twice as many places as entries, and kSlack, if trim() is called after add().
class InspectionSchedule {
 public:
  // How soon an incomplete entry is inspected again if no notification tells that it has changed.
  static constexpr std::chrono::milliseconds kFirstRetry{200};
  // The longest time between two inspections of an entry that stands and is not taken.
  static constexpr std::chrono::milliseconds kLongestRetry{30'000};

  struct Due {
    SteadyTime at;
    std::string key;
    bool operator>(const Due& other) const { return at > other.at; }
  };

  // The next inspection of an entry that was first seen at `first_seen` and is still incomplete:
  // the older it is, the less often.
  static SteadyTime retry_at(SteadyTime now, SteadyTime first_seen) {
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - first_seen);
    return now + std::clamp(age / 8, kFirstRetry, kLongestRetry);
  }

  void add(SteadyTime at, std::string key) { queue_.push({at, std::move(key)}); }
  // The earliest one for which `is_current` holds; drops what comes before it.
  template <typename IsCurrent>
  const Due* first(IsCurrent is_current) {
    while (!queue_.empty() && !is_current(queue_.top())) queue_.pop();
    return queue_.empty() ? nullptr : &queue_.top();
  }
  void pop() { queue_.pop(); }
  // Drops what is not current, once that may be more than half. Under load nothing becomes due, so
  // first() alone would let it grow.
  template <typename IsCurrent>
  void trim(std::size_t entries, IsCurrent is_current) {
    if (queue_.size() <= 2 * entries + kSlack) return;
    std::vector<Due> current;
    for (; !queue_.empty(); queue_.pop()) {
      if (is_current(queue_.top())) current.push_back(queue_.top());
    }
    queue_ = Queue(std::greater<>(), std::move(current));
  }
  std::size_t size() const { return queue_.size(); }

 private:
  static constexpr std::size_t kSlack = 1000;
  using Queue = std::priority_queue<Due, std::vector<Due>, std::greater<>>;
  Queue queue_;
};

}  // namespace scriptorium
