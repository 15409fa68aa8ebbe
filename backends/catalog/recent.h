#pragma once

#include <cstddef>
#include <unordered_map>
#include <utility>

namespace scriptorium::catalog {

// A map that remembers at least the last `most` / 2 entries that were used, and at most `most`:
// two generations, of which the older is dropped when the younger is full. Cheaper than a list in
// order of use, and as good for what repeats.
// Threads: one at a time. Pointers are valid until the next call.
template <typename Key, typename Value>
class RecentMap {
 public:
  explicit RecentMap(std::size_t most) : half_(most / 2 + 1) {}

  Value* find(const Key& key) {
    if (const auto found = young_.find(key); found != young_.end()) return &found->second;
    const auto found = old_.find(key);
    if (found == old_.end()) return nullptr;
    Value value = std::move(found->second);
    old_.erase(found);
    return &insert(key, std::move(value));
  }
  Value& insert(const Key& key, Value value) {
    if (young_.size() >= half_) {
      old_ = std::exchange(young_, {});
      young_.reserve(half_);
    }
    return young_.insert_or_assign(key, std::move(value)).first->second;
  }
  void erase(const Key& key) {
    young_.erase(key);
    old_.erase(key);
  }
  void clear() {
    young_.clear();
    old_.clear();
  }

 private:
  std::size_t half_;
  std::unordered_map<Key, Value> young_;
  std::unordered_map<Key, Value> old_;
};

}  // namespace scriptorium::catalog
