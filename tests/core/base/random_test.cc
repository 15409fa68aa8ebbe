#include "core/base/random.h"

#include <gtest/gtest.h>

#include <set>

namespace scriptorium {
namespace {

TEST(RandomHexTest, GivesTwoDigitsForEachByteAndNeverTheSame) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const auto text = random_hex(16);
    ASSERT_TRUE(text) << text.error().message();
    EXPECT_EQ(text->size(), 32U);
    EXPECT_EQ(text->find_first_not_of("0123456789abcdef"), std::string::npos) << *text;
    EXPECT_TRUE(seen.insert(*text).second) << *text;
  }
  EXPECT_EQ(random_hex(4)->size(), 8U);
}

}  // namespace
}  // namespace scriptorium
