#include "core/base/json_text.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace scriptorium {
namespace {

// What follows the backslash for a byte that JSON requires to be escaped: 'u' for \u00XX; 0 if the
// byte needs no escape.
constexpr std::array<char, 256> kEscapes = [] {
  std::array<char, 256> table{};
  for (std::size_t c = 0; c < 0x20; ++c) table[c] = 'u';
  table['"'] = '"';
  table['\\'] = '\\';
  table['\b'] = 'b';
  table['\t'] = 't';
  table['\n'] = 'n';
  table['\f'] = 'f';
  table['\r'] = 'r';
  return table;
}();

char escape_of(char c) { return kEscapes[static_cast<unsigned char>(c)]; }

// Sixteen bytes at once; the compiler maps this to the processor's vector instructions.
constexpr std::size_t kBlock = 16;
using Block = unsigned char __attribute__((vector_size(kBlock)));

// Number of leading bytes of a block that need no escape.
std::size_t plain_bytes(const char* from) {
  Block block;
  std::memcpy(&block, from, kBlock);
  const auto found =
      (block < 0x20) | (block == '"') | (block == '\\');  // each match becomes a byte of ones
  std::array<std::uint64_t, 2> halves{};
  std::memcpy(halves.data(), &found, kBlock);
  if ((halves[0] | halves[1]) == 0) return kBlock;
  if constexpr (std::endian::native != std::endian::little) {
    return static_cast<std::size_t>(std::find_if(from, from + kBlock, escape_of) - from);
  }
  const int zeros = halves[0] != 0 ? std::countr_zero(halves[0]) : 64 + std::countr_zero(halves[1]);
  return static_cast<std::size_t>(zeros) / 8;
}

// Writes at most six bytes; returns the position after them.
char* escape(char c, char* to) {
  *to++ = '\\';
  *to++ = escape_of(c);
  if (to[-1] != 'u') return to;
  constexpr std::string_view kHex = "0123456789abcdef";
  *to++ = '0';
  *to++ = '0';
  *to++ = kHex[static_cast<unsigned char>(c) >> 4U];
  *to++ = kHex[static_cast<unsigned char>(c) & 15U];
  return to;
}

}  // namespace

// Uses a small buffer, so that a block can be copied before we know how much of it needs no escape.
void append_json_string(std::string_view text, std::string& out) {
  std::array<char, 512>
      buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
  const char* from = text.data();
  const char* const end = from + text.size();
  char* to = buffer.data();
  *to++ = '"';
  while (from != end) {
    if (to > buffer.data() + buffer.size() - 2 * kBlock) {
      out.append(buffer.data(), to);
      to = buffer.data();
    }
    if (static_cast<std::size_t>(end - from) >= kBlock) {
      std::memcpy(to, from, kBlock);
      const std::size_t plain = plain_bytes(from);
      from += plain;
      to += plain;
      if (plain == kBlock) continue;
    } else if (escape_of(*from) == 0) {
      *to++ = *from++;
      continue;
    }
    to = escape(*from++, to);
  }
  *to++ = '"';
  out.append(buffer.data(), to);
}

}  // namespace scriptorium
