#include "backends/elasticsearch/hosts.h"

#include <gtest/gtest.h>

namespace scriptorium::elasticsearch {
namespace {

using std::chrono::seconds;

class HostsTest : public ::testing::Test {
 protected:
  Hosts hosts_{{"a", "b", "c"}};
  SteadyTime now_{std::chrono::hours(1)};
};

TEST_F(HostsTest, TakesTurns) {
  EXPECT_EQ(hosts_.pick(now_), 0U);
  EXPECT_EQ(hosts_.pick(now_), 1U);
  EXPECT_EQ(hosts_.pick(now_), 2U);
  EXPECT_EQ(hosts_.pick(now_), 0U);
}

TEST_F(HostsTest, LeavesOutWhoFailedAndComesBackToIt) {
  hosts_.failed(1, now_, "gone");
  EXPECT_EQ(hosts_.pick(now_), 0U);
  EXPECT_EQ(hosts_.pick(now_), 2U);
  EXPECT_EQ(hosts_.pick(now_), 0U);
  EXPECT_EQ(hosts_.pick(now_ + seconds(1)), 1U);
}

TEST_F(HostsTest, WaitsTwiceAsLongEachTimeUpToAMinute) {
  for (const int wait : {1, 2, 4, 8, 16, 32, 60, 60}) {
    hosts_.failed(0, now_, "gone");
    EXPECT_EQ(hosts_.list()[0].out_until, now_ + seconds(wait));
  }
  hosts_.worked(0);
  EXPECT_EQ(hosts_.list()[0].last_error, "");
  hosts_.failed(0, now_, "gone");
  EXPECT_EQ(hosts_.list()[0].out_until, now_ + seconds(1));
}

TEST_F(HostsTest, TakesTheOneThatIsOutForLongestIfAllAre) {
  hosts_.failed(2, now_, "gone");
  hosts_.failed(0, now_ + std::chrono::milliseconds(1), "gone");
  hosts_.failed(1, now_ + std::chrono::milliseconds(2), "gone");
  EXPECT_EQ(hosts_.pick(now_ + std::chrono::milliseconds(3)), 2U);
}

TEST_F(HostsTest, TriesAnotherThanThoseThatWereTried) {
  EXPECT_EQ(hosts_.pick(now_, {0}), 1U);
  EXPECT_EQ(hosts_.pick(now_, {0, 2}), 1U);
  hosts_.failed(1, now_, "gone");
  EXPECT_EQ(hosts_.pick(now_, {0, 2}), 1U);  // the only one left, though it is out
}

}  // namespace
}  // namespace scriptorium::elasticsearch
