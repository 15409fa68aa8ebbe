#include "core/api/kit/learned_size.h"

#include <gtest/gtest.h>

namespace scriptorium {
namespace {

TEST(LearnedSizeTest, ARefusalHalvesTheSizeDownToTheLeast) {
  LearnedSize size({.least = 100, .most = 1000});
  size.refused(900);
  EXPECT_EQ(size.value(), 450U);
  size.refused(120);
  EXPECT_EQ(size.value(), 100U);
  size.refused(800);
  EXPECT_EQ(size.value(), 100U) << "a refusal never raises it";
}

TEST(LearnedSizeTest, ItDoublesAfterSoManyRequestsInARow) {
  LearnedSize size({.least = 1, .most = 1000, .raise_after = 2});
  size.refused(600);
  EXPECT_FALSE(size.taken());
  size.refused(400);
  EXPECT_FALSE(size.taken()) << "the row began again";
  EXPECT_TRUE(size.taken());
  EXPECT_EQ(size.value(), 400U);
  for (int i = 0; i < 10; ++i) static_cast<void>(size.taken());
  EXPECT_EQ(size.value(), 1000U);
}

TEST(LearnedSizeTest, WithoutARowItStaysLearned) {
  LearnedSize size({.least = 1, .most = 1000});
  size.refused(1000);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(size.taken());
  EXPECT_EQ(size.value(), 500U);
}

TEST(LearnedSizeTest, AnotherConfiguredSizeLeavesWhatWasLearned) {
  LearnedSize size({.least = 1, .most = 1000});
  size.set_most(2000);
  EXPECT_EQ(size.value(), 2000U);
  size.refused(1000);
  size.set_most(3000);
  EXPECT_EQ(size.value(), 500U);
  size.set_most(300);
  EXPECT_EQ(size.value(), 300U);
}

}  // namespace
}  // namespace scriptorium
