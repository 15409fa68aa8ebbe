#include "core/base/text.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <numeric>

namespace scriptorium {
namespace {

// The sequence at a position: its length, and whether it is a well-formed character. An ill-formed
// sequence is the longest prefix that could begin a character, at least one byte ("maximal
// subpart", Unicode 15, section 3.9).
struct Sequence {
  std::size_t length = 1;
  bool whole = false;
};
Sequence sequence_at(std::string_view s, std::size_t at) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return {1, true};
  std::size_t length = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return {};
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (at + i >= s.size() || byte(at + i) < low || byte(at + i) > high) return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

// The code point of a well-formed sequence of at least two bytes.
std::uint32_t code_point(std::string_view sequence) noexcept {
  std::uint32_t code = static_cast<unsigned char>(sequence[0]) & (0xFFU >> (sequence.size() + 1));
  for (const char c : sequence.substr(1))
    code = code << 6U | (static_cast<unsigned char>(c) & 0x3FU);
  return code;
}

// One element of a pattern at `at`: whether it matches `c`, and where the next one begins.
struct Element {
  bool matches = false;
  std::size_t next = 0;
};

Element match_element(std::string_view pattern, std::size_t at, char c) noexcept {
  if (pattern[at] == '?') return {true, at + 1};
  if (pattern[at] == '\\' && at + 1 < pattern.size()) return {pattern[at + 1] == c, at + 2};
  if (pattern[at] != '[') return {pattern[at] == c, at + 1};
  std::size_t i = at + 1;
  const bool negated = i < pattern.size() && (pattern[i] == '!' || pattern[i] == '^');
  if (negated) ++i;
  bool found = false;
  const auto u = [](char x) { return static_cast<unsigned char>(x); };
  for (bool first = true; i < pattern.size() && (first || pattern[i] != ']'); first = false) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) ++i;
    const char low = pattern[i++];
    if (i + 1 < pattern.size() && pattern[i] == '-' && pattern[i + 1] != ']') {
      const char high = pattern[i + 1];
      if (u(low) <= u(c) && u(c) <= u(high)) found = true;
      i += 2;
    } else if (low == c) {
      found = true;
    }
  }
  if (i >= pattern.size()) return {pattern[at] == c, at + 1};  // no ']': a plain '['
  return {found != negated, i + 1};
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last;
  std::vector<std::size_t> last(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::vector<std::size_t> row(b.size() + 1);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t cost = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + cost});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last = std::move(last);
    last = std::move(row);
  }
  return last[b.size()];
}

}  // namespace

bool is_utf8(std::string_view bytes) noexcept {
  for (std::size_t i = 0; i < bytes.size();) {
    // Scripts are nearly all ASCII, so we check eight bytes per step.
    while (i + 8 <= bytes.size()) {
      std::uint64_t word = 0;
      std::copy_n(bytes.data() + i, 8, reinterpret_cast<char*>(&word));
      if ((word & 0x8080808080808080U) != 0) break;
      i += 8;
    }
    if (i == bytes.size()) break;
    const Sequence sequence = sequence_at(bytes, i);
    if (!sequence.whole) return false;
    i += sequence.length;
  }
  return true;
}

std::string to_utf8_lossy(std::string_view bytes) {
  std::string result;
  result.reserve(bytes.size());
  for (std::size_t i = 0; i < bytes.size();) {
    const Sequence sequence = sequence_at(bytes, i);
    if (sequence.whole) {
      result.append(bytes, i, sequence.length);
    } else {
      result += "\xEF\xBF\xBD";
    }
    i += sequence.length;
  }
  return result;
}

Character character_at(std::string_view bytes, std::size_t at) noexcept {
  const auto [length, whole] = sequence_at(bytes, at);
  if (!whole) return {length, std::nullopt};
  if (length == 1) return {length, static_cast<unsigned char>(bytes[at])};
  return {length, code_point(bytes.substr(at, length))};
}

std::string base64_encode(std::string_view bytes) {
  // OpenSSL takes lengths as int. The part's size is a multiple of 3, so that only the last part is
  // padded.
  constexpr std::size_t kMostAtOnce = std::size_t{3} << 20;
  std::string result((bytes.size() + 2) / 3 * 4, '\0');
  auto* out = reinterpret_cast<unsigned char*>(result.data());
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, kMostAtOnce);
    out += ::EVP_EncodeBlock(out, reinterpret_cast<const unsigned char*>(part.data()),
                             static_cast<int>(part.size()));
    bytes.remove_prefix(part.size());
  }
  return result;
}

std::optional<std::string> base64_decode(std::string_view text) {
  constexpr std::size_t kMostAtOnce = std::size_t{4} << 20;
  if (text.size() % 4 != 0) return std::nullopt;
  std::string result(text.size() / 4 * 3, '\0');
  auto* out = reinterpret_cast<unsigned char*>(result.data());
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = rest.substr(0, kMostAtOnce);
    const int bytes = ::EVP_DecodeBlock(out, reinterpret_cast<const unsigned char*>(part.data()),
                                        static_cast<int>(part.size()));
    if (bytes != static_cast<int>(part.size() / 4 * 3)) return std::nullopt;
    out += bytes;
    rest.remove_prefix(part.size());
  }
  // EVP_DecodeBlock() counts padding as bytes.
  const std::size_t padding = text.ends_with("==") ? 2 : (text.ends_with('=') ? 1 : 0);
  result.resize(result.size() - padding);
  // OpenSSL also accepts blanks at the ends, and last characters whose unused bits are set.
  if (base64_encode(result) != text) return std::nullopt;
  return result;
}

