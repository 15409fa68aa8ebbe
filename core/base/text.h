#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Small pure functions on bytes. Nothing here reads a file, a clock or the locale.
namespace scriptorium {

// True if the bytes are well-formed UTF-8 (Unicode 15, table 3-7: no surrogates, no overlong
// forms).
bool is_utf8(std::string_view bytes) noexcept;

// The bytes with each ill-formed sequence replaced by U+FFFD, one for each maximal subpart, as
// Unicode 15 (section 3.9) recommends and Rust's, Java's and Python's decoders do.
std::string to_utf8_lossy(std::string_view bytes);

// The character at a position: well-formed UTF-8, or else the bytes that to_utf8_lossy() replaces
// by one U+FFFD, of which there is at least one.
struct Character {
  std::size_t length = 1;
  std::optional<std::uint32_t> code;  // absent: ill-formed
};
Character character_at(std::string_view bytes, std::size_t at) noexcept;

// RFC 4648 base64, with padding. decode accepts only what encode writes.
std::string base64_encode(std::string_view bytes);
std::optional<std::string> base64_decode(std::string_view text);

// Lower-case hexadecimal. decode accepts both cases, and returns nothing for an odd length or any
// other character.
std::string hex_encode(std::string_view bytes);
std::optional<std::string> hex_decode(std::string_view text);

// Shell-style pattern: `*`, `?`, `[abc]`, `[a-z]`, `[!a]`, `\x`. Matches the whole name, byte by
// byte, case-sensitively, in time proportional to pattern length times text length for any pattern.
bool glob_match(std::string_view pattern, std::string_view text) noexcept;
// The problem of a pattern ("'[' without ']'"), or nothing.
std::optional<std::string> glob_problem(std::string_view pattern);

// The candidate nearest to what was typed, for "did you mean"; nothing if none is close enough.
std::optional<std::string> did_you_mean(std::string_view given,
                                        std::span<const std::string> candidates);

// A text safe for a log line or a terminal. Control characters, ill-formed UTF-8 (\n, \x1b) and
// characters that change the direction or line structure of the surrounding text (\u202e) are
// escaped. The result is cut after `limit` bytes with "...".
std::string printable(std::string_view bytes, std::size_t limit = 256);

// The text for a place that has one line and no escapes, such as a header of a mail: without the
// characters that printable() escapes; ill-formed UTF-8 becomes U+FFFD.
std::string without_controls(std::string_view bytes);

// The same JSON, safe for a terminal: characters that printable() escapes in well-formed text
// become JSON escapes.
std::string printable_json(std::string_view json);

// "1.5 MiB", "12 KiB", "17 B".
std::string format_bytes(std::uint64_t bytes);
// "812 ms", "4.2 s", "13 min 5 s", "5 h 10 min", "3 d 4 h".
std::string format_seconds(double seconds);

}  // namespace scriptorium
