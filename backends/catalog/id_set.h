#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// A set of small ids (blocks, chunks, jobs of a segment) as bits.
namespace scriptorium::catalog {

// Ids are dense and small in an intact segment. One that is not (damage) takes no memory: it counts
// as a member, so that what it names is looked at.
class IdSet {
 public:
  static constexpr std::int64_t kEnd = std::int64_t{1} << 27;

  static IdSet all() {
    IdSet set;
    set.rest_ = true;
    return set;
  }
  // 0 to `end` - 1.
  static IdSet below(std::size_t end) {
    IdSet set;
    set.words_.assign((end + 63) / 64, ~std::uint64_t{0});
    if (end % 64 != 0) set.words_.back() >>= 64 - end % 64;
    return set;
  }
  // Bit N of the bytes, the lowest of each byte first: whether N is a member.
  static IdSet of_bits(std::string_view bytes) {
    IdSet set;
    set.words_.resize((bytes.size() + 7) / 8);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      set.words_[i / 8] |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (i % 8 * 8);
    return set;
  }
  // The same bytes, perhaps with zeros behind them; only of a set that is not unlimited.
  std::string bits() const {
    std::string bytes(words_.size() * 8, '\0');
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<char>(static_cast<unsigned char>(words_[i / 8] >> (i % 8 * 8)));
    return bytes;
  }
  static bool is_small(std::int64_t id) noexcept { return id >= 0 && id < kEnd; }

  void add(std::int64_t id) {
    if (!is_small(id)) return;
    const auto word = static_cast<std::size_t>(id) / 64;
    grow(word + 1);
    words_[word] |= std::uint64_t{1} << (id % 64);
  }
  bool has(std::int64_t id) const noexcept {
    if (!is_small(id)) return true;
    const auto word = static_cast<std::size_t>(id) / 64;
    return word < words_.size() ? (words_[word] >> (id % 64) & 1) != 0 : rest_;
  }
  // Whether one of `begin` to `end` - 1 is a member.
  bool has_any(std::int64_t begin, std::int64_t end) const noexcept {
    if (!is_small(begin) || !is_small(end)) return true;
    while (begin < end) {
      const std::int64_t next = std::min(end, (begin / 64 + 1) * 64);
      std::uint64_t wanted = ~std::uint64_t{0} << (begin % 64);
      if (next % 64 != 0) wanted &= ~(~std::uint64_t{0} << (next % 64));
      if ((word(static_cast<std::size_t>(begin) / 64) & wanted) != 0) return true;
      begin = next;
    }
    return false;
  }
  // Every id, or every one but a few.
  bool is_unlimited() const noexcept { return rest_; }
  // Of those that were added; of an unlimited set: nothing useful.
  std::size_t size() const noexcept {
    std::size_t size = 0;
    for (const std::uint64_t word : words_)
      size += static_cast<std::size_t>(__builtin_popcountll(word));
    return size;
  }
  bool empty() const noexcept {
    return !rest_ && std::all_of(words_.begin(), words_.end(), [](auto word) { return word == 0; });
  }
  template <typename Use>
  void for_each(Use use) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      for (std::uint64_t left = words_[i]; left != 0; left &= left - 1)
        use(static_cast<std::int64_t>(i * 64) + __builtin_ctzll(left));
    }
  }

  IdSet& operator&=(const IdSet& other) {
    grow(other.words_.size());
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] &= other.word(i);
    rest_ = rest_ && other.rest_;
    return *this;
  }
  IdSet& operator|=(const IdSet& other) {
    grow(other.words_.size());
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.word(i);
    rest_ = rest_ || other.rest_;
    return *this;
  }
  friend IdSet operator-(IdSet set, const IdSet& without) { return set &= ~without; }
  IdSet operator~() const {
    IdSet set = *this;
    for (std::uint64_t& word : set.words_) word = ~word;
    set.rest_ = !rest_;
    return set;
  }

 private:
  std::uint64_t word(std::size_t i) const noexcept {
    return i < words_.size() ? words_[i] : rest_ ? ~std::uint64_t{0} : 0;
  }
  void grow(std::size_t size) {
    if (words_.size() < size) words_.resize(size, rest_ ? ~std::uint64_t{0} : 0);
  }

  std::vector<std::uint64_t> words_;
  bool rest_ = false;  // whether ids beyond `words_` are members
};

}  // namespace scriptorium::catalog
