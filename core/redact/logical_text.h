#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace scriptorium::redact {

// A text as rules see it: a script with its continued lines joined, as the shell does (a backslash
// and the newline after it are removed; POSIX.1-2017, Shell 2.2.1), and the way back to the text's
// own offsets. A backslash that another one quotes continues nothing, nor does one in a line that
// is a comment. CR LF counts as a newline, because a file from Windows is no less worth protecting.
//
// Borrows the text. Copies it only if a line is continued.
class LogicalText {
 public:
  LogicalText(std::string_view text, bool join_continued_lines);
  LogicalText(const LogicalText&) = delete;
  LogicalText& operator=(const LogicalText&) = delete;

  std::string_view text() const noexcept { return cuts_.empty() ? original_ : joined_; }
  // The offset in the original of the byte at `offset`.
  std::size_t original_of(std::size_t offset) const noexcept;

 private:
  struct Cut {
    std::size_t offset;   // in the joined text: the first byte after what was removed
    std::size_t removed;  // bytes removed so far
  };
  std::string_view original_;
  std::string joined_;
  std::vector<Cut> cuts_;
};

// The line that holds the byte at `offset`: a range of the text, without what ends it. A line ends
// in LF, CR LF or NUL (in an environment that could not be parsed, NUL separates variables).
struct LineRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};
LineRange line_around(std::string_view text, std::size_t offset) noexcept;

}  // namespace scriptorium::redact
