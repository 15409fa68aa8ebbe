#include "core/delivery/parked_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/event_factory.h"

namespace scriptorium::delivery {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

class ParkedStoreTest : public testing::Test {
 protected:
  static PendingEvent event(std::uint64_t sequence, std::size_t script_bytes = 10) {
    return {.sequence = sequence,
            .event = test::make_event(std::to_string(sequence), std::string(script_bytes, 'x')),
            .attempts = 1,
            .is_parked = true};
  }
  void park(PendingEvent parked, milliseconds hint) { store_.park(std::move(parked), hint, now_); }
  std::vector<std::uint64_t> take(BatchLimits limits = BatchLimits(100, 1U << 30)) {
    return sequences_of(Batch{.events = store_.take_due(now_, limits)});
  }
  // As far as the journal's answers matter: one page, then an empty one.
  void refill(std::vector<PendingEvent> page) {
    store_.begin_refill();
    store_.forget_flushed();
    std::erase_if(page, [&](const PendingEvent& e) { return store_.knows(e.sequence); });
    if (page.empty() || !store_.add_page(std::move(page), now_)) store_.add_page({}, now_);
  }

  SteadyTime now_{seconds{1000}};
  ParkedStore store_{milliseconds{1}, 7};
};

TEST_F(ParkedStoreTest, GivesWhatIsDueInTheJournalsOrder) {
  park(event(3), seconds{1});
  park(event(2), seconds{2});
  park(event(1), hours{1});
  EXPECT_THAT(take(), IsEmpty());
  now_ += seconds{3};
  EXPECT_THAT(take(), ElementsAre(2, 3));
  EXPECT_GE(store_.next_attempt(), SteadyTime{seconds{1000}} + hours{1});
}

TEST_F(ParkedStoreTest, TakesNoMoreThanTheLimitsAllow) {
  for (const std::uint64_t sequence : {1U, 2U, 3U}) park(event(sequence), seconds{1});
  now_ += seconds{2};
  EXPECT_THAT(take(BatchLimits(2, 1U << 30)), ElementsAre(1, 2));
}

TEST_F(ParkedStoreTest, AnEventThatIsToBeDeliveredAloneComesAlone) {
  park(event(1), seconds{1});
  PendingEvent alone = event(2);
  alone.deliver_alone = true;
  park(alone, seconds{2});
  PendingEvent suspect = event(3);
  suspect.is_suspect = true;
  park(suspect, seconds{3});
  now_ += seconds{5};
  EXPECT_THAT(take(), ElementsAre(1));
  EXPECT_THAT(take(), ElementsAre(2));
  EXPECT_THAT(take(), ElementsAre(3));
}

TEST_F(ParkedStoreTest, ForgettingTheBackOffMakesEverythingDue) {
  park(event(1), hours{1});
  store_.forget_back_off(now_);
  EXPECT_TRUE(store_.wants_refill(now_));
  EXPECT_THAT(take(), ElementsAre(1));
}

TEST_F(ParkedStoreTest, ARefillBringsNothingThatWaitsIsInHandOrWasJustSettled) {
  park(event(1), hours{1});
  store_.mark_in_hand(2);
  store_.mark_in_hand(3);
  store_.begin_refill();
  store_.mark_settled(3);  // after the flush may have begun: the journal may still have it
  store_.forget_flushed();
  for (const std::uint64_t sequence : {1U, 2U, 3U}) EXPECT_TRUE(store_.knows(sequence)) << sequence;
  EXPECT_FALSE(store_.knows(4));
}

TEST_F(ParkedStoreTest, TheNextRefillForgetsWhatWasSettledBefore) {
  store_.mark_in_hand(1);
  store_.mark_settled(1);
  store_.begin_refill();
  EXPECT_TRUE(store_.knows(1));
  store_.forget_flushed();
  EXPECT_FALSE(store_.knows(1));
}

TEST_F(ParkedStoreTest, WhatARefillBringsIsDueAtOnce) {
  refill({event(1), {.sequence = 2}, event(3)});  // 2 is damaged
  EXPECT_THAT(take(), ElementsAre(1, 3));
  EXPECT_FALSE(store_.wants_refill(now_ + hours{1}));
}

TEST_F(ParkedStoreTest, ARefillThatMetAnEventInHandIsRepeatedLater) {
  store_.mark_in_hand(1);
  refill({event(1)});
  EXPECT_FALSE(store_.wants_refill(now_));
  EXPECT_TRUE(store_.wants_refill(now_ + ParkedStore::kRefillPause));
  EXPECT_EQ(store_.next_wake(now_), now_ + ParkedStore::kRefillPause);
}

TEST_F(ParkedStoreTest, ANewGenerationAsksForARefill) {
  refill({});
  ASSERT_FALSE(store_.wants_refill(now_));
  store_.note_generation(1, now_);
  EXPECT_TRUE(store_.wants_refill(now_));
}

TEST_F(ParkedStoreTest, WhatDoesNotFitWaitsInTheJournalUntilHalfOfTheRoomIsFree) {
  refill({});
  constexpr std::size_t kQuarter = ParkedStore::kMostBytes / 4;
  for (std::uint64_t sequence = 1; sequence <= 4; ++sequence)
    park(event(sequence, kQuarter), seconds{sequence});
  EXPECT_FALSE(store_.knows(4));
  EXPECT_FALSE(store_.wants_refill(now_ + hours{1}));
  now_ += seconds{5};
  EXPECT_THAT(take(BatchLimits(2, 1U << 30)), ElementsAre(1, 2));
  EXPECT_TRUE(store_.wants_refill(now_));
}

TEST_F(ParkedStoreTest, OneEventFitsHoweverLargeItIs) {
  park(event(1, 2 * ParkedStore::kMostBytes), seconds{1});
  EXPECT_TRUE(store_.knows(1));
}

TEST_F(ParkedStoreTest, WakesAtTheNextEventAndAtLeastOnceAnHour) {
  refill({});
  EXPECT_EQ(store_.next_wake(now_), now_ + hours{1});
  park(event(1), seconds{9});
  EXPECT_EQ(store_.next_wake(now_), now_ + seconds{9});
}

}  // namespace
}  // namespace scriptorium::delivery
