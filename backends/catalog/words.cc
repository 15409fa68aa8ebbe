#include "backends/catalog/words.h"

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <map>
#include <optional>
#include <ranges>
#include <set>
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
std::uint64_t mixed(std::uint64_t hash) noexcept {
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebULL;
  return hash ^ (hash >> 31);
}
constexpr std::uint64_t kFirstHash = 0xcbf29ce484222325ULL;

// `first`: hash_word() of the first word.
std::uint64_t hash_pair(std::uint64_t first, std::string_view second) noexcept {
  const std::uint64_t hash = mixed(hash_word(first, second));
  return hash == 0 ? 1 : hash;  // 0 is an empty place of NumberSet
}
std::uint64_t hash_pair(std::string_view first, std::string_view second) noexcept {
  return hash_pair(hash_word(kFirstHash, first), second);
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
  std::uint32_t number = 0;    // of the word, from 0
  std::uint32_t contents = 0;  // plain ones that have the word
  std::size_t last = 0;        // the last of all that have it, from 1
  bool in_others = false;      // that are not plain
};
// A word with hash_word() of it, which is made once.
struct HashedWord {
  std::string text;
  std::uint64_t hash = 0;
};
struct HashedView {
  std::string_view text;
  std::uint64_t hash = 0;
};
struct HashOfWord {
  using is_transparent = void;
  std::size_t operator()(const auto& word) const noexcept { return word.hash; }
};
struct EqualWords {
  using is_transparent = void;
  bool operator()(const auto& a, const auto& b) const noexcept { return a.text == b.text; }
};
// Of a block.
constexpr std::size_t kUsualWords = 1'024;
using Words = std::unordered_map<HashedWord, Seen, HashOfWord, EqualWords>;

std::size_t part_of(std::size_t place, std::size_t scripts) noexcept {
  return scripts <= kMostParts ? place : place * kMostParts / scripts;
}

// ---- places, see scripts_with()

constexpr std::size_t kPlacesHeader = 8;
constexpr std::size_t kShortNumbers = 256;
// Of more words so many would share a hash that the list says little, and it would take much memory
// to make.
constexpr std::size_t kMostPlacedWords = 16'384;

constexpr std::uint16_t kSaltsTried = 64;

std::uint16_t short_hash(std::uint64_t hash, std::uint16_t salt) noexcept {
  return static_cast<std::uint16_t>(mixed(hash + salt) >> 48);
}

// Of some salts, the one with which the fewest of a block's words share a hash. Where the first one
// is differs from block to block: else two frequent words that share a hash would in all of them.
std::uint16_t salt_of(const std::vector<std::uint64_t>& hashes, const Block& block) {
  const auto first = static_cast<std::uint16_t>(hash_pair(block[0], {}));
  std::uint16_t best = first;
  std::size_t fewest = hashes.size();
  for (std::uint16_t i = 0; i < kSaltsTried && fewest > 0; ++i) {
    const auto salt = static_cast<std::uint16_t>(first + i);
    std::bitset<(1U << 16)> taken;
    std::size_t shared = 0;
    for (const std::uint64_t hash : hashes) {
      const std::uint16_t place = short_hash(hash, salt);
      shared += taken.test(place) ? 1 : 0;
      if (shared == fewest) break;
      taken.set(place);
    }
    if (shared < fewest) {
      fewest = shared;
      best = salt;
    }
  }
  return best;
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
    number = static_cast<Number>(
        number | static_cast<Number>(static_cast<unsigned char>(bytes[at + i])) << (8 * i));
  return number;
}

std::string bytes_of(const Scripts& scripts, std::size_t parts) {
  std::string bytes((parts + 7) / 8, '\0');
  for (std::size_t part = 0; part < parts; ++part) {
    if (scripts[part]) bytes[part / 8] = static_cast<char>(bytes[part / 8] | 1 << (part % 8));
  }
  return bytes;
}

