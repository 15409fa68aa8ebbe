#include "core/delivery/conclusion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/core/delivery/settlements.h"
#include "tests/support/event_factory.h"

namespace scriptorium::delivery {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr Timestamp kStarted{7'000'000'000};

class ConclusionTest : public testing::Test {
 protected:
  // Events with the sequences 1, 2, ...
  static Batch batch(std::size_t events) {
    Batch batch{.refusals = 3, .accepts_at_refusal = 5, .is_full = true, .place = 1};
    for (std::uint64_t i = 1; i <= events; ++i) {
      batch.events.push_back({.sequence = i,
                              .event = test::make_event(std::to_string(i), test::kScript),
                              .attempts = 2,
                              .first_attempt = Timestamp{5}});
    }
    return batch;
  }
  static std::vector<std::uint64_t> settled(const Conclusion& conclusion) {
    std::vector<std::uint64_t> sequences;
    for (const auto& s : conclusion.settled) sequences.push_back(s.record.sequence);
    return sequences;
  }
};

TEST_F(ConclusionTest, TellsTheJournalOfEachEventWithItsAttempts) {
  const auto conclusion =
      conclude(batch(2), {.settlements = {acknowledged(), rejected("413")}}, true, kStarted);
  ASSERT_THAT(settled(conclusion), ElementsAre(1, 2));
  const Journal::Settle& record = conclusion.settled[0].record;
  EXPECT_EQ(record.outcome, Outcome::kAcknowledged);
  EXPECT_EQ(record.attempts, 2U);
  EXPECT_EQ(record.first_attempt, Timestamp{5});
  EXPECT_EQ(record.last_attempt, kStarted);
  EXPECT_EQ(record.reason, "");
  EXPECT_EQ(conclusion.settled[1].record.outcome, Outcome::kRejected);
  EXPECT_EQ(conclusion.settled[1].record.reason, "413");
}

TEST_F(ConclusionTest, ADeadLetterHasAlwaysAReason) {
  const auto conclusion = conclude(batch(1), {.settlements = {rejected("")}}, true, kStarted);
  EXPECT_EQ(conclusion.settled.at(0).record.reason, "no reason given");
}

TEST_F(ConclusionTest, KeepsABatchThatWasRefusedAsAWholeWithAllThatIsKnownOfIt) {
  Batch before = batch(2);
  before.is_probe = true;
  const auto conclusion = conclude(before, {.settlements = {refused(), refused()}}, true, kStarted);
  EXPECT_THAT(conclusion.settled, IsEmpty());
  EXPECT_THAT(sequences_of(conclusion.kept), ElementsAre(1, 2));
  EXPECT_EQ(conclusion.kept.refusals, 3U);
  EXPECT_EQ(conclusion.kept.accepts_at_refusal, 5U);
  EXPECT_EQ(conclusion.kept.place, 1U);
  EXPECT_TRUE(conclusion.kept.is_full);
  EXPECT_FALSE(conclusion.kept.is_probe);
}

TEST_F(ConclusionTest, ParksWhatWasRefusedInABatchThatWasPartlyTaken) {
  const auto conclusion =
      conclude(batch(2), {.settlements = {acknowledged(), refused(seconds{9})}}, true, kStarted);
  ASSERT_THAT(settled(conclusion), ElementsAre(1, 2));
  EXPECT_EQ(conclusion.settled[1].record.outcome, Outcome::kRetry);
  EXPECT_EQ(conclusion.settled[1].record.reason, "503");
  EXPECT_EQ(conclusion.settled[1].hint, seconds{9});
  EXPECT_TRUE(conclusion.settled[1].event.is_parked);
  EXPECT_TRUE(conclusion.kept.empty());
}

TEST_F(ConclusionTest, TriesEachAloneThatThePluginLeftUnsettledWhenItThrew) {
  const auto conclusion = conclude(
      batch(2), {.settlements = {acknowledged(), dropped()}, .thrown = "oops"}, true, kStarted);
  EXPECT_THAT(settled(conclusion), ElementsAre(1));
  ASSERT_EQ(conclusion.alone.size(), 1U);
  EXPECT_EQ(conclusion.alone[0].sequence, 2U);
}

TEST_F(ConclusionTest, AnEventOnWhichThePluginThrewThreeTimesAloneIsADeadLetter) {
  Batch single = batch(1);
  const Answer answer{.settlements = {dropped()}, .thrown = "oops"};
  for (std::uint32_t throws = 1; throws <= 2; ++throws) {
    auto conclusion = conclude(std::move(single), answer, true, kStarted);
    ASSERT_THAT(settled(conclusion), ElementsAre(1));
    EXPECT_EQ(conclusion.settled[0].record.outcome, Outcome::kRetry);
    EXPECT_EQ(conclusion.settled[0].event.throws, throws);
    EXPECT_TRUE(conclusion.settled[0].event.deliver_alone);
    single = Batch{.events = {std::move(conclusion.settled[0].event)}};
  }
  const auto last = conclude(std::move(single), answer, true, kStarted);
  EXPECT_EQ(last.settled.at(0).record.outcome, Outcome::kRejected);
  EXPECT_EQ(last.settled.at(0).record.reason, "plugin threw: oops");
}

TEST_F(ConclusionTest, SaysWhatTheAnswerTellsOfTheDestination) {
  const Batch two = batch(2);
  const auto refusal = outcome_of(two, {.settlements = {refused(seconds{3}), refused(seconds{9})}});
  EXPECT_TRUE(refusal.refused && !refusal.accepted && refusal.fresh);
  EXPECT_EQ(refusal.hint, seconds{9});
  const auto mixed = outcome_of(two, {.settlements = {refused(), rejected("")}});
  EXPECT_TRUE(!mixed.refused && mixed.accepted);
  const auto thrown = outcome_of(two, {.settlements = {dropped(), dropped()}, .thrown = "oops"});
  EXPECT_TRUE(!thrown.refused && !thrown.accepted);
  const auto unsettled = outcome_of(two, {.settlements = {dropped(), dropped()}});
  EXPECT_TRUE(unsettled.refused);
  const auto withheld =
      outcome_of(batch(1), {.settlements = {rejected("crashed")}, .withheld = true});
  EXPECT_TRUE(!withheld.refused && !withheld.accepted);
}

TEST_F(ConclusionTest, KeepsARefusedBatchUntilItsContentMustBeTheReason) {
  Batch full = batch(2);
  full.refusals = kRefusalsUntilParked - 1;
  EXPECT_TRUE(may_keep(full, 5, true));
  EXPECT_FALSE(may_keep(full, 6, false)) << "the destination took something else meanwhile";
  full.refusals = 1;
  EXPECT_TRUE(may_keep(full, 6, false)) << "nothing is known of the time before the first refusal";
  full.refusals = kRefusalsUntilParked;
  EXPECT_FALSE(may_keep(full, 5, false));
  full.is_full = false;
  EXPECT_TRUE(may_keep(full, 5, false)) << "new events join it, so it holds nothing up";
  EXPECT_FALSE(may_keep(full, 5, true));
  full.events.front().is_parked = true;
  EXPECT_FALSE(may_keep(full, 5, false));
}

}  // namespace
}  // namespace scriptorium::delivery
