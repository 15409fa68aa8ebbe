#include "core/api/kit/repeat_limit.h"

#include <gtest/gtest.h>

namespace scriptorium {
namespace {

using namespace std::chrono_literals;

const SteadyTime kStart = SteadyTime{} + 1h;

TEST(RepeatLimitTest, ACauseIsLoggedOnceInEachInterval) {
  RepeatLimit limit(10min);
  EXPECT_TRUE(limit.allows("a", kStart));
  EXPECT_FALSE(limit.allows("a", kStart + 9min));
  EXPECT_TRUE(limit.allows("b", kStart + 9min)) << "another cause";
  EXPECT_TRUE(limit.allows("a", kStart + 10min));
  EXPECT_FALSE(limit.allows("a", kStart + 19min));
}

TEST(RepeatLimitTest, WithoutAnIntervalItIsLoggedOnlyOnce) {
  RepeatLimit limit;
  EXPECT_TRUE(limit.allows("a", kStart));
  EXPECT_FALSE(limit.allows("a", kStart + 24h));
}

TEST(RepeatLimitTest, ACauseThatEndedIsNewsWhenItComesAgain) {
  RepeatLimit limit;
  EXPECT_FALSE(limit.forget("topic a"));
  EXPECT_TRUE(limit.allows("topic a/refused", kStart));
  EXPECT_TRUE(limit.allows("topic b/refused", kStart));
  EXPECT_TRUE(limit.forget("topic a/"));
  EXPECT_TRUE(limit.allows("topic a/refused", kStart));
  EXPECT_FALSE(limit.allows("topic b/refused", kStart));
  EXPECT_TRUE(limit.forget_all());
  EXPECT_FALSE(limit.forget_all());
}

TEST(RepeatLimitTest, TheOldestCauseIsForgottenWhenThereAreTooMany) {
  RepeatLimit limit(RepeatLimit::kOnce, 2);
  EXPECT_TRUE(limit.allows("z", kStart));
  EXPECT_TRUE(limit.allows("a", kStart + 1s));
  EXPECT_TRUE(limit.allows("b", kStart + 2s));
  EXPECT_FALSE(limit.allows("a", kStart + 3s));
  EXPECT_TRUE(limit.allows("z", kStart + 4s));
}

}  // namespace
}  // namespace scriptorium
