#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace scriptorium {

// Finds one literal text in bytes, in any case (ASCII), sixteen bytes at a time by two of its
// rarest bytes. Threads: any, several at once.
class LiteralSearch {
 public:
  // What must be beside an occurrence.
  enum class Edge : std::uint8_t {
    kAny,
    kWord,   // the end of the bytes, or a byte that is not of a word
    kBlank,  // a blank or a tab
  };

  // `text` must not be empty.
  explicit LiteralSearch(std::string_view text, Edge before = Edge::kAny, Edge after = Edge::kAny);

  // Bytes that a search may still compare, so that a text that nearly occurs everywhere does not
  // cost its length for each byte. `exhausted` is set where the search gave up.
  struct Budget {
    std::size_t left = 0;
    bool exhausted = false;
  };

  // Where it begins, at or after `from`. If the budget is exhausted, where the search has to go on.
  std::optional<std::size_t> find(std::string_view bytes, std::size_t from, Budget& budget) const;

  // How often the rarest bytes of the text are met in scripts: the smaller, the faster.
  unsigned commonness() const noexcept;
  std::size_t size() const noexcept { return folded_.size(); }

 private:
  struct Probe {
    std::size_t offset = 0;
    unsigned char folded = 0;
    unsigned char mask = 0;  // 0x20 for a letter, which makes it lower case
  };
  bool is_at(std::string_view bytes, std::size_t position, Budget& budget) const;

  std::string folded_;
  std::string masks_;
  Edge before_;
  Edge after_;
  std::array<Probe, 2> probes_;
};

}  // namespace scriptorium
