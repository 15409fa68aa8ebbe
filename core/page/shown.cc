#include "core/page/shown.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "core/base/text.h"

namespace scriptorium::page {
namespace {

struct Range {
  std::uint32_t first;
  std::uint32_t last;
};
// Characters without a shape of their own, or that change how others are shown (Unicode 15:
// Default_Ignorable_Code_Point, Bidi_Control, blanks that look like nothing), and controls.
constexpr std::array<Range, 18> kUnseen = {{
    {0x00, 0x08},
    {0x0B, 0x1F},
    {0x7F, 0x9F},
    {0xAD, 0xAD},
    {0x34F, 0x34F},
    {0x61C, 0x61C},
    {0x115F, 0x1160},
    {0x17B4, 0x17B5},
    {0x180B, 0x180F},
    {0x200B, 0x200F},
    {0x2028, 0x202E},
    {0x2060, 0x206F},
    {0x2800, 0x2800},
    {0x3164, 0x3164},
    {0xFE00, 0xFE0F},
    {0xFEFF, 0xFEFF},
    {0xFFA0, 0xFFFB},
    {0xE0000, 0xE0FFF},
}};

bool is_unseen(std::uint32_t code) noexcept {
  // The range from the half-width filler to the annotation marks holds letters, too.
  if (code > 0xFFA0 && code < 0xFFF9) return false;
  return std::any_of(kUnseen.begin(), kUnseen.end(),
                     [code](Range range) { return code >= range.first && code <= range.last; });
}

void append_escaped(std::string& html, std::string_view character) {
  switch (character.front()) {
    case '&': html += "&amp;"; break;
    case '<': html += "&lt;"; break;
    case '>': html += "&gt;"; break;
    case '"': html += "&quot;"; break;
    case '\'': html += "&#39;"; break;
    default: html += character;
  }
}

std::string name_of(std::string_view bytes, Character character) {
  std::array<char, 16> text{};
  if (character.code) {
    std::snprintf(text.data(), text.size(), "U+%04X", *character.code);
  } else {
    std::snprintf(text.data(), text.size(), "\\x%02x", static_cast<unsigned char>(bytes.front()));
  }
  return text.data();
}

// Writes text as HTML, and counts what a reader should be told.
class Writer {
 public:
  // Nothing more is to be written: there are too many marks already.
  bool is_full() const { return marks_ >= kMostMarks; }
  std::uint64_t foreign() const { return foreign_; }
  std::string& html() { return html_; }

  // The character at `at`, or a run of what is not seen, as far as it goes in `bytes`. Returns
  // where the next one begins.
  std::size_t write(std::string_view bytes, std::size_t at) {
    // An ill-formed sequence is shown byte by byte.
    Character character = character_at(bytes, at);
    if (!character.code) character.length = 1;
    const std::string_view text = bytes.substr(at, character.length);
    at += text.size();
    if (character.code && !is_unseen(*character.code) && text != "\n") {
      if (*character.code >= 0x80) ++foreign_;
      append_escaped(html_, text);
      return at;
    }
    std::uint64_t count = 1;
    for (; bytes.substr(at, text.size()) == text; at += text.size()) ++count;
    html_ += "<mark>" + name_of(text, character) +
             (count > 1 ? " × " + std::to_string(count) : "") + "</mark>";
    ++marks_;
    return at;
  }

 private:
  std::string html_;
  std::size_t marks_ = 0;
  std::uint64_t foreign_ = 0;
};

// ---- colours

constexpr std::array<std::string_view, 5> kDirectives = {"#SBATCH", "#PBS", "#OAR", "#BSUB", "#$"};

bool is_blank(char c) noexcept { return c == ' ' || c == '\t'; }

// Of a whole line of a script; "" = of its parts.
const char* line_class(std::string_view line) noexcept {
  while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
  const auto begins_with = [&](std::string_view word) {
    return line.starts_with(word) && (line.size() == word.size() || is_blank(line[word.size()]));
  };
  if (std::any_of(kDirectives.begin(), kDirectives.end(), begins_with)) return "directive";
  if (line.starts_with('#')) return "comment";
  return begins_with("module") || begins_with("ml") ? "module" : "";
}

// A longer one has no colour, since its end would be searched for again and again.
constexpr std::size_t kMostString = 512;

// Where the part that begins at `at` ends, and what it is: a string that ends on this line, or a
// comment; "" for a single character.
struct Part {
  std::size_t end = 0;
  const char* type = "";
};
Part part_at(std::string_view line, std::size_t at) noexcept {
  const char c = line[at];
  if (c == '#' && at > 0 && is_blank(line[at - 1])) return {line.size(), "comment"};
  if (c != '"' && c != '\'') return {at + 1};
  const std::size_t most = std::min(line.size(), at + kMostString);
  for (std::size_t i = at + 1; i < most; ++i) {
    if (line[i] == c) return {i + 1, "string"};
    if (c == '"' && line[i] == '\\') ++i;
  }
  return {at + 1};
}

}  // namespace

Shown shown_lines(std::string_view bytes, std::string_view id_prefix, Kind kind) {
  const char line_end = kind == Kind::kVariables ? '\0' : '\n';
  Shown shown;
  Writer writer;
  std::string& html = writer.html();
  const std::size_t end = std::min(bytes.size(), kMostShownBytes);
  std::size_t lines = 0;
  std::size_t at = 0;
  while (at < end && lines < kMostShownLines && !writer.is_full()) {
    const std::string_view line = bytes.substr(at, bytes.substr(at).find(line_end));
    const std::string_view part_of = line.substr(0, end - at);
    const std::string type = kind == Kind::kScript ? line_class(part_of) : "";
    const std::string id = std::string(id_prefix) + std::to_string(++lines);
    html += "<span class=\"l" + (type.empty() ? "" : " " + type) + "\" id=" + id + "><a href=\"#" +
            id + "\" tabindex=-1 aria-hidden=true></a>";
    const std::size_t begin = at;
    while (at < end && at < begin + line.size() && !writer.is_full()) {
      const std::size_t here = at - begin;
      const bool is_dos_end = line_end == '\n' && here + 1 == line.size() && line[here] == '\r' &&
                              at + 1 < bytes.size();
      if (is_dos_end) {
        shown.dos_lines = true;
        ++at;
        continue;
      }
      const Part part =
          kind == Kind::kScript && type.empty() ? part_at(line, here) : Part{here + 1};
      const bool is_typed = *part.type != '\0';
      if (is_typed) html += std::string("<span class=") + part.type + ">";
      do {
        at = begin + writer.write(line, at - begin);
      } while (is_typed && at < end && at < begin + part.end && !writer.is_full());
      if (is_typed) html += "</span>";
    }
    html += "</span>\n";
    if (at < end && at == begin + line.size()) ++at;
  }
  shown.foreign = writer.foreign();
  shown.left_out = bytes.size() - std::min(at, bytes.size());
  shown.html.text = std::move(html);
  return shown;
}

Html shown_line(std::string_view text,
                const std::vector<std::pair<std::uint32_t, std::uint32_t>>& hits) {
  Writer writer;
  std::size_t at = 0;
  const auto write_until = [&](std::size_t end) {
    while (at < end && !writer.is_full()) at = writer.write(text.substr(0, end), at);
  };
  for (const auto& [begin, end] : hits) {
    if (begin < at || end > text.size() || begin > end) continue;
    write_until(begin);
    writer.html() += "<b>";
    write_until(end);
    writer.html() += "</b>";
  }
  write_until(text.size());
  return {std::move(writer.html())};
}

}  // namespace scriptorium::page
