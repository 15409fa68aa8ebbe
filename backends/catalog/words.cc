#include "backends/catalog/words.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/catalog/number_set.h"

namespace scriptorium::catalog {
namespace {

// FNV-1a over both words, with a byte between them that no word has, then mixed (SplitMix64):
// http://www.isthe.com/chongo/tech/comp/fnv/, https://prng.di.unimi.it/splitmix64.c
std::uint64_t hash_word(std::uint64_t hash, std::string_view word) noexcept {
  for (const char c : word) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return (hash ^ 0x20) * 0x100000001b3ULL;
}
std::uint64_t hash_pair(std::string_view first, std::string_view second) noexcept {
  std::uint64_t hash = hash_word(hash_word(0xcbf29ce484222325ULL, first), second);
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebULL;
  hash ^= hash >> 31;
  return hash == 0 ? 1 : hash;  // 0 is an empty place of NumberSet
}

// A Bloom filter: 10 bits for each pair and 4 hash functions let one pair in about 85 pass that the
// block does not have.
constexpr unsigned kFilterHashes = 4;
constexpr std::size_t kBitsOfPair = 10;
constexpr std::size_t kBitsOfWord = 8;  // lets one in about 40 pass

template <typename Use>
void for_each_bit(std::uint64_t hash, std::size_t bits, Use use) {
  const std::uint64_t step = (hash >> 32) | 1;
  for (unsigned i = 0; i < kFilterHashes; ++i) use((hash + i * step) % bits);
}

std::string filter_of(const NumberSet& hashes, std::size_t bits_of_each) {
  std::string filter((hashes.size() * bits_of_each + 7) / 8, '\0');
  if (filter.empty()) return filter;
  hashes.for_each([&](std::uint64_t hash) {
    for_each_bit(hash, filter.size() * 8, [&](std::uint64_t bit) {
      filter[bit / 8] = static_cast<char>(filter[bit / 8] | (1 << (bit % 8)));
    });
  });
  return filter;
}

bool has_bits(std::string_view filter, std::uint64_t hash) {
  if (filter.empty()) return false;
  bool all = true;
  for_each_bit(hash, filter.size() * 8, [&](std::uint64_t bit) {
    if ((static_cast<unsigned char>(filter[bit / 8]) >> (bit % 8) & 1) == 0) all = false;
  });
  return all;
}

struct Seen {
  std::size_t contents = 0;  // that have the word
  std::size_t last = 0;      // the last of them, from 1
};

}  // namespace

BlockWords words_of(const Block& block) {
  std::unordered_map<std::string, Seen> words;
  NumberSet pairs;
  bool all_plain = true;
  for (std::size_t place = 0; place < block.size(); ++place) {
    // In a query such bytes continue a word, so a script with them may lack a word that is listed.
    const std::string_view script = block[place];
    const bool plain = std::none_of(script.begin(), script.end(),
                                    [](char c) { return static_cast<unsigned char>(c) >= 0xf8; });
    all_plain = all_plain && plain;
    const std::string* before = nullptr;
    for_each_word(block[place], [&](std::string_view word) {
      const auto found = words.try_emplace(std::string(word)).first;
      if (found->second.last != place + 1) {
        found->second.last = place + 1;
        if (plain) ++found->second.contents;
      }
      if (before != nullptr) pairs.insert(hash_pair(*before, word));
      before = &found->first;  // stays where it is when the map grows
    });
  }
  std::vector<std::pair<std::string_view, bool>> sorted;
  sorted.reserve(words.size());
  for (const auto& [word, seen] : words) sorted.emplace_back(word, seen.contents == block.size());
  std::sort(sorted.begin(), sorted.end());

  BlockWords result;
  for (const auto& [word, in_all] : sorted) result.list.append(word).append(" ");
  if (block.size() > 1) {
    for (const auto& [word, in_all] : sorted) {
      if (in_all) (result.list += kInAll).append(word).append(" ");
    }
  }
  if (block.size() == 1 && all_plain) (result.list += kInAll) += ' ';
  result.filter = filter_of(pairs, kBitsOfPair);
  return result;
}

bool may_have_pair(std::string_view filter, std::string_view first, std::string_view second) {
  return has_bits(filter, hash_pair(first, second));
}

std::string filter_of_words(const Block& block) {
  NumberSet words;
  for (std::size_t place = 0; place < block.size(); ++place)
    for_each_word(block[place], [&](std::string_view word) { words.insert(hash_pair(word, {})); });
  return filter_of(words, kBitsOfWord);
}

bool may_have_word(std::string_view filter, std::string_view word) {
  return has_bits(filter, hash_pair(word, {}));
}

std::vector<std::string> words_of_text(std::string_view text) {
  std::vector<std::string> words;
  for_each_word(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

}  // namespace scriptorium::catalog
