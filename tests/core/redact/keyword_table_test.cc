#include "core/redact/keyword_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/ascii.h"

namespace scriptorium::redact {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Occurrences = std::vector<std::pair<std::size_t, std::size_t>>;  // end, keyword

Occurrences scanned(const KeywordTable& table, std::string_view text) {
  Occurrences found;
  table.scan(text, [&](std::size_t keyword, std::size_t end) {
    found.emplace_back(end, keyword);
    return true;
  });
  return found;
}

// The definition: each keyword compared at each place.
Occurrences compared(const std::vector<std::string>& keywords, std::string_view text) {
  const std::string lower = to_lower(text);
  Occurrences found;
  for (std::size_t end = 1; end <= lower.size(); ++end) {
    for (std::size_t n = 0; n < keywords.size(); ++n) {
      const std::string keyword = to_lower(keywords[n]);
      if (!keyword.empty() && std::string_view(lower).substr(0, end).ends_with(keyword))
        found.emplace_back(end, n);
    }
  }
  return found;
}

TEST(KeywordTableTest, FindsKeywordsInsideOneAnother) {
  const KeywordTable table({"he", "she", "his", "hers", "he"});
  EXPECT_THAT(scanned(table, "uSHErs"),
              testing::UnorderedElementsAre(std::pair{4U, 1U}, std::pair{4U, 0U}, std::pair{4U, 4U},
                                            std::pair{6U, 3U}));
  EXPECT_THAT(scanned(table, ""), IsEmpty());
}

TEST(KeywordTableTest, WithoutKeywordsNothingIsFound) {
  EXPECT_THAT(scanned(KeywordTable(), "any text\0\xFF"), IsEmpty());
  EXPECT_THAT(scanned(KeywordTable({"", "x"}), "xy"), ElementsAre(std::pair{1U, 1U}));
}

TEST(KeywordTableTest, StopsWhenToldTo) {
  int calls = 0;
  KeywordTable({"a"}).scan("aaaa", [&](std::size_t, std::size_t) { return ++calls < 2; });
  EXPECT_EQ(calls, 2);
}

TEST(KeywordTableTest, FindsWhatComparingFinds) {
  std::mt19937 random(17);
  std::size_t found = 0;
  for (int round = 0; round < 400; ++round) {
    // A small alphabet makes keywords share prefixes and suffixes.
    const std::string_view alphabet = round % 2 == 0 ? "abAB" : "aA_\xE4\xC4z";
    const auto any_text = [&](std::size_t most) {
      std::string text(random() % (most + 1), ' ');
      for (char& c : text) c = alphabet[random() % alphabet.size()];
      return text;
    };
    std::vector<std::string> keywords(random() % 12);
    for (std::string& keyword : keywords) keyword = any_text(6);
    const std::string text = any_text(200);
    Occurrences by_table = scanned(KeywordTable(keywords), text);
    EXPECT_TRUE(std::is_sorted(by_table.begin(), by_table.end(),
                               [](const auto& a, const auto& b) { return a.first < b.first; }));
    std::sort(by_table.begin(), by_table.end());
    ASSERT_EQ(by_table, compared(keywords, text));
    found += by_table.size();
  }
  EXPECT_GT(found, 10'000U);  // otherwise it compared nothing with nothing
}

}  // namespace
}  // namespace scriptorium::redact
