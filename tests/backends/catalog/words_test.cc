#include "backends/catalog/words.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "backends/catalog/block.h"

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
  for (const std::size_t count : {2U, 3U, 8U, 9U, 256U, 257U, 1000U}) {
    const std::vector<std::string> scripts = some_scripts(count, random);
    const std::string places = words_of(block_of(scripts)).places;
    for (int i = 0; i < 300; ++i) {
      const std::string word = "word" + std::to_string(i);
      const Scripts found = scripts_with(places, word);
      Scripts expected;
      for (std::size_t place = 0; place < count; ++place) {
        if (scripts[place].find(word + " ") != std::string::npos)
          expected.set(count <= kMostParts ? place : place * kMostParts / count);
      }
      EXPECT_TRUE((expected & ~found).none()) << word << " of " << count;
      words += expected.any() ? 1 : 0;
      // One that all have is not listed.
      if (expected.count() == std::min(count, kMostParts)) expected = ~Scripts();
      exact += expected.any() && expected == found ? 1 : 0;
    }
    EXPECT_EQ(scripts_with(places, "common"), ~Scripts());
  }
  EXPECT_EQ(exact, words);  // of so few words, none share a hash
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
      const Scripts scripts = scripts_with(places, "word" + std::to_string(i));
      EXPECT_TRUE(scripts.test(1));
      if (scripts.test(0)) words.push_back(i);
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
  EXPECT_EQ(scripts_with(places, "gmx"), ~Scripts());
  EXPECT_EQ(scripts_with(places, "mdrun"), Scripts(1));
  EXPECT_EQ(scripts_with(places, "srun"), Scripts(2));
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
  EXPECT_EQ(scripts_with("", "word7"), ~Scripts());
  EXPECT_EQ(scripts_with(places.substr(0, 5), "word7"), ~Scripts());
}

}  // namespace
}  // namespace scriptorium::catalog
