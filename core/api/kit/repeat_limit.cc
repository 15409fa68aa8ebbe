#include "core/api/kit/repeat_limit.h"

#include <algorithm>

namespace scriptorium {

bool RepeatLimit::allows(std::string_view key, SteadyTime now) {
  return logged_.with([&](Logged& logged) {
    if (const auto last = logged.find(key); last != logged.end()) {
      if (interval_ == kOnce || now - last->second < interval_) return false;
      last->second = now;
      return true;
    }
    if (logged.size() >= most_keys_) {
      logged.erase(std::min_element(logged.begin(), logged.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      }));
    }
    logged.emplace(key, now);
    return true;
  });
}

bool RepeatLimit::forget(std::string_view prefix) {
  return logged_.with([&](Logged& logged) {
    return std::erase_if(logged, [&](const auto& one) { return one.first.starts_with(prefix); }) >
           0;
  });
}

}  // namespace scriptorium
