#include "backends/catalog/words.h"

#include <algorithm>
#include <cstddef>
#include <map>
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
  std::uint64_t parts = 0;   // as in scripts_with()
};

constexpr std::uint64_t kEveryPart = ~std::uint64_t{0};
// Of more words so many would share a hash that the list says little.
constexpr std::size_t kMostPlacedWords = 16'384;

std::uint16_t short_hash(std::string_view word) noexcept {
  return static_cast<std::uint16_t>(hash_pair(word, {}) >> 48);
}

template <typename Number>
void append_number(std::string& to, Number number) {
  for (std::size_t i = 0; i < sizeof number; ++i)
    to += static_cast<char>(static_cast<unsigned char>(number >> (8 * i)));
}
// `at` + sizeof(Number) must be within the bytes.
template <typename Number>
Number number_at(std::string_view bytes, std::size_t at) noexcept {
  Number number = 0;
  for (std::size_t i = 0; i < sizeof number; ++i)
    number =
        static_cast<Number>(number | Number{static_cast<unsigned char>(bytes[at + i])} << (8 * i));
  return number;
}

constexpr std::size_t kPlacesHeader = 4;
constexpr std::size_t kBytesOfWord = 4;

// `parts` of words, by their hash.
std::string pack_places(const std::map<std::uint16_t, std::uint64_t>& parts) {
  std::string places;
  if (parts.empty() || parts.size() > kMostPlacedWords) return places;
  append_number(places, static_cast<std::uint32_t>(parts.size()));
  for (const auto& [hash, pattern] : parts) append_number(places, hash);
  std::unordered_map<std::uint64_t, std::uint16_t> numbers;
  std::vector<std::uint64_t> patterns;
  for (const auto& [hash, pattern] : parts) {
    const auto [number, is_new] =
        numbers.try_emplace(pattern, static_cast<std::uint16_t>(patterns.size()));
    if (is_new) patterns.push_back(pattern);
    append_number(places, number->second);
  }
  for (const std::uint64_t pattern : patterns) append_number(places, pattern);
  return places;
}

std::size_t part_of(std::size_t place, std::size_t scripts) noexcept {
  return scripts <= kMostParts ? place : place * kMostParts / scripts;
}

std::string places_of(const std::unordered_map<std::string, Seen>& words, std::size_t scripts) {
  const std::size_t parts = std::min(scripts, kMostParts);
  const std::uint64_t all = kEveryPart >> (kMostParts - parts);
  std::map<std::uint16_t, std::uint64_t> by_hash;
  std::vector<std::uint16_t> everywhere;
  for (const auto& [word, seen] : words) {
    const std::uint16_t hash = short_hash(word);
    if (seen.parts == all) {
      everywhere.push_back(hash);
    } else {
      by_hash[hash] |= seen.parts;
    }
  }
  // Words that share a hash share their scripts.
  for (const std::uint16_t hash : everywhere) by_hash.erase(hash);
  return pack_places(by_hash);
}

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
        found->second.parts |= std::uint64_t{1} << part_of(place, block.size());
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
  result.places = places_of(words, block.size());
  return result;
}

bool may_have_pair(std::string_view filter, std::string_view first, std::string_view second) {
  return has_bits(filter, hash_pair(first, second));
}

std::uint64_t scripts_with(std::string_view places, std::string_view word) {
  if (places.size() < kPlacesHeader) return kEveryPart;
  const std::uint64_t count = number_at<std::uint32_t>(places, 0);
  const std::uint64_t patterns = kPlacesHeader + count * kBytesOfWord;
  if (patterns > places.size()) return kEveryPart;  // damaged
  const std::uint16_t hash = short_hash(word);
  std::size_t first = 0;
  for (std::size_t left = count; left > 0;) {
    const std::size_t half = left / 2;
    if (number_at<std::uint16_t>(places, kPlacesHeader + 2 * (first + half)) < hash) {
      first += half + 1;
      left -= half + 1;
    } else {
      left = half;
    }
  }
  if (first == count || number_at<std::uint16_t>(places, kPlacesHeader + 2 * first) != hash)
    return kEveryPart;
  const std::uint64_t pattern =
      patterns +
      std::uint64_t{8} * number_at<std::uint16_t>(places, kPlacesHeader + 2 * (count + first));
  if (pattern + 8 > places.size()) return kEveryPart;
  return number_at<std::uint64_t>(places, pattern);
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
