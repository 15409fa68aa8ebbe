#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace scriptorium::query {

enum class EditKind : char { kSame = ' ', kRemoved = '-', kAdded = '+' };

// One line of one text, or of both. Numbers count from 1; 0: not in that text.
struct LineEdit {
  EditKind kind = EditKind::kSame;
  std::size_t old_number = 0;
  std::size_t new_number = 0;
  std::string_view text;  // without its newline; a view into the compared text
  bool operator==(const LineEdit&) const = default;
};

// A shortest list of edits that turns one text into the other, removals before additions (Myers,
// "An O(ND) difference algorithm", 1986). Beyond 2,000 differing lines it is no longer shortest:
// what lies between the common beginning and end is then removed and added as a whole, so that
// time and memory stay bounded (16 MiB). A missing last newline counts as a difference only if it
// is the only one.
std::vector<LineEdit> line_diff(std::string_view old_text, std::string_view new_text);

struct DiffCount {
  std::size_t removed = 0;
  std::size_t added = 0;
  bool any() const noexcept { return removed + added > 0; }
};
DiffCount count_edits(const std::vector<LineEdit>& edits);

// A run of edits with the lines around them, as in a unified diff.
struct Hunk {
  std::size_t old_begin = 0;
  std::size_t old_lines = 0;
  std::size_t new_begin = 0;
  std::size_t new_lines = 0;
  std::vector<LineEdit> edits;
};
std::vector<Hunk> hunks_of(const std::vector<LineEdit>& edits, std::size_t context);

// "@@ -1,4 +1,5 @@"
std::string hunk_head(const Hunk& hunk);

}  // namespace scriptorium::query