// What scripts_with() describes, within the bytes of a list.
struct PlacesLayout {
  std::size_t words = 0;
  std::size_t parts = 0;
  bool names_shared = false;
  std::uint16_t salt = 0;
  std::size_t number_bytes = 0;
  std::size_t numbers = 0;  // where they begin, as `patterns` and `shared`
  std::size_t patterns = 0;
  std::size_t shared = 0;
  std::size_t pattern_bytes() const noexcept { return (parts + 7) / 8; }
};
// Nothing for a damaged list.
std::optional<PlacesLayout> layout_of(std::string_view places) {
  if (places.size() < kPlacesHeader) return std::nullopt;
  PlacesLayout layout;
  layout.words = number_at<std::uint16_t>(places, 0);
  const auto parts = number_at<std::uint16_t>(places, 2);
  layout.names_shared = (parts & kNamesShared) != 0;
  layout.parts = parts & ~(kNamesShared | kNamedSome);
  const std::size_t patterns = number_at<std::uint16_t>(places, 4);
  layout.salt = number_at<std::uint16_t>(places, 6);
  layout.number_bytes = patterns <= kShortNumbers ? 1 : 2;
  layout.numbers = kPlacesHeader + 2 * layout.words;
  layout.patterns = layout.numbers + layout.number_bytes * layout.words;
  layout.shared = layout.patterns + patterns * layout.pattern_bytes();
  if (layout.parts > kMostParts || layout.shared > places.size()) return std::nullopt;
  return layout;
}

// The place of a hash in an ascending list of them; nothing if it is not there.
std::optional<std::size_t> find_hash(std::string_view places, std::size_t begin, std::size_t count,
                                     std::uint16_t hash) {
  const auto hash_at = [&](std::size_t at) {
    return number_at<std::uint16_t>(places, begin + 2 * at);
  };
  const auto all = std::views::iota(std::size_t{0}, count);
  const auto found = std::ranges::lower_bound(all, hash, {}, hash_at);
  if (found == all.end() || hash_at(*found) != hash) return std::nullopt;
  return *found;
}

std::string pack_places(const std::map<std::uint16_t, Scripts>& words,
                        const std::set<std::uint16_t>& shared, std::size_t parts,
                        std::uint16_t salt) {
  std::string places;
  if (words.empty()) return places;
  std::unordered_map<std::string, std::uint16_t> numbers;
  std::string patterns;
  std::vector<std::uint16_t> of_words;
  for (const auto& [hash, scripts] : words) {
    const std::string pattern = bytes_of(scripts, parts);
    const auto [number, is_new] =
        numbers.try_emplace(pattern, static_cast<std::uint16_t>(numbers.size()));
    if (is_new) patterns += pattern;
    of_words.push_back(number->second);
  }
  append_number(places, static_cast<std::uint16_t>(words.size()));
  append_number(places, static_cast<std::uint16_t>(parts | kNamesShared));
  append_number(places, static_cast<std::uint16_t>(numbers.size()));
  append_number(places, salt);
  for (const auto& [hash, scripts] : words) append_number(places, hash);
  for (const std::uint16_t number : of_words) {
    numbers.size() <= kShortNumbers ? append_number(places, static_cast<std::uint8_t>(number))
                                    : append_number(places, number);
  }
  places += patterns;
  for (const std::uint16_t hash : shared) append_number(places, hash);
  return places;
}

// `having`: by Seen::number.
std::string places_of(const Words& words, const std::vector<Scripts>& having, const Block& block) {
  if (words.empty() || words.size() > kMostPlacedWords) return {};
  const std::size_t parts = std::min(block.size(), kMostParts);
  std::vector<std::uint64_t> hashes;
  hashes.reserve(words.size());
  for (const auto& [word, seen] : words) hashes.push_back(hash_pair(word.hash, {}));
  const std::uint16_t salt = salt_of(hashes, block);
  std::map<std::uint16_t, Scripts> by_hash;
  std::set<std::uint16_t> shared;
  std::vector<std::uint16_t> everywhere;
  for (const auto& [word, seen] : words) {
    const Scripts& with_word = having[seen.number];
    const std::uint16_t hash = short_hash(hash_pair(word.hash, {}), salt);
    if (with_word.count() == parts) {
      everywhere.push_back(hash);
      continue;
    }
    const auto [known, is_new] = by_hash.try_emplace(hash, with_word);
    if (!is_new) known->second |= with_word;
    if (!is_new || seen.in_others) shared.insert(hash);
  }
  for (const std::uint16_t hash : everywhere) {
    by_hash.erase(hash);
    shared.erase(hash);
  }
  return pack_places(by_hash, shared, parts, salt);
}

}  // namespace

