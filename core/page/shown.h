#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Texts of users as HTML: what a browser would drop, reorder or run is shown instead. Pure.
namespace scriptorium::page {

// HTML that is made here and in plot.h and nowhere else, so that a template may hold it as it is.
struct Html {
  std::string text;
};

struct Shown {
  Html html;
  std::size_t left_out = 0;   // bytes behind the limits
  std::uint64_t foreign = 0;  // letters outside ASCII: one may look like a Latin one
  bool dos_lines = false;     // lines end with CR LF; those CRs have no mark
};

// What a page holds of one text: a browser lays out more only slowly.
inline constexpr std::size_t kMostShownBytes = std::size_t{256} << 10;
inline constexpr std::size_t kMostShownLines = 5'000;
inline constexpr std::size_t kMostMarks = 2'000;

// kScript: comments, strings, directives and lines that load modules have a class. kVariables:
// lines end with NUL, and a newline in one is a mark.
enum class Kind : std::uint8_t { kText, kScript, kVariables };

// For <pre>: each line is <span class=l id=L1>, with a link to itself. A character that would not
// be seen as itself is <mark>U+202E</mark>, an ill-formed byte <mark>\xff</mark>, several of one
// kind <mark>U+0000 × 4000</mark>.
Shown shown_lines(std::string_view bytes, std::string_view id_prefix, Kind kind = Kind::kText);

// One line, with the bytes from `begin` to `end` of each hit as <b>.
Html shown_line(std::string_view text,
                const std::vector<std::pair<std::uint32_t, std::uint32_t>>& hits);

}  // namespace scriptorium::page
