#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backends/catalog/block.h"

// What the index says of a block of scripts. Pure and deterministic: a word is removed from the
// index by the same list that added it, so a change here is a change of the format.
namespace scriptorium::catalog {

// Words longer than this are cut, in scripts and in queries.
inline constexpr std::size_t kMostWordBytes = 64;

// Marks a word that each script of the block has; alone, a block of one script, which has all of
// its words. No word of a script has this byte: bytes from 0xF8 on never occur in UTF-8 and
// separate words here.
inline constexpr char kInAll = '\xff';

// Calls use(word) for each word of a text: letters and digits of ASCII in lower case and bytes from
// 0x80 to 0xF7, cut at kMostWordBytes.
template <typename Use>
void for_each_word(std::string_view text, Use use);

struct BlockWords {
  std::string list;  // for `words.w`: distinct words, sorted, separated by blanks; then kInAll ones
  std::string filter;  // for `pairs.filter`
  std::string places;  // for `places.list`
};
BlockWords words_of(const Block& block);

// A filter of the word pairs (two consecutive words of one script) of a block: false means that no
// script of the block has the pair.
bool may_have_pair(std::string_view filter, std::string_view first, std::string_view second);

// Which of a block's scripts can have a word, for a word that the block has: one bit for each
// script, or for each kMostParts-th part of a block of more scripts. Two frequent words are often
// in one block, and seldom in one script.
//
// Layout (little-endian): the number of words (2 bytes), of scripts or parts (2 bytes) and of
// patterns (2 bytes); a salt (2 bytes); a hash of each word (2 bytes, ascending), then of each word
// the number of its pattern (1 byte if there are at most 256 of them, else 2), and the patterns (as
// many bytes as the bits take). A word that is not listed can be in every script. Words that share
// a hash share their scripts; the salt, which goes into the hash, is one with which few do. If the
// number of parts has kNamesShared, further hashes follow (2 bytes each, ascending): of several
// words, and of words that a script with bytes from 0xF8 on has, as what a search finds in it is
// not certain. Catalogs also have lists without, and with kNamedSome, which name too few.
inline constexpr std::size_t kMostParts = 256;
inline constexpr std::uint16_t kNamedSome = 1U << 15;
inline constexpr std::uint16_t kNamesShared = 1U << 14;
using Scripts = std::bitset<kMostParts>;
struct WordScripts {
  Scripts possible = ~Scripts();
  Scripts certain;  // that have the word, if any script of the block has it
};
WordScripts scripts_with(std::string_view places, std::string_view word);
std::size_t parts_of(std::string_view places);  // 0 if the list is empty or damaged
// Whether `places` is `list` as it was written by an earlier version, with other shared hashes or
// none.
bool is_earlier_list(std::string_view places, std::string_view list);

// A filter of the words of a block: false means that no script of the block has the word.
std::string filter_of_words(const Block& block);
bool may_have_word(std::string_view filter, std::string_view word);

// The words of a query's text, and whether its first and last word may continue beyond it (they are
// then parts of words).
std::vector<std::string> words_of_text(std::string_view text);

// ---- implementation

constexpr bool is_indexed_byte(char c) noexcept {
  const auto b = static_cast<unsigned char>(c);
  return (b >= '0' && b <= '9') || (b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z') ||
         (b >= 0x80 && b < 0xf8);
}

template <typename Use>
void for_each_word(std::string_view text, Use use) {
  char word[kMostWordBytes];
  std::size_t size = 0;
  const auto end = [&] {
    if (size > 0) use(std::string_view(word, size));
    size = 0;
  };
  for (const char c : text) {
    if (!is_indexed_byte(c)) {
      end();
    } else if (size < kMostWordBytes) {
      word[size++] = c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    }
  }
  end();
}

}  // namespace scriptorium::catalog