BlockWords words_of(const Block& block) {
  Words words(kUsualWords);
  std::vector<Scripts> having;  // each word, by its number
  NumberSet pairs;
  bool all_plain = true;
  for (std::size_t place = 0; place < block.size(); ++place) {
    // In a query such bytes continue a word, so a script with them may lack a word that is listed.
    const std::string_view script = block[place];
    const bool plain = std::none_of(script.begin(), script.end(),
                                    [](char c) { return static_cast<unsigned char>(c) >= 0xf8; });
    all_plain = all_plain && plain;
    std::optional<std::uint64_t> before;
    for_each_word(script, [&](std::string_view word) {
      const std::uint64_t hash = hash_word(kFirstHash, word);
      auto found = words.find(HashedView{word, hash});
      if (found == words.end()) {
        const auto number = static_cast<std::uint32_t>(words.size());
        found = words.try_emplace({std::string(word), hash}, Seen{.number = number}).first;
        if (number < kMostPlacedWords) having.emplace_back();
      }
      Seen& seen = found->second;
      if (seen.last != place + 1) {
        seen.last = place + 1;
        seen.contents += plain ? 1 : 0;
        seen.in_others = seen.in_others || !plain;
        if (seen.number < having.size()) having[seen.number].set(part_of(place, block.size()));
      }
      if (before) pairs.insert(hash_pair(*before, word));
      before = hash;
    });
  }
  std::vector<std::pair<std::string_view, bool>> sorted;
  sorted.reserve(words.size());
  for (const auto& [word, seen] : words)
    sorted.emplace_back(word.text, seen.contents == block.size());
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
  result.places = places_of(words, having, block);
  return result;
}

bool may_have_pair(std::string_view filter, std::string_view first, std::string_view second) {
  return has_bits(filter, hash_pair(first, second));
}

WordScripts scripts_with(std::string_view places, std::string_view word) {
  WordScripts scripts;
  const auto layout = layout_of(places);
  if (!layout) return scripts;
  const std::uint16_t hash = short_hash(hash_pair(word, {}), layout->salt);
  const auto at = find_hash(places, kPlacesHeader, layout->words, hash);
  if (!at) return scripts;
  const std::size_t number = layout->number_bytes == 1
                                 ? number_at<std::uint8_t>(places, layout->numbers + *at)
                                 : number_at<std::uint16_t>(places, layout->numbers + 2 * *at);
  const std::size_t size = layout->pattern_bytes();
  const std::size_t pattern = layout->patterns + size * number;
  if (pattern + size > layout->shared) return scripts;
  scripts.possible.reset();
  for (std::size_t byte = size; byte-- > 0;) {
    scripts.possible =
        scripts.possible << 8 | Scripts(static_cast<unsigned char>(places[pattern + byte]));
  }
  // A part may be of several scripts.
  if (layout->names_shared && layout->parts < kMostParts &&
      !find_hash(places, layout->shared, (places.size() - layout->shared) / 2, hash))
    scripts.certain = scripts.possible;
  return scripts;
}

std::size_t parts_of(std::string_view places) {
  const auto layout = layout_of(places);
  return layout ? layout->parts : 0;
}

bool is_earlier_list(std::string_view places, std::string_view list) {
  const auto layout = layout_of(list);
  const auto earlier = layout_of(places);
  return layout && earlier && !earlier->names_shared && earlier->parts == layout->parts &&
         places.substr(0, 2) == list.substr(0, 2) &&
         places.substr(4, earlier->shared - 4) == list.substr(4, layout->shared - 4);
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