std::string hex_encode(std::string_view bytes) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result(bytes.size() * 2, '0');
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    result[2 * i] = kDigits[byte >> 4];
    result[2 * i + 1] = kDigits[byte & 15];
  }
  return result;
}

std::optional<std::string> hex_decode(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  std::string result(text.size() / 2, '\0');
  for (std::size_t i = 0; i < result.size(); ++i) {
    const int high = digit(text[2 * i]);
    const int low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    result[i] = static_cast<char>(high << 4 | low);
  }
  return result;
}

bool glob_match(std::string_view pattern, std::string_view text) noexcept {
  // We backtrack to the last '*' only, so the time is bounded by pattern length times text length.
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
      continue;
    }
    if (p < pattern.size()) {
      const Element element = match_element(pattern, p, text[t]);
      if (element.matches) {
        p = element.next;
        ++t;
        continue;
      }
    }
    if (star == std::string_view::npos) return false;
    p = star + 1;
    t = ++star_text;
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::optional<std::string> glob_problem(std::string_view pattern) {
  if (pattern.empty()) return "an empty pattern matches nothing";
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\') {
      if (++i == pattern.size()) return "a '\\' at the end escapes nothing";
    } else if (pattern[i] == '[') {
      std::size_t j = i + 1;
      if (j < pattern.size() && (pattern[j] == '!' || pattern[j] == '^')) ++j;
      const std::size_t first = j;
      while (j < pattern.size() && (j == first || pattern[j] != ']')) {
        if (pattern[j] == '\\') ++j;
        if (j + 2 < pattern.size() && pattern[j + 1] == '-' && pattern[j + 2] != ']') {
          if (static_cast<unsigned char>(pattern[j]) > static_cast<unsigned char>(pattern[j + 2])) {
            return "the range '" + std::string(pattern.substr(j, 3)) + "' is the wrong way round";
          }
          j += 2;
        }
        ++j;
      }
      if (j >= pattern.size()) return "'[' without ']'";
      i = j;
    }
  }
  return std::nullopt;
}

std::optional<std::string> did_you_mean(std::string_view given,
                                        std::span<const std::string> candidates) {
  std::optional<std::string> best;
  std::size_t best_distance = std::max<std::size_t>(1, given.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(given, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

namespace {

// Beyond ASCII: C1 controls, which terminals interpret; line and paragraph separators; and
// characters that reorder the surrounding text ("Trojan Source", CVE-2021-42574).
bool is_deceptive(std::uint32_t code) noexcept {
  return (code >= 0x80 && code < 0xA0) || code == 0x61C || code == 0x200E || code == 0x200F ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

std::string json_escape(std::uint32_t code) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "\\u%04x", code);
  return text.data();
}

}  // namespace

std::string printable_json(std::string_view json) {
  std::string result;
  result.reserve(json.size());
  for (std::size_t i = 0; i < json.size();) {
    const auto [length, whole] = sequence_at(json, i);
    const auto byte = static_cast<unsigned char>(json[i]);
    const std::uint32_t code = whole && length > 1 ? code_point(json.substr(i, length)) : byte;
    if (whole && (code == 0x7F || (length > 1 && is_deceptive(code)))) {
      result += json_escape(code);
    } else {
      result.append(json, i, length);
    }
    i += length;
  }
  return result;
}

std::string without_controls(std::string_view bytes) {
  const std::string text = to_utf8_lossy(bytes);
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = sequence_at(text, i).length;
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::uint32_t code =
        length > 1 ? code_point(std::string_view(text).substr(i, length)) : byte;
    if (code >= 0x20 && code != 0x7F && !is_deceptive(code)) result.append(text, i, length);
    i += length;
  }
  return result;
}

std::string printable(std::string_view bytes, std::size_t limit) {
  std::string result;
  std::size_t i = 0;
  while (i < bytes.size() && result.size() < limit) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const auto [length, whole] = sequence_at(bytes, i);
    const std::uint32_t code = whole && length > 1 ? code_point(bytes.substr(i, length)) : 0;
    if (code >= 0xA0 && is_deceptive(code)) {
      result += json_escape(code);
      i += length;
    } else if (whole && byte >= 0x20 && byte != 0x7F && !is_deceptive(code)) {
      result.append(bytes, i, length);
      i += length;
    } else if (byte == '\n') {
      result += "\\n";
      ++i;
    } else if (byte == '\t') {
      result += "\\t";
      ++i;
    } else {
      std::array<char, 8> escaped{};
      std::snprintf(escaped.data(), escaped.size(), "\\x%02x", byte);
      result += escaped.data();
      ++i;
    }
  }
  if (i < bytes.size()) result += "...";
  return result;
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value,
                kUnits.at(unit));
  return text.data();
}

std::string format_seconds(double seconds) {
  std::array<char, 48> text{};
  const auto whole = static_cast<long long>(seconds);
  if (seconds < 1) {
    std::snprintf(text.data(), text.size(), "%.0f ms", seconds * 1000);
  } else if (seconds < 60) {
    std::snprintf(text.data(), text.size(), "%.1f s", seconds);
  } else if (whole < 3600) {
    std::snprintf(text.data(), text.size(), "%lld min %lld s", whole / 60, whole % 60);
  } else if (whole < 86400) {
    std::snprintf(text.data(), text.size(), "%lld h %lld min", whole / 3600, whole % 3600 / 60);
  } else {
    std::snprintf(text.data(), text.size(), "%lld d %lld h", whole / 86400, whole % 86400 / 3600);
  }
  return text.data();
}

}  // namespace scriptorium
