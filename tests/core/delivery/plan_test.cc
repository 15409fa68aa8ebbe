#include "core/delivery/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/plugin/call_plugin.h"
#include "tests/core/delivery/settlements.h"

namespace scriptorium::delivery {
namespace {

using std::chrono::milliseconds;
using testing::Each;

// ---- BackOff

class BackOffTest : public testing::Test {
 protected:
  // The least and the most of many delays after so many failures in a row.
  static std::pair<milliseconds, milliseconds> range(
      BackOff& back_off, std::uint32_t failures, std::optional<milliseconds> hint = std::nullopt) {
    std::pair range{milliseconds::max(), milliseconds{0}};
    for (int i = 0; i < 2000; ++i) {
      const milliseconds delay = back_off.next(failures, hint);
      range.first = std::min(range.first, delay);
      range.second = std::max(range.second, delay);
    }
    return range;
  }

  BackOff back_off_{milliseconds{60'000}, 7};
};

TEST_F(BackOffTest, DrawsFromNothingUpToALimitThatDoublesWithEachFailure) {
  for (const auto& [failures, limit] :
       std::vector<std::pair<std::uint32_t, int>>{{1, 200}, {2, 400}, {3, 800}, {8, 25'600}}) {
    const auto [least, most] = range(back_off_, failures);
    EXPECT_LT(least, milliseconds(limit / 20)) << failures;
    EXPECT_GT(most, milliseconds(limit * 19 / 20)) << failures;
    EXPECT_LE(most, milliseconds(limit)) << failures;
  }
}

TEST_F(BackOffTest, NeverExceedsTheMaximumHoweverManyFailures) {
  for (const std::uint32_t failures : {10U, 64U, 100'000U, 4'294'967'295U}) {
    EXPECT_LE(range(back_off_, failures).second, milliseconds(60'000)) << failures;
    EXPECT_GT(range(back_off_, failures).second, milliseconds(57'000)) << failures;
  }
}

TEST_F(BackOffTest, StaysUnderAMaximumThatIsSmallerThanTheBase) {
  BackOff quick(milliseconds{20}, 7);
  EXPECT_LE(range(quick, 1).second, milliseconds(20));
  EXPECT_LE(range(quick, 9).second, milliseconds(20));
}

TEST_F(BackOffTest, TakesTheDestinationsHintAsTheLeastEvenAboveTheMaximum) {
  EXPECT_EQ(range(back_off_, 1, milliseconds(5000)),
            std::pair(milliseconds(5000), milliseconds(5000)));
  EXPECT_EQ(range(back_off_, 1, milliseconds(90'000)).first, milliseconds(90'000));
  EXPECT_GE(range(back_off_, 9, milliseconds(100)).first, milliseconds(100));
  EXPECT_GT(range(back_off_, 9, milliseconds(100)).second, milliseconds(30'000));
}

TEST_F(BackOffTest, FollowsNoHintForDaysAndNoNegativeOne) {
  EXPECT_EQ(back_off_.next(1, std::chrono::hours(24 * 365)), kHintMax);
  EXPECT_LE(range(back_off_, 1, milliseconds(-5)).second, milliseconds(200));
  EXPECT_GE(range(back_off_, 1, milliseconds(-5)).first, milliseconds(0));
}

TEST_F(BackOffTest, GivesTheSameDelaysForTheSameSeedAndOthersForAnother) {
  const auto draw = [](std::uint64_t seed) {
    BackOff back_off(milliseconds{60'000}, seed);
    std::vector<milliseconds> delays(20);
    std::generate(delays.begin(), delays.end(), [&] { return back_off.next(9, std::nullopt); });
    return delays;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

// ---- BatchLimits

TEST(BatchLimitsTest, TakesEventsUpToTheirNumber) {
  BatchLimits limits(2, 1000);
  EXPECT_TRUE(limits.add(1));
  EXPECT_FALSE(limits.full());
  EXPECT_EQ(limits.events_left(), 1U);
  EXPECT_TRUE(limits.add(1));
  EXPECT_TRUE(limits.full());
  EXPECT_FALSE(limits.add(1));
}

TEST(BatchLimitsTest, TakesBytesUpToTheLimitAndNotOneMore) {
  BatchLimits limits(10, 1000);
  EXPECT_TRUE(limits.add(600));
  EXPECT_FALSE(limits.add(401));
  EXPECT_EQ(limits.bytes_left(), 400U);
  EXPECT_TRUE(limits.add(400));
  EXPECT_TRUE(limits.full());
}

TEST(BatchLimitsTest, LetsOneEventInHoweverLargeItIs) {
  BatchLimits limits(10, 1000);
  EXPECT_TRUE(limits.add(5'000'000));
  EXPECT_TRUE(limits.full());
  EXPECT_EQ(limits.bytes_left(), 0U);
  EXPECT_FALSE(limits.add(0));
}

// ---- decide

struct DecideCase {
  std::string name;
  std::vector<Settler::Settlement> settlements;
  std::vector<std::uint32_t> throws;
  BatchFacts facts;
  std::vector<Decision> expected;
};

class DecideTest : public testing::TestWithParam<DecideCase> {};

TEST_P(DecideTest, SaysWhatBecomesOfEachDelivery) {
  const DecideCase& c = GetParam();
  EXPECT_EQ(decide(c.settlements, c.throws, c.facts), c.expected);
}

INSTANTIATE_TEST_SUITE_P(
    Table, DecideTest,
    testing::Values(
        DecideCase{"AllAcknowledged",
                   {acknowledged(), acknowledged()},
                   {0, 0},
                   {},
                   {Decision::kAcknowledged, Decision::kAcknowledged}},
        DecideCase{"AllRefusedKeepsTheBatch",
                   {refused(), refused()},
                   {0, 0},
                   {},
                   {Decision::kKeep, Decision::kKeep}},
        DecideCase{"OneRefusedAloneIsKept", {refused()}, {0}, {}, {Decision::kKeep}},
        DecideCase{"OneRefusedAmongOthersIsParked",
                   {acknowledged(), refused(), rejected()},
                   {0, 0, 0},
                   {},
                   {Decision::kAcknowledged, Decision::kPark, Decision::kDeadLetter}},
        DecideCase{"ARejectionAloneShowsThatTheDestinationIsUp",
                   {refused(), rejected()},
                   {0, 0},
                   {},
                   {Decision::kPark, Decision::kDeadLetter}},
        DecideCase{"WhatMayNotBeKeptIsParked",
                   {refused(), refused()},
                   {0, 0},
                   {.may_keep = false},
                   {Decision::kPark, Decision::kPark}},
        DecideCase{"DroppedWithoutAnExceptionIsOrdinaryRetry",
                   {acknowledged(), dropped()},
                   {0, 0},
                   {},
                   {Decision::kAcknowledged, Decision::kPark}},
        DecideCase{"AllDroppedWithoutAnExceptionIsKept",
                   {dropped(), dropped()},
                   {0, 0},
                   {},
                   {Decision::kKeep, Decision::kKeep}},
        DecideCase{
            "AfterAnExceptionTheUnsettledAreTriedAlone",
            {acknowledged(), dropped(), refused(), dropped()},
            {0, 0, 0, 0},
            {.threw = true},
            {Decision::kAcknowledged, Decision::kTryAlone, Decision::kPark, Decision::kTryAlone}},
        DecideCase{"ThrowsOfManyCountAgainstNobody",
                   {dropped(), dropped()},
                   {2, 2},
                   {.threw = true},
                   {Decision::kTryAlone, Decision::kTryAlone}},
        DecideCase{"FirstThrowAlone", {dropped()}, {0}, {.threw = true}, {Decision::kParkAlone}},
        DecideCase{"SecondThrowAlone",
                   {dropped()},
                   {1},
                   {.threw = true, .may_keep = false},
                   {Decision::kParkAlone}},
        DecideCase{"ThirdThrowAloneIsADeadLetter",
                   {dropped()},
                   {2},
                   {.threw = true, .may_keep = false},
                   {Decision::kThrewTooOften}},
        DecideCase{"ThrewAfterItAcknowledged",
                   {acknowledged()},
                   {2},
                   {.threw = true},
                   {Decision::kAcknowledged}},
        DecideCase{"ThrewAfterItAskedForRetry",
                   {refused()},
                   {2},
                   {.threw = true, .may_keep = false},
                   {Decision::kPark}}),
    [](const auto& info) { return info.param.name; });

// ---- CursorTrack

TEST(CursorTrackTest, PassesOnlyWhatWasToldWithoutAGap) {
  CursorTrack track(10);
  for (const std::uint64_t sequence : {11U, 12U, 15U, 20U}) track.give_out(sequence);
  EXPECT_EQ(track.mark_settled(std::vector<std::uint64_t>{12, 20}), 10U);
  EXPECT_EQ(track.mark_settled(std::vector<std::uint64_t>{11}), 12U);
  EXPECT_EQ(track.mark_settled(std::vector<std::uint64_t>{15}), 20U);
}

TEST(CursorTrackTest, AsksWhatWouldBeWithoutChangingIt) {
  CursorTrack track(0);
  for (const std::uint64_t sequence : {1U, 2U, 3U}) track.give_out(sequence);
  EXPECT_EQ(track.cursor_with(std::vector<std::uint64_t>{1, 2}), 2U);
  EXPECT_EQ(track.cursor_with(std::vector<std::uint64_t>{2}), 0U);
  EXPECT_EQ(track.mark_settled({}), 0U);
}

TEST(CursorTrackTest, IgnoresWhatItHasPassedOrNeverGaveOut) {
  CursorTrack track(5);
  track.give_out(6);
  EXPECT_EQ(track.mark_settled(std::vector<std::uint64_t>{3, 9}), 5U);
  EXPECT_EQ(track.mark_settled(std::vector<std::uint64_t>{6}), 6U);
}

TEST(CursorTrackTest, AgreesWithASimpleModelInAnyOrderOfBatches) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    CursorTrack track(0);
    std::vector<std::uint64_t> given;
    std::vector<std::vector<std::uint64_t>> batches;
    std::uint64_t sequence = 0;
    for (int b = 0; b < 12; ++b) {
      batches.emplace_back();
      for (unsigned n = random() % 5 + 1; n > 0; --n) {
        sequence += random() % 3 + 1;
        given.push_back(sequence);
        batches.back().push_back(sequence);
        track.give_out(sequence);
      }
    }
    std::shuffle(batches.begin(), batches.end(), random);
    std::vector<std::uint64_t> told;
    for (const auto& batch : batches) {
      told.insert(told.end(), batch.begin(), batch.end());
      std::uint64_t expected = 0;
      for (const std::uint64_t s : given) {
        if (std::find(told.begin(), told.end(), s) == told.end()) break;
        expected = s;
      }
      ASSERT_EQ(track.cursor_with(batch), expected);
      ASSERT_EQ(track.mark_settled(batch), expected);
    }
    ASSERT_EQ(track.mark_settled({}), given.back());
  }
}

// ---- ReasonCounts

TEST(ReasonCountsTest, CountsByReason) {
  ReasonCounts counts;
  counts.add("503");
  counts.add("429");
  counts.add("503");
  EXPECT_EQ(counts.counts(), (std::map<std::string, std::uint64_t>{{"429", 1}, {"503", 2}}));
}

TEST(ReasonCountsTest, KeepsAtMost64ReasonsAndCountsTheRestAsOther) {
  ReasonCounts counts;
  for (int i = 0; i < 1000; ++i) counts.add("reason " + std::to_string(i));
  counts.add("reason 0");
  EXPECT_EQ(counts.counts().size(), ReasonCounts::kReasons);
  EXPECT_EQ(counts.counts().at("reason 0"), 2U);
  EXPECT_EQ(counts.counts().at("other"), 1000U - (ReasonCounts::kReasons - 1));
}

TEST(ReasonCountsTest, CutsAndEscapesWhatAPluginSays) {
  ReasonCounts counts;
  counts.add(std::string(100'000, 'x'));
  counts.add("line\nbreak \x1b[31m \xff");
  counts.add("");
  ASSERT_EQ(counts.counts().size(), 3U);
  for (const auto& [reason, count] : counts.counts()) {
    EXPECT_LE(reason.size(), ReasonCounts::kReasonBytes);
    EXPECT_THAT(std::vector<unsigned char>(reason.begin(), reason.end()),
                Each(testing::AllOf(testing::Ge(0x20), testing::Lt(0x7f))));
  }
  EXPECT_TRUE(counts.counts().contains("no reason given"));
}

// ---- call_plugin

TEST(CallPluginTest, SaysNothingOfACallThatReturns) {
  EXPECT_EQ(call_plugin([] {}), std::nullopt);
}

TEST(CallPluginTest, GivesWhatAnExceptionSaysFitForALog) {
  EXPECT_EQ(call_plugin([] { throw std::runtime_error("no\nroute"); }), "no\\nroute");
  EXPECT_EQ(call_plugin([] { throw 7; }), "something that is not a std::exception");
}

}  // namespace
}  // namespace scriptorium::delivery
