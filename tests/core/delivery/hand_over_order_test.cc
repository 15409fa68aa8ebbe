#include "core/delivery/hand_over_order.h"

#include <gtest/gtest.h>

namespace scriptorium::delivery {
namespace {

using Request = HandOverOrder::Request;

// A sink that takes several batches at once, in order. Batches begin at 10, 20 and 30.
class InOrderTest : public testing::Test {
 protected:
  InOrderTest() {
    for (const std::uint64_t first : {10U, 20U, 30U}) order_.line_up(first);
  }
  static Request batch(std::uint64_t place) { return {.place = place, .events = 5}; }

  HandOverOrder order_{true};
};

TEST_F(InOrderTest, HandsBatchesOverByTheirPlaces) {
  EXPECT_FALSE(order_.take(batch(20)));
  EXPECT_TRUE(order_.take(batch(10)));
  order_.handed_over(batch(10));
  EXPECT_FALSE(order_.take(batch(30)));
  EXPECT_TRUE(order_.take(batch(20)));
}

TEST_F(InOrderTest, HandsOneOverWhileTheOneBeforeIsUnsettledButNotDuringItsCall) {
  ASSERT_TRUE(order_.take(batch(10)));
  EXPECT_EQ(order_.calls_under_way(), 1U);
  order_.leave(10);
  EXPECT_FALSE(order_.take(batch(20)));
  order_.handed_over(batch(10));
  EXPECT_TRUE(order_.take(batch(20)));
  EXPECT_EQ(order_.events_in_hand(), 10U);
}

TEST_F(InOrderTest, ARefusedBatchGoesBeforeThoseBehindIt) {
  ASSERT_TRUE(order_.take(batch(10)));
  order_.handed_over(batch(10));
  order_.settled(batch(10));
  order_.line_up_again(10);
  EXPECT_FALSE(order_.take(batch(20)));
  EXPECT_TRUE(order_.take(batch(10)));
}

TEST_F(InOrderTest, OnlyTheFirstProbesAndOnlyOnceNothingIsInHand) {
  EXPECT_TRUE(order_.may_probe(10));
  EXPECT_FALSE(order_.may_probe(20));
  ASSERT_TRUE(order_.take(batch(10)));
  order_.handed_over(batch(10));
  EXPECT_FALSE(order_.may_probe(20));
  order_.settled(batch(10));
  EXPECT_TRUE(order_.may_probe(20));
}

TEST_F(InOrderTest, ARefusedBatchIsExtendedOnlyIfNothingWaitsBehindItOrIsInHand) {
  EXPECT_FALSE(order_.may_extend());
  order_.leave(20);
  order_.leave(30);
  EXPECT_TRUE(order_.may_extend());
  ASSERT_TRUE(order_.take(batch(10)));
  EXPECT_FALSE(order_.may_extend());
}

TEST_F(InOrderTest, ParkedEventsHaveNoPlaceAndWaitOnlyForTheCallUnderWay) {
  ASSERT_TRUE(order_.take(batch(10)));
  EXPECT_FALSE(order_.take({.events = 1}));
  order_.handed_over(batch(10));
  EXPECT_TRUE(order_.take({.events = 1}));
}

// Several workers that keep no order.
class AnyOrderTest : public testing::Test {
 protected:
  static constexpr Request kBatch{.events = 5};
  static constexpr Request kSuspect{.suspect = true, .events = 1};
  HandOverOrder order_;
};

TEST_F(AnyOrderTest, HandsOverSeveralBatchesAtOnceAndGivesNoPlaces) {
  EXPECT_EQ(order_.line_up(10), std::nullopt);
  EXPECT_FALSE(order_.has_waiting_batches());
  EXPECT_TRUE(order_.take(kBatch));
  EXPECT_TRUE(order_.take(kBatch));
  EXPECT_EQ(order_.calls_under_way(), 2U);
  EXPECT_TRUE(order_.may_probe(std::nullopt));
  EXPECT_TRUE(order_.may_extend());
}

TEST_F(AnyOrderTest, ASuspectIsHandedOverWithNothingElseInHand) {
  ASSERT_TRUE(order_.take(kBatch));
  EXPECT_FALSE(order_.take(kSuspect));
  order_.handed_over(kBatch);
  order_.settled(kBatch);
  EXPECT_TRUE(order_.take(kSuspect));
  EXPECT_FALSE(order_.take(kBatch));
  order_.handed_over(kSuspect);
  EXPECT_FALSE(order_.take(kBatch));
  order_.settled(kSuspect);
  EXPECT_TRUE(order_.take(kBatch));
}

TEST_F(AnyOrderTest, NothingElseIsTakenWhileASuspectWaits) {
  ASSERT_TRUE(order_.take(kBatch));
  order_.begin_suspect_wait();
  EXPECT_FALSE(order_.take(kBatch));
  order_.handed_over(kBatch);
  order_.settled(kBatch);
  EXPECT_TRUE(order_.take(kSuspect));
  order_.end_suspect_wait();
}

TEST_F(AnyOrderTest, AWithdrawnSuspectIsNoLongerInHand) {
  ASSERT_TRUE(order_.take(kSuspect));
  order_.withdraw(kSuspect);
  EXPECT_EQ(order_.events_in_hand(), 0U);
  EXPECT_EQ(order_.calls_under_way(), 0U);
  EXPECT_TRUE(order_.take(kBatch));
}

}  // namespace
}  // namespace scriptorium::delivery
