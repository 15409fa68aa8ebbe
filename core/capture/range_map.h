#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <variant>
#include <vector>

namespace scriptorium {

// Maps numbers to values and stores runs of equal values as ranges, so that a million numbers in a
// row cost as much as one. Ranges never overlap: assign() replaces earlier values and splits ranges
// at its edges, and neighbours of equal value become one range.
//
// Value:   copied, and compared with ==.
// Threads: none of its own; the caller locks.
template <typename Value>
class RangeMap {
 public:
  struct Range {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    Value value;
    std::uint64_t count() const { return last - first + 1; }
  };

  // These functions do nothing, and find nothing, if first > last.
  void assign(std::uint64_t first, std::uint64_t last, Value value = {}) {
    if (first > last) return;
    erase(first, last);
    auto after = ranges_.lower_bound(first);
    if (after != ranges_.end() && last + 1 == after->first && after->second.value == value) {
      last = after->second.last;
      after = ranges_.erase(after);
    }
    if (after != ranges_.begin()) {
      const auto before = std::prev(after);
      if (before->second.last + 1 == first && before->second.value == value) {
        before->second.last = last;
        return;
      }
    }
    ranges_.emplace_hint(after, first, Held{last, std::move(value)});
  }

  // Returns how many of the numbers had a value.
  std::uint64_t erase(std::uint64_t first, std::uint64_t last) {
    std::uint64_t erased = 0;
    for (const Range& part : within(first, last)) {
      const auto at = std::prev(ranges_.upper_bound(part.first));
      const std::uint64_t whole_first = at->first;
      const Held whole = at->second;
      ranges_.erase(at);
      if (whole_first < part.first) ranges_.emplace(whole_first, Held{part.first - 1, whole.value});
      if (part.last < whole.last) ranges_.emplace(part.last + 1, whole);
      erased += part.count();
    }
    return erased;
  }

  // Null if the number has no value. Valid until the next change.
  const Value* find(std::uint64_t number) const {
    const auto after = ranges_.upper_bound(number);
    if (after == ranges_.begin()) return nullptr;
    const auto at = std::prev(after);
    return at->second.last >= number ? &at->second.value : nullptr;
  }
  bool contains(std::uint64_t number) const { return find(number) != nullptr; }

  // The parts of the ranges that lie within first..last, in ascending order.
  std::vector<Range> within(std::uint64_t first, std::uint64_t last) const {
    std::vector<Range> parts;
    if (first > last) return parts;
    auto at = ranges_.upper_bound(first);
    if (at != ranges_.begin() && std::prev(at)->second.last >= first) --at;
    for (; at != ranges_.end() && at->first <= last; ++at)
      parts.push_back(
          {std::max(first, at->first), std::min(last, at->second.last), at->second.value});
    return parts;
  }
  std::vector<Range> all() const { return within(0, UINT64_MAX); }

  std::size_t size() const { return ranges_.size(); }  // in ranges
  std::uint64_t total() const {                        // in numbers
    std::uint64_t sum = 0;
    for (const auto& [first, held] : ranges_) sum += held.last - first + 1;
    return sum;
  }

 private:
  struct Held {
    std::uint64_t last = 0;
    Value value;
  };
  std::map<std::uint64_t, Held> ranges_;  // by their first number
};

// A set of numbers.
using NumberRanges = RangeMap<std::monostate>;

}  // namespace scriptorium
