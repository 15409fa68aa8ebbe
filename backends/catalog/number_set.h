#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace scriptorium::catalog {

// Distinct numbers that are not 0, in one table: a node for each would cost more than the rest of
// what is done with them.
class NumberSet {
 public:
  // False: it was there.
  bool insert(std::uint64_t number) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    if (!put(number)) return false;
    ++size_;
    return true;
  }
  std::size_t size() const noexcept { return size_; }
  void clear() {
    std::fill(slots_.begin(), slots_.end(), 0);
    size_ = 0;
  }
  template <typename Use>
  void for_each(Use use) const {
    for (const std::uint64_t number : slots_) {
      if (number != 0) use(number);
    }
  }

 private:
  bool put(std::uint64_t number) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = ((number * 0x9e3779b97f4a7c15ULL) >> 32) & mask;  // Fibonacci hashing
    while (slots_[at] != 0 && slots_[at] != number) at = (at + 1) & mask;
    if (slots_[at] == number) return false;
    slots_[at] = number;
    return true;
  }
  void grow() {
    std::vector<std::uint64_t> before(std::max<std::size_t>(1'024, 2 * slots_.size()));
    before.swap(slots_);
    for (const std::uint64_t number : before) {
      if (number != 0) put(number);
    }
  }

  std::vector<std::uint64_t> slots_ = std::vector<std::uint64_t>(1'024);
  std::size_t size_ = 0;
};

}  // namespace scriptorium::catalog
