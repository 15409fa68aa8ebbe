#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace scriptorium::cli {

// The streams that a command reads and writes; a test passes string streams. Borrows them.
struct Console {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool in_is_terminal = false;
  bool out_is_terminal = false;
  bool colour = false;  // out_is_terminal and NO_COLOR unset
  // The command may change this process's user and privileges for good.
  bool owns_process = false;
  std::size_t width = 0;   // of the terminal in columns; 0: not a terminal, lines have no end
  std::size_t height = 0;  // of the terminal in lines; 0: not a terminal

  std::string bold(std::string_view text) const;
  std::string green(std::string_view text) const;
  std::string yellow(std::string_view text) const;
  std::string red(std::string_view text) const;
};

// The process's streams, with isatty() and NO_COLOR (https://no-color.org).
Console standard_console();

// A table with columns two spaces apart and a bold first line. Columns named in `numbers` are
// right-aligned. The text must be printable; colour sequences have no width.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> head, std::vector<std::size_t> numbers = {});
  void add(std::vector<std::string> row);
  // A full-width line below the last row.
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

// The width of a text in columns: its code points without colour sequences. Wide East Asian
// characters count as one.
std::size_t text_columns(std::string_view text);

// "1 job", "2 jobs"; for a noun whose plural ends in s.
std::string count_of(std::uint64_t count, const std::string& noun);
// `text` padded with blanks to `width` bytes.
std::string padded(std::string text, std::size_t width);

// Bytes made safe for a terminal: ill-formed UTF-8 and control characters except newline and tab
// are escaped. A script keeps its lines but cannot move the cursor or set a title.
std::string terminal_text(std::string_view bytes);

}  // namespace scriptorium::cli
