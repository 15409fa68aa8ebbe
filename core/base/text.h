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

// RFC 4648 base64, with padding. decode returns nothing for anything that encode does not write.
std::string base64_encode(std::string_view bytes);
std::optional<std::string> base64_decode(std::string_view text);

// Lower-case hexadecimal. decode takes both cases; nothing for an odd length or another character.
std::string hex_encode(std::string_view bytes);
std::optional<std::string> hex_decode(std::string_view text);

// Shell-style pattern: `*`, `?`, `[abc]`, `[a-z]`, `[!a]`, `\x`. Whole-name match, byte by byte,
// case kept; runs in time proportional to pattern times text, whatever the pattern.
bool glob_match(std::string_view pattern, std::string_view text) noexcept;
// What is wrong with a pattern ("'[' without ']'"), or nothing.
std::optional<std::string> glob_problem(std::string_view pattern);

// The candidate nearest to what was typed, for "did you mean"; nothing if none is near enough.
std::optional<std::string> did_you_mean(std::string_view given,
                                        std::span<const std::string> candidates);

// A text fit for a log line or a terminal: control characters and ill-formed UTF-8 escaped (\n,
// \x1b), and so are the characters that change the direction or the lines of the text around them
// (\u202e); cut after `limit` bytes with "...".
std::string printable(std::string_view bytes, std::size_t limit = 256);

// A JSON text with what printable() escapes of a well-formed text written as JSON escapes: it means
// the same, and can go to a terminal.
std::string printable_json(std::string_view json);

// "1.5 MiB", "12 KiB", "17 B".
std::string format_bytes(std::uint64_t bytes);

}  // namespace scriptorium
