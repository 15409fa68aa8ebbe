#include "core/journal/commit_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>

namespace scriptorium::journal {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMaxBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kLimit = 8U << 20;  // of the queue, in a journal of that size

Entry append(std::uint64_t bytes) { return {.what = Append{}, .bytes = bytes}; }
Entry settlement() { return {.what = SettleMany{}, .urgent = false}; }
Entry command() { return {.what = Command{}}; }

class CommitQueueTest : public testing::Test {
 protected:
  void add(Entry entry) { queue_.add(std::move(entry), now_); }
  void add_settlements(int count) {
    for (int i = 0; i < count; ++i) add(settlement());
  }
  std::size_t take() { return queue_.take(now_).size(); }

  CommitQueue queue_{kMaxBytes};
  SteadyTime now_{1h};
};

TEST_F(CommitQueueTest, TakesEventsUntilItsBytesAreUsedUp) {
  Entry first = append(kLimit - 1), second = append(2);
  EXPECT_TRUE(queue_.try_add(first));
  EXPECT_FALSE(queue_.try_add(second));
  EXPECT_TRUE(std::holds_alternative<Append>(second.what)) << "what was refused is untouched";
  EXPECT_EQ(queue_.added(), 1U);
  EXPECT_EQ(take(), 1U);
  EXPECT_TRUE(queue_.try_add(second)) << "what is being written has left the queue";
}

TEST_F(CommitQueueTest, TakesAnEventLargerThanItsLimitOnceItIsEmpty) {
  Entry small = append(1), large = append(3 * kLimit);
  EXPECT_TRUE(queue_.try_add(small));
  EXPECT_FALSE(queue_.try_add(large));
  take();
  EXPECT_TRUE(queue_.try_add(large));
}

TEST_F(CommitQueueTest, ASmallJournalsQueueIsAQuarterOfTheJournal) {
  CommitQueue queue(1000);
  Entry first = append(250), second = append(1);
  EXPECT_TRUE(queue.try_add(first));
  EXPECT_FALSE(queue.try_add(second));
}

TEST_F(CommitQueueTest, TakesNoEventFromFullUntilThereIsRoomAgain) {
  using Change = CommitQueue::RoomChange;
  const struct {
    std::uint64_t used;
    Change change;
    bool full;
  } steps[] = {{kMaxBytes - 1, Change::kNone, false},
               {kMaxBytes, Change::kBecameFull, true},
               {kMaxBytes + 1, Change::kNone, true},
               {kMaxBytes - 1, Change::kNone, true},
               {queue_.has_room_below(), Change::kNone, true},
               {queue_.has_room_below() - 1, Change::kHasRoom, false},
               {kMaxBytes - 1, Change::kNone, false}};
  for (const auto& step : steps) {
    SCOPED_TRACE(step.used);
    EXPECT_EQ(queue_.note_used(step.used), step.change);
    EXPECT_EQ(queue_.is_full(), step.full);
    EXPECT_EQ(queue_.is_blocked(), step.full);
    Entry event = append(1);
    EXPECT_NE(queue_.try_add(event), step.full);
    add_settlements(1);  // always accepted
  }
}

TEST_F(CommitQueueTest, ACommandIsCommittedAlone) {
  for (int i = 0; i < 2; ++i) add(append(1));
  add(command());
  add(append(1));
  EXPECT_TRUE(queue_.is_pressing());
  EXPECT_EQ(take(), 2U);
  EXPECT_EQ(take(), 1U);
  EXPECT_FALSE(queue_.is_pressing());
  EXPECT_EQ(take(), 1U);
  EXPECT_FALSE(queue_.has_work());
}

TEST_F(CommitQueueTest, OneCommitIsBoundedInEntriesAndInBytes) {
  add_settlements(2500);
  EXPECT_EQ(take(), 2000U);
  EXPECT_EQ(take(), 500U);
  for (int i = 0; i < 4; ++i) add(append(5U << 20));
  EXPECT_EQ(take(), 2U);
  EXPECT_EQ(queue_.bytes(), std::uint64_t{20} << 20) << "half queued, half being written";
}

TEST_F(CommitQueueTest, SettlementsWaitForOthersAndACallerDoesNot) {
  add_settlements(1);
  EXPECT_TRUE(queue_.has_work());
  EXPECT_FALSE(queue_.is_busy());
  EXPECT_EQ(queue_.gather_until(), now_ + 10ms);
  now_ += 5ms;
  add_settlements(1);
  EXPECT_EQ(queue_.gather_until(), now_ + 5ms) << "counted from the first one";
  add(append(1));
  EXPECT_TRUE(queue_.is_busy());
}

TEST_F(CommitQueueTest, SinksGetNothingNewWhileTooManySettlementsWait) {
  add_settlements(10'001);
  EXPECT_FALSE(queue_.is_backlogged());
  queue_.commit_failed();
  EXPECT_TRUE(queue_.is_backlogged()) << "far fewer while commits fail";
  EXPECT_TRUE(queue_.is_blocked());
  queue_.committed(0, false);
  EXPECT_FALSE(queue_.is_backlogged());
  add_settlements(90'000);
  EXPECT_TRUE(queue_.is_backlogged());
}

TEST_F(CommitQueueTest, AFlushIsDoneWhenEverythingBeforeItIsCommittedAndPruned) {
  add(append(1));
  queue_.begin_flush();
  const std::uint64_t upto = queue_.added();
  take();
  queue_.committed(1, false);
  EXPECT_FALSE(queue_.is_flushed(upto));
  EXPECT_TRUE(queue_.has_work()) << "pruning is left to do";
  EXPECT_TRUE(queue_.must_prune(std::nullopt, 0, now_));
  queue_.committed(0, true);
  EXPECT_TRUE(queue_.is_flushed(upto));
  queue_.end_flush();
  EXPECT_FALSE(queue_.has_work());
}

TEST_F(CommitQueueTest, LittleIsPrunedOnlyAfterAWhileOrWhenRoomIsShort) {
  EXPECT_FALSE(queue_.must_prune(std::nullopt, kMaxBytes, now_));
  EXPECT_FALSE(queue_.must_prune(now_, 0, now_ + 49ms));
  EXPECT_TRUE(queue_.must_prune(now_, 0, now_ + 50ms));
  EXPECT_TRUE(queue_.must_prune(now_, kMaxBytes / 10 * 9 + 1, now_));
}

TEST_F(CommitQueueTest, WhatIsBrokenOffReturnsWhatWasQueuedAndIsBlocked) {
  add(append(1));
  add(command());
  EXPECT_EQ(queue_.break_off().size(), 2U);
  EXPECT_TRUE(queue_.is_broken());
  EXPECT_TRUE(queue_.is_blocked());
  EXPECT_FALSE(queue_.has_work());
  EXPECT_EQ(queue_.bytes(), 0U);
}

}  // namespace
}  // namespace scriptorium::journal
