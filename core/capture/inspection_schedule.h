#pragma once

#include <algorithm>
#include <chrono>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/time.h"

namespace scriptorium {

// When each entry is inspected next, earliest first.
//
// Pure. Borrows the keys: an entry must be removed before its key ends.
class InspectionSchedule {
 public:
  // How soon an incomplete entry is inspected again if no notification says that it has changed.
  static constexpr std::chrono::milliseconds kFirstRetry{200};
  // The longest time between two inspections of an entry that exists and is not taken.
  static constexpr std::chrono::milliseconds kLongestRetry{30'000};

  using Due = std::pair<SteadyTime, std::string_view>;

  // The next inspection of an entry that was first seen at `first_seen` and is still incomplete:
  // the older it is, the less often.
  static SteadyTime retry_at(SteadyTime now, SteadyTime first_seen) {
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - first_seen);
    return now + std::clamp(age / 8, kFirstRetry, kLongestRetry);
  }

  void add(SteadyTime at, std::string_view key) { queue_.emplace(at, key); }
  void remove(SteadyTime at, std::string_view key) { queue_.erase({at, key}); }
  const Due* first() const { return queue_.empty() ? nullptr : &*queue_.begin(); }

 private:
  std::set<Due> queue_;
};

}  // namespace scriptorium
