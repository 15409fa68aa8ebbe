#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/cli/console.h"

// A table that gives way to the width of a terminal: first its long columns become narrower, then
// the least important ones are left out. Pure.
namespace scriptorium::cli {

struct FittedColumn {
  std::string title;
  bool right = false;     // aligned
  std::size_t least = 0;  // may be cut to this width; 0: is never cut
  int rank = 0;           // 0: is never left out; else the highest rank goes first
};

enum class Paint { kNone, kGood, kWarning, kBad, kStrong };
struct FittedCell {
  std::string text;  // printable
  Paint paint = Paint::kNone;
};

// The widths of the columns; 0: the column is left out. `natural`: the widest text of each, with
// its title. A width of 0 is no limit. A column without a text (natural 0) is left out.
std::vector<std::size_t> fit_columns(const std::vector<FittedColumn>& columns,
                                     std::vector<std::size_t> natural, std::size_t width);

// `text` in at most `width` columns; a '+' at the end says that something was cut.
std::string cut_text(std::string_view text, std::size_t width);

// Rows are added in portions, such as the pages of an answer; the first portion decides the widths,
// the later ones keep them and are cut to them on a terminal.
class FittedTable {
 public:
  explicit FittedTable(std::vector<FittedColumn> columns) : columns_(std::move(columns)) {}

  struct Row {
    std::vector<FittedCell> cells;
    std::vector<std::string> below;  // whole lines, as they are to be printed
  };
  // The lines of these rows; the first call puts the titles in front.
  std::string portion(const std::vector<Row>& rows, const Console& console);

 private:
  std::string line(const std::vector<FittedCell>& cells, const Console& console) const;

  std::vector<FittedColumn> columns_;
  std::vector<std::size_t> widths_;
};

}  // namespace scriptorium::cli
