#include "core/capture/gap_tracker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "core/capture/mount_table.h"

namespace scriptorium {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using Kind = NumberUse::Kind;

constexpr seconds kPatience{10};

TEST(NumberRangesTest, AddAndRemoveAgreeWithASetOfNumbers) {
  std::mt19937 random(4711);
  NumberRanges ranges;
  std::set<std::uint64_t> model;
  for (int step = 0; step < 4000; ++step) {
    const std::uint64_t first = random() % 200;
    const std::uint64_t last = first + random() % 10;
    if (random() % 2 == 0) {
      ranges.add(first, last);
      for (std::uint64_t n = first; n <= last; ++n) model.insert(n);
    } else {
      std::uint64_t removed = 0;
      for (std::uint64_t n = first; n <= last; ++n) removed += model.erase(n);
      ASSERT_EQ(ranges.remove(first, last), removed);
    }
    ASSERT_EQ(ranges.total(), model.size());
    ASSERT_EQ(ranges.contains(first), model.contains(first));
    ASSERT_EQ(ranges.count(first, last),
              static_cast<std::uint64_t>(std::distance(model.lower_bound(first), model.upper_bound(last))));
  }
  std::uint64_t before = 0;
  for (const auto& [first, last] : ranges.all()) {
    if (before != 0) {
      EXPECT_GT(first, before + 1) << "two ranges touch";
    }
    before = last;
  }
}

class GapTrackerTest : public testing::Test {
 protected:
  void listen() { tracker_.scanned(now_); }
  void seen(std::initializer_list<std::uint64_t> numbers) {
    for (const std::uint64_t number : numbers) tracker_.seen(number, now_);
  }
  GapTracker::Verdict judge_after(seconds wait, std::optional<std::vector<NumberUse>> answer) {
    now_ += wait;
    return tracker_.judge(now_, true, answer);
  }

