#include "core/cli/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "core/base/text.h"

namespace scriptorium::cli {
namespace {

std::string coloured(bool colour, const char* code, std::string_view text) {
  if (!colour) return std::string{text};
  return std::string{"\033["} + code + "m" + std::string{text} + "\033[0m";
}

// The terminal's size; zeros if it is unknown.
winsize terminal_size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return winsize{};
  return size;
}

}  // namespace

std::string Console::bold(std::string_view text) const { return coloured(colour, "1", text); }
std::string Console::green(std::string_view text) const { return coloured(colour, "32", text); }
std::string Console::yellow(std::string_view text) const { return coloured(colour, "33", text); }
std::string Console::red(std::string_view text) const { return coloured(colour, "31", text); }

std::size_t text_columns(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033') {
      i = std::min(text.find('m', i), text.size() - 1);
    } else if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U) {
      ++count;
    }
  }
  return count;
}

Console standard_console() {
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  const char* no_colour = std::getenv("NO_COLOR");
  const char* kind = std::getenv("TERM");
  const winsize size = terminal ? terminal_size() : winsize{};
  const bool dumb = kind == nullptr || std::string_view{kind} == "dumb";
  return {.in = std::cin,
          .out = std::cout,
          .err = std::cerr,
          .in_is_terminal = ::isatty(STDIN_FILENO) == 1,
          .out_is_terminal = terminal,
          .colour = terminal && !dumb && (no_colour == nullptr || *no_colour == '\0'),
          .owns_process = true,
          .width = size.ws_col,
          .height = size.ws_row};
}

TextTable::TextTable(std::vector<std::string> head, std::vector<std::size_t> numbers)
    : numbers_(std::move(numbers)) {
  lines_.push_back({std::move(head), {}});
}

void TextTable::add(std::vector<std::string> row) { lines_.push_back({std::move(row), {}}); }
void TextTable::note(std::string text) { lines_.push_back({{}, std::move(text)}); }

std::string TextTable::text(const Console& console) const {
  std::vector<std::size_t> widths;
  for (const Line& line : lines_) {
    widths.resize(std::max(widths.size(), line.cells.size()));
    for (std::size_t i = 0; i < line.cells.size(); ++i)
      widths[i] = std::max(widths[i], text_columns(line.cells[i]));
  }
  std::string result;
  for (std::size_t l = 0; l < lines_.size(); ++l) {
    const Line& line = lines_[l];
    if (line.cells.empty()) {
      result += "  " + line.note + "\n";
      continue;
    }
    std::string text;
    for (std::size_t i = 0; i < line.cells.size(); ++i) {
      const std::string space(widths[i] - text_columns(line.cells[i]), ' ');
      const bool right = std::find(numbers_.begin(), numbers_.end(), i) != numbers_.end();
      const std::string cell = l == 0 ? console.bold(line.cells[i]) : line.cells[i];
      text += (i == 0 ? "" : "  ") + (right ? space + cell : cell + space);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    result += text + "\n";
  }
  return result;
}

std::string count_of(std::uint64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

std::string terminal_text(std::string_view bytes) {
  std::string result;
  std::size_t begin = 0;
  const auto flush = [&](std::size_t end) {
    // printable() escapes the text between line ends; the limit keeps it from cutting.
    if (end > begin) result += printable(bytes.substr(begin, end - begin), 4 * (end - begin) + 16);
  };
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '\n' && bytes[i] != '\t') continue;
    flush(i);
    result += bytes[i];
    begin = i + 1;
  }
  flush(bytes.size());
  return result;
}

}  // namespace scriptorium::cli
