#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// Texts of users as HTML: what a browser would drop, reorder or run is shown instead. Pure.
namespace scriptorium::page {

// HTML that is made here and nowhere else, so that a template may hold it as it is.
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

// Each line is <span class=l id=L1>...</span>, for <pre>; `line_end`, '\n' or NUL, ends it. A
// character that would not be seen as itself is <mark>U+202E</mark>, an ill-formed byte
// <mark>\xff</mark>, several of one kind <mark>U+0000 × 4000</mark>.
Shown shown_lines(std::string_view bytes, std::string_view id_prefix, char line_end = '\n');

}  // namespace scriptorium::page