  SteadyTime now_{std::chrono::hours(1)};
  GapTracker tracker_{kPatience};
};

TEST_F(GapTrackerTest, NumbersInARowLeaveNothingToSay) {
  listen();
  seen({5, 6, 7, 8});
  EXPECT_EQ(judge_after(seconds{100}, std::vector<NumberUse>{}).suspected, 0U);
  EXPECT_EQ(tracker_.status().highest, 8U);
}

TEST_F(GapTrackerTest, NumbersThatNobodyExplainsAreSuspectedOnceAndNotBeforeTheirTime) {
  listen();
  seen({5, 9});
  EXPECT_EQ(tracker_.status().waiting, 3U);
  EXPECT_EQ(judge_after(seconds{9}, std::vector<NumberUse>{}).suspected, 0U);
  const auto verdict = judge_after(seconds{1}, std::vector<NumberUse>{});
  EXPECT_EQ(verdict.suspected, 3U);
  EXPECT_EQ(verdict.suspected_ranges, "6-8");
  EXPECT_EQ(judge_after(seconds{100}, std::vector<NumberUse>{}).suspected, 0U) << "said twice";
  EXPECT_EQ(tracker_.status().suspected, 3U);
  EXPECT_THAT(tracker_.status().ranges, ElementsAre("6-8"));
}

TEST_F(GapTrackerTest, JobsWithoutScriptAndTasksOfAnArrayAreExplained) {
  listen();
  seen({5, 12});
  const auto verdict = judge_after(kPatience, std::vector<NumberUse>{{6, Kind::kWithoutScript},
                                                                     {7, Kind::kPartOfAnother},
                                                                     {8, Kind::kPartOfAnother},
                                                                     {9, Kind::kPartOfAnother},
                                                                     {11, Kind::kWithoutScript}});
  EXPECT_EQ(verdict.suspected, 1U);
  const GapStatus status = tracker_.status();
  EXPECT_EQ(status.without_script, 2U);
  EXPECT_EQ(status.part_of_another, 3U);
  EXPECT_THAT(status.ranges, ElementsAre("10"));
}

TEST_F(GapTrackerTest, TasksThatTookTheirNumbersBeforeTheNextJobCameAreNoGapEvenIfTheyAreForgottenByThen) {
  listen();
  seen({100});
  std::vector<NumberUse> tasks;
  for (std::uint64_t n = 101; n <= 5000; ++n) tasks.push_back({n, Kind::kPartOfAnother});
  judge_after(seconds{60}, tasks);
  judge_after(seconds{600}, std::vector<NumberUse>{});  // they have ended, and the scheduler has forgotten them
  seen({5001});
  EXPECT_EQ(judge_after(seconds{60}, std::vector<NumberUse>{}).suspected, 0U);
  EXPECT_EQ(tracker_.status().part_of_another, 4900U);
}

TEST_F(GapTrackerTest, AJobWithAScriptThatWasNeverSeenIsConfirmed) {
  listen();
  seen({5, 9});
  const std::vector<NumberUse> answer{{7, Kind::kOwnEntry}, {9, Kind::kOwnEntry}};
  EXPECT_EQ(judge_after(seconds{5}, answer).confirmed, 0U) << "its entry may come yet";
  const auto verdict = judge_after(seconds{5}, answer);
  EXPECT_EQ(verdict.confirmed, 1U);
  EXPECT_EQ(verdict.confirmed_ranges, "7");
  EXPECT_EQ(verdict.suspected, 2U);
  EXPECT_THAT(tracker_.status().confirmed_ranges, ElementsAre("7"));
  EXPECT_THAT(tracker_.status().ranges, ElementsAre("8", "6"));
  EXPECT_EQ(judge_after(seconds{60}, answer).confirmed, 0U) << "said twice";
}

TEST_F(GapTrackerTest, EntriesInAnotherOrderAreNoGap) {
  listen();
  seen({5, 9, 7, 6, 8, 10});
  EXPECT_EQ(tracker_.status().waiting, 0U);
  EXPECT_FALSE(tracker_.due());
}

TEST_F(GapTrackerTest, AnEntryThatComesAfterItsNumberWasSuspectedEndsTheSuspicion) {
  listen();
  seen({5, 9});
  judge_after(kPatience, std::vector<NumberUse>{});
  seen({7});
  EXPECT_EQ(tracker_.status().suspected, 2U);
  EXPECT_EQ(tracker_.status().late, 1U);
}

TEST_F(GapTrackerTest, WhatIsMissingInTheSpoolAtTheFirstStartMayHaveEndedLongAgo) {
  seen({500, 20, 3, 444});
  listen();
  EXPECT_EQ(tracker_.status().waiting, 0U);
  seen({502});
  EXPECT_EQ(tracker_.status().waiting, 1U);
}

TEST_F(GapTrackerTest, WhatCameAndWentBetweenTwoRunsIsAGap) {
  listen();
  seen({5, 9});
  judge_after(kPatience, std::vector<NumberUse>{});
  const std::string kept = tracker_.save();
  GapTracker next{kPatience};
  next.load(kept, now_);
  for (const std::uint64_t number : {14U, 8U, 3U, 12U, 9U}) next.seen(number, now_);
  next.scanned(now_);
  const GapStatus status = next.status();
  EXPECT_EQ(status.highest, 14U);
  EXPECT_EQ(status.waiting, 3U);    // 10, 11, 13
  EXPECT_EQ(status.suspected, 2U);  // 6, 7; 8 stands in the spool after all
}

TEST_F(GapTrackerTest, TextThatItDidNotWriteIsAsNone) {
  for (const char* text : {"", "2 5", "1", "1 x", "1 9 s:8-4 q s:-- s:5-99 w:3", "1 9  s:4-5"}) {
    GapTracker tracker{kPatience};
    tracker.load(text, now_);
    tracker.scanned(now_);
    tracker.seen(10, now_);
    EXPECT_LE(tracker.status().suspected, 2U) << text;
  }
}

TEST_F(GapTrackerTest, ACountThatWrapsBeginsAnew) {
  listen();
  seen({67'043'326, 67'043'327, 1, 2, 3, 4, 6});
  const GapStatus status = tracker_.status();
  EXPECT_EQ(status.count_changes, 1U);
  EXPECT_EQ(status.highest, 6U);
  EXPECT_EQ(status.waiting, 1U);
}

TEST_F(GapTrackerTest, ASmallCircleOfNumbersGivesNoGaps) {
  listen();
  for (int turn = 0; turn < 20; ++turn) seen({2, 3, 4, 5});
  EXPECT_EQ(tracker_.status().waiting, 0U);
}

TEST_F(GapTrackerTest, ACountThatGoesBackAfterACrashGivesNoGaps) {
  listen();
  seen({100, 101, 102, 103, 101, 102, 103, 104, 105});
  EXPECT_EQ(tracker_.status().waiting, 0U);
  EXPECT_EQ(tracker_.status().count_changes, 0U);
}

TEST_F(GapTrackerTest, AJumpOfMillionsIsACountThatWasSetAnew) {
  listen();
  seen({100, 67'108'865, 67'108'867});
  EXPECT_EQ(tracker_.status().count_changes, 1U);
  EXPECT_EQ(tracker_.status().waiting, 1U);
}

TEST_F(GapTrackerTest, ASchedulerThatCannotBeAskedDelaysTheSuspicionAndDoesNotPreventIt) {
  listen();
  seen({5, 7});
  EXPECT_EQ(judge_after(seconds{60}, std::nullopt).suspected, 0U);
  EXPECT_EQ(judge_after(GapTracker::kGiveUp, std::nullopt).suspected, 1U);
}

TEST_F(GapTrackerTest, WithNobodyToAskTheTimeAloneDecides) {
  listen();
  seen({5, 7});
  EXPECT_EQ(tracker_.judge(now_ + kPatience, false, std::nullopt).suspected, 1U);
}

TEST_F(GapTrackerTest, MemoryIsBoundedAndTheCountStaysRight) {
  listen();
  for (std::uint64_t n = 1; n <= 10'001; n += 2) {
    now_ += std::chrono::milliseconds{1};
    seen({n});
  }
  judge_after(kPatience, std::vector<NumberUse>{});
  const GapStatus status = tracker_.status();
  EXPECT_EQ(status.suspected, 5000U);
  EXPECT_EQ(status.ranges.size(), GapStatus::kRangesShown);
  EXPECT_EQ(status.forgotten, 5000U - GapTracker::kRangesKept);
  EXPECT_LT(tracker_.save().size(), 10'000U);
}

TEST_F(GapTrackerTest, ItIsDueSoonForTheFirstQuestionAndThenWhenTheTimeIsOver) {
  listen();
  seen({5, 7});
  const SteadyTime begun = now_;
  EXPECT_EQ(tracker_.due(), begun + GapTracker::kFirstQuestion);
  judge_after(GapTracker::kFirstQuestion, std::vector<NumberUse>{});
  EXPECT_EQ(tracker_.due(), begun + kPatience);
  judge_after(kPatience, std::vector<NumberUse>{});
  EXPECT_FALSE(tracker_.due());
}

TEST(MountTableTest, TheLongestAndLastMountOfAPathIsFound) {
  constexpr std::string_view kTable =
      "21 1 254:0 / / rw - ext4 /dev/vda rw\n"
      "30 21 0:25 / /var/spool rw shared:1 - tmpfs tmpfs rw\n"
      "31 30 7:0 /sub /var/spool/slurm\\040ctld rw - xfs /dev/loop0 rw\n"
      "32 30 7:1 / /var/spool/slurm\\040ctld rw - xfs /dev/loop1 rw\n"
      "33 21 0:26 / /var/sp rw - tmpfs tmpfs rw\n"
      "a line that is none\n";
  EXPECT_EQ(mount_of(kTable, "/var/spool/slurm ctld"), 32U);
  EXPECT_EQ(mount_of(kTable, "/var/spool/slurm ctld/hash.1"), 32U);
  EXPECT_EQ(mount_of(kTable, "/var/spool/slurm"), 30U);
  EXPECT_EQ(mount_of(kTable, "/var/spo"), 21U);
  EXPECT_EQ(mount_of("", "/"), std::nullopt);
}

}  // namespace
}  // namespace scriptorium
