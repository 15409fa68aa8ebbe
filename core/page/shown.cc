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

}  // namespace

Shown shown_lines(std::string_view bytes, std::string_view id_prefix, char line_end) {
  Shown shown;
  std::string& html = shown.html.text;
  const std::size_t end = std::min(bytes.size(), kMostShownBytes);
  std::size_t lines = 0;
  std::size_t marks = 0;
  std::size_t at = 0;
  while (at < end && lines < kMostShownLines && marks < kMostMarks) {
    html += "<span class=l id=" + std::string(id_prefix) + std::to_string(++lines) + ">";
    while (at < end && bytes[at] != line_end && marks < kMostMarks) {
      // An ill-formed sequence is shown byte by byte.
      Character character = character_at(bytes, at);
      if (!character.code) character.length = 1;
      const std::string_view text = bytes.substr(at, character.length);
      at += text.size();
      const bool ends_here = line_end == '\n' && bytes.substr(at, 1) == "\n";
      if (text == "\r" && ends_here) {
        shown.dos_lines = true;
      } else if (character.code && !is_unseen(*character.code) && text != "\n") {
        if (*character.code >= 0x80) ++shown.foreign;
        append_escaped(html, text);
      } else {
        std::uint64_t count = 1;
        for (; bytes.substr(at, text.size()) == text; at += text.size()) ++count;
        html += "<mark>" + name_of(text, character) +
                (count > 1 ? " × " + std::to_string(count) : "") + "</mark>";
        ++marks;
      }
    }
    html += "</span>\n";
    if (at < end && bytes[at] == line_end) ++at;
  }
  shown.left_out = bytes.size() - at;
  return shown;
}

}  // namespace scriptorium::page
