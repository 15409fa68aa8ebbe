#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace scriptorium::redact {

// Finds all occurrences of many keywords in one pass over a text (Aho and Corasick, "Efficient
// string matching", CACM 18(6), 1975). Letters of ASCII match in any case, other bytes themselves.
//
// The automaton is complete: one addition and two loads for each byte of the text, whatever it
// holds. Bytes that no keyword tells apart share a column of the table, so that it stays small
// enough for the cache. Immutable; any thread.
class KeywordTable {
 public:
  KeywordTable() : KeywordTable(std::vector<std::string>{}) {}
  // An empty keyword is never found. At most kMostBytes in all: the table has a row for each.
  explicit KeywordTable(const std::vector<std::string>& keywords);
  static constexpr std::size_t kMostBytes = std::size_t{64} << 10;

  // Calls hit(index of the keyword, offset after its last byte) for each occurrence, in the order
  // of these offsets, until it returns false.
  template <typename Hit>
  void scan(std::string_view text, Hit&& hit) const {
    const std::uint32_t* const next = next_.data();
    const std::uint32_t first_final = first_final_;
    std::uint32_t state = 0;  // the offset of its row
    for (std::size_t i = 0; i < text.size(); ++i) {
      state = next[state + class_[static_cast<unsigned char>(text[i])]];
      if (state < first_final) continue;
      const std::size_t final_state = (state - first_final) / classes_;
      for (std::uint32_t n = found_begin_[final_state]; n < found_begin_[final_state + 1]; ++n) {
        if (!hit(std::size_t{found_[n]}, i + 1)) return;
      }
    }
  }

  std::size_t states() const noexcept { return classes_ == 0 ? 0 : next_.size() / classes_; }

 private:
  std::array<std::uint8_t, 256> class_{};  // 0: in no keyword
  std::uint32_t classes_ = 1;
  std::vector<std::uint32_t> next_;  // rows of states; final states come last
  std::uint32_t first_final_ = 0;
  std::vector<std::uint32_t> found_begin_;  // by final state: its first keyword in found_
  std::vector<std::uint32_t> found_;
};

}  // namespace scriptorium::redact
