#pragma once

#include <cstdint>
#include <istream>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace scriptorium::cli {

// Where a command reads and writes; a test gives it strings. Borrows the streams.
struct Console {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool in_is_terminal = false;
  bool out_is_terminal = false;
  bool colour = false;  // out_is_terminal and NO_COLOR unset
  // The command may change this process's user and privileges for good.
  bool owns_process = false;

  std::string bold(std::string_view text) const;
  std::string green(std::string_view text) const;
  std::string yellow(std::string_view text) const;
  std::string red(std::string_view text) const;
};

// The process's own, by isatty() and NO_COLOR (https://no-color.org).
Console standard_console();

// Lines of columns, two spaces apart, the first line in bold. Columns named in `numbers` are set
// flush right. The text must be printable; colours are counted out.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> head, std::vector<std::size_t> numbers = {});
  void add(std::vector<std::string> row);
  // A whole line beneath the last row.
  void note(std::string text);
  std::string text(const Console& console) const;

 private:
  struct Line {
    std::vector<std::string> cells;
    std::string note;
  };
  std::vector<Line> lines_;
  std::vector<std::size_t> numbers_;
};

// "812 ms", "4.2 s", "13 min", "5 h 10 min", "3 d 4 h".
std::string format_seconds(double seconds);
// "1 job", "2 jobs"; for a noun whose plural ends in s.
std::string count_of(std::uint64_t count, const std::string& noun);
// With blanks after it until it has `width` bytes.
std::string padded(std::string text, std::size_t width);

// Bytes as they may go to a terminal: control characters but newline and tab, and what is not
// UTF-8, escaped. Newlines stay, so a script keeps its lines but cannot move the cursor or set a
// title.
std::string terminal_text(std::string_view bytes);

}  // namespace scriptorium::cli
