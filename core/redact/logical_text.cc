#include "core/redact/logical_text.h"

#include <algorithm>

namespace scriptorium::redact {
namespace {

// The length of the newline at `offset`: 0 if there is none.
std::size_t newline_length(std::string_view text, std::size_t offset) noexcept {
  const std::string_view rest = text.substr(offset);
  if (rest.starts_with('\n')) return 1;
  return rest.starts_with("\r\n") ? 2 : 0;
}

// Whether the line that ends at `end` is a comment; `begin` is where it may begin at the earliest.
bool is_comment(std::string_view text, std::size_t begin, std::size_t end) noexcept {
  const std::size_t newline = text.substr(begin, end - begin).rfind('\n');
  std::size_t first = newline == std::string_view::npos ? begin : begin + newline + 1;
  while (first < end && (text[first] == ' ' || text[first] == '\t')) ++first;
  return first < end && text[first] == '#';
}

bool ends_line(char c) noexcept { return c == '\n' || c == '\0'; }

}  // namespace

LogicalText::LogicalText(std::string_view text, bool join_continued_lines) : original_(text) {
  if (!join_continued_lines) return;
  std::size_t copied = 0;  // of the original
  std::size_t line = 0;    // a line begins here, at or before the one that is looked at
  for (std::size_t at = text.find('\\'); at != std::string_view::npos; at = text.find('\\', at)) {
    const std::size_t first = at;
    while (at < text.size() && text[at] == '\\') ++at;
    const std::size_t newline = newline_length(text, at);
    if (newline == 0) continue;
    const bool continued = (at - first) % 2 == 1 && !is_comment(text, line, first);
    line = at + newline;
    if (!continued) continue;
    joined_.append(text, copied, at - 1 - copied);
    copied = line;
    cuts_.push_back({joined_.size(), copied - joined_.size()});
  }
  if (!cuts_.empty()) joined_.append(text, copied);
}

std::size_t LogicalText::original_of(std::size_t offset) const noexcept {
  const auto after = std::upper_bound(cuts_.begin(), cuts_.end(), offset,
                                      [](std::size_t o, const Cut& cut) { return o < cut.offset; });
  return after == cuts_.begin() ? offset : offset + std::prev(after)->removed;
}

LineRange line_around(std::string_view text, std::size_t offset) noexcept {
  LineRange line{offset, offset};
  while (line.begin > 0 && !ends_line(text[line.begin - 1])) --line.begin;
  while (line.end < text.size() && !ends_line(text[line.end])) ++line.end;
  if (line.end > line.begin && line.end < text.size() && text[line.end] == '\n' &&
      text[line.end - 1] == '\r')
    --line.end;
  return line;
}

}  // namespace scriptorium::redact
