#include "backends/catalog/words.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "backends/catalog/block.h"
#include "backends/catalog/id_set.h"

namespace scriptorium::catalog {
namespace {

Block block_of(const std::vector<std::string>& scripts) {
  auto block = Block::unpack(pack_block({scripts.begin(), scripts.end()}, kFinishedLevel));
  EXPECT_TRUE(block);
  return *std::move(block);
}

std::vector<std::string> some_scripts(std::size_t count, std::mt19937& random) {
  std::vector<std::string> scripts(count);
  for (std::string& script : scripts) {
    for (int i = 0; i < 40; ++i) script += "word" + std::to_string(random() % 300) + " ";
    script += "common\n";
  }
  return scripts;
}

TEST(CatalogWordsTest, EachScriptThatHasAWordIsNamed) {
  std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): the same each time
  std::size_t exact = 0;
  std::size_t words = 0;
  std::size_t few = 0;  // words that not all scripts of a small block have
  std::size_t all_certain = 0;
  for (const std::size_t count : {2U, 3U, 8U, 9U, 256U, 257U, 1000U}) {
    const std::vector<std::string> scripts = some_scripts(count, random);
    const std::string places = words_of(block_of(scripts)).places;
    for (int i = 0; i < 300; ++i) {
      const std::string word = "word" + std::to_string(i);
      const auto [found, certain] = scripts_with(places, word);
      Scripts expected;
      for (std::size_t place = 0; place < count; ++place) {
        if (scripts[place].find(word + " ") != std::string::npos)
          expected.set(count <= kMostParts ? place : place * kMostParts / count);
      }
      EXPECT_TRUE((expected & ~found).none()) << word << " of " << count;
      words += expected.any() ? 1 : 0;
      if (expected.any()) {
        EXPECT_TRUE((certain & ~expected).none()) << word << " of " << count;
      }
      // Of a part that may be of several scripts, nothing is.
      if (count >= kMostParts) {
        EXPECT_TRUE(certain.none());
      } else if (expected.any() && expected.count() < count) {
        ++few;
        all_certain += certain == expected ? 1 : 0;
      }
      // One that all have is not listed.
      if (expected.count() == std::min(count, kMostParts)) expected = ~Scripts();
      exact += expected.any() && expected == found ? 1 : 0;
    }
    EXPECT_EQ(scripts_with(places, "common").possible, ~Scripts());
    EXPECT_TRUE(scripts_with(places, "common").certain.none());
  }
  EXPECT_EQ(exact, words);  // of so few words, none share a hash
  EXPECT_EQ(all_certain, few);
  EXPECT_GT(few, 300U);
}

// Else two frequent words that share a hash would seem to be in one script in every block.
TEST(CatalogWordsTest, WhichWordsShareAHashDiffersFromBlockToBlock) {
  const auto sharing = [](const std::string& first_word) {
    std::string many = first_word;
    std::string few;
    for (int i = 0; i < 3'000; ++i) many += " other" + std::to_string(i);
    for (int i = 0; i < 500; ++i) few += "word" + std::to_string(i) + " ";
    const std::string places = words_of(block_of({many, few})).places;
    std::vector<int> words;
    for (int i = 0; i < 500; ++i) {
      const auto [scripts, certain] = scripts_with(places, "word" + std::to_string(i));
      EXPECT_TRUE(scripts.test(1));
      if (scripts.test(0)) words.push_back(i);
      EXPECT_TRUE(certain.none() || (certain == scripts && !scripts.test(0)));
    }
    return words;
  };
  const std::vector<int> once = sharing("a");
  const std::vector<int> twice = sharing("b");
  EXPECT_FALSE(once.empty());
  EXPECT_NE(once, twice);
}

TEST(CatalogWordsTest, BytesThatAreNoUtf8HideNoWord) {
  const std::string places = words_of(block_of({"gmx mdrun\n", "\xff gmx\xff srun\n"})).places;
  EXPECT_EQ(scripts_with(places, "gmx").possible, ~Scripts());
  EXPECT_EQ(scripts_with(places, "mdrun").possible, Scripts(1));
  EXPECT_EQ(scripts_with(places, "srun").possible, Scripts(2));
  // For a search, the byte continues the word before it.
  EXPECT_TRUE(scripts_with(places, "srun").certain.none());
  EXPECT_EQ(scripts_with(places, "mdrun").certain, Scripts(1));
}

TEST(CatalogWordsTest, AListOfAnEarlierVersionSaysNothingForCertain) {
  const std::string places = words_of(block_of({"gmx mdrun\n", "gmx srun\n"})).places;
  EXPECT_EQ(scripts_with(places, "srun").certain, Scripts(2));
  for (const std::uint16_t flag : {kNamedSome, std::uint16_t{0}}) {
    std::string earlier = places;
    earlier[3] = static_cast<char>(flag >> 8);
    EXPECT_TRUE(is_earlier_list(earlier, places));
    EXPECT_EQ(scripts_with(earlier, "srun").possible, Scripts(2));
    EXPECT_TRUE(scripts_with(earlier, "srun").certain.none());
    earlier.back() = static_cast<char>(earlier.back() + 1);  // a pattern: there are no shared ones
    EXPECT_FALSE(is_earlier_list(earlier, places));
  }
  EXPECT_FALSE(is_earlier_list(places, places));
  EXPECT_FALSE(is_earlier_list("", places));
}

TEST(CatalogIdSetTest, BitsAndRangesAreThoseOfItsMembers) {
  std::mt19937 random(3);  // NOLINT(cert-msc51-cpp): the same each time
  constexpr std::int64_t kIds = 300;
  for (int round = 0; round < 200; ++round) {
    IdSet set;
    for (std::uint32_t left = random() % 8; left > 0; --left)
      set.add(static_cast<std::int64_t>(random() % kIds));
    const IdSet again = IdSet::of_bits(set.bits());
    for (std::int64_t begin = 0; begin < kIds; ++begin) {
      EXPECT_EQ(again.has(begin), set.has(begin));
      bool any = false;
      for (std::int64_t end = begin; end < kIds; any = any || set.has(end), ++end) {
        ASSERT_EQ(set.has_any(begin, end), any) << begin << " to " << end;
      }
    }
  }
}

TEST(CatalogWordsTest, OfVeryManyWordsNothingIsKept) {
  std::string many;
  for (int i = 0; i < 20'000; ++i) many += "w" + std::to_string(i) + " ";
  EXPECT_EQ(words_of(block_of({many, "gmx\n"})).places, "");
}

TEST(CatalogWordsTest, ADamagedListNamesEveryScriptOrSome) {
  std::mt19937 random(2);  // NOLINT(cert-msc51-cpp): the same each time
  const std::string places = words_of(block_of(some_scripts(20, random))).places;
  for (int i = 0; i < 2'000; ++i) {
    std::string damaged = places.substr(0, random() % (places.size() + 1));
    for (int change = 0; change < 3 && !damaged.empty(); ++change)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    scripts_with(damaged, "word7");  // reads nothing beyond its end: AddressSanitizer
  }
  EXPECT_EQ(scripts_with("", "word7").possible, ~Scripts());
  EXPECT_EQ(scripts_with(places.substr(0, 5), "word7").possible, ~Scripts());
}

}  // namespace
}  // namespace scriptorium::catalog
