#include "core/cli/fitted_table.h"

#include <algorithm>
#include <utility>

namespace scriptorium::cli {
namespace {

constexpr std::size_t kBetween = 2;

std::size_t total(const std::vector<std::size_t>& widths) {
  std::size_t sum = 0;
  for (const std::size_t width : widths) sum += width == 0 ? 0 : width + kBetween;
  return sum == 0 ? 0 : sum - kBetween;
}

// Takes columns from the widest that may be cut, until the table fits; false if it cannot.
bool shrink(const std::vector<FittedColumn>& columns, std::vector<std::size_t>& widths,
            std::size_t width) {
  while (total(widths) > width) {
    std::size_t widest = columns.size();
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const bool may = columns[i].least > 0 && widths[i] > columns[i].least;
      if (may && (widest == columns.size() || widths[i] > widths[widest])) widest = i;
    }
    if (widest == columns.size()) return false;
    --widths[widest];
  }
  return true;
}

std::string painted(const std::string& text, Paint paint, const Console& console) {
  switch (paint) {
    case Paint::kGood: return console.green(text);
    case Paint::kWarning: return console.yellow(text);
    case Paint::kBad: return console.red(text);
    case Paint::kStrong: return console.bold(text);
    case Paint::kNone: break;
  }
  return text;
}

}  // namespace

std::vector<std::size_t> fit_columns(const std::vector<FittedColumn>& columns,
                                     std::vector<std::size_t> natural, std::size_t width) {
  if (width == 0) return natural;
  while (true) {
    std::vector<std::size_t> widths = natural;
    if (shrink(columns, widths, width)) return widths;
    std::size_t last = columns.size();
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (natural[i] > 0 && columns[i].rank > 0 &&
          (last == columns.size() || columns[i].rank > columns[last].rank))
        last = i;
    }
    if (last == columns.size()) return widths;
    natural[last] = 0;
  }
}

std::string cut_text(std::string_view text, std::size_t width) {
  if (text_columns(text) <= width) return std::string(text);
  if (width == 0) return {};
  std::size_t end = 0;
  for (std::size_t count = 0; end < text.size(); ++end) {
    if ((static_cast<unsigned char>(text[end]) & 0xC0U) != 0x80U && ++count == width) break;
  }
  return std::string(text.substr(0, end)) + "+";
}

std::string FittedTable::line(const std::vector<FittedCell>& cells, const Console& console) const {
  std::string text;
  std::size_t blanks = 0;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (widths_[i] == 0) continue;
    const std::string cell =
        console.width == 0 ? cells[i].text : cut_text(cells[i].text, widths_[i]);
    const std::size_t size = text_columns(cell);
    const std::size_t space = widths_[i] > size ? widths_[i] - size : 0;
    if (size > 0) text.append(blanks + (columns_[i].right ? space : 0), ' ');
    text += painted(cell, cells[i].paint, console);
    blanks =
        (size > 0 ? 0 : blanks + size) + kBetween + (columns_[i].right && size > 0 ? 0 : space);
  }
  return text + "\n";
}

std::string FittedTable::portion(const std::vector<Row>& rows, const Console& console) {
  std::string text;
  if (widths_.empty()) {
    std::vector<std::size_t> natural(columns_.size());
    for (const Row& row : rows) {
      for (std::size_t i = 0; i < columns_.size(); ++i)
        natural[i] = std::max(natural[i], text_columns(row.cells[i].text));
    }
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (natural[i] > 0) natural[i] = std::max(natural[i], columns_[i].title.size());
    }
    widths_ = fit_columns(columns_, std::move(natural), console.width);
    std::vector<FittedCell> head;
    for (const FittedColumn& column : columns_) head.push_back({column.title, Paint::kStrong});
    text = line(head, console);
  }
  for (const Row& row : rows) {
    text += line(row.cells, console);
    for (const std::string& below : row.below) text += below + "\n";
  }
  return text;
}

}  // namespace scriptorium::cli
