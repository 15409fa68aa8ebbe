#include "core/capture/gap_tracker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <set>

#include "core/capture/mount_table.h"

namespace scriptorium {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using Kind = NumberUse::Kind;

constexpr seconds kGapPatience{10};

TEST(NumberRangesTest, AgreesWithASetOfNumbers) {
  std::mt19937 random(4711);
  NumberRanges ranges;
  std::set<std::uint64_t> model;
  for (int step = 0; step < 4000; ++step) {
    const std::uint64_t first = random() % 200;
    const std::uint64_t last = first + random() % 10;
    if (random() % 2 == 0) {
      ranges.assign(first, last);
      for (std::uint64_t n = first; n <= last; ++n) model.insert(n);
    } else {
      std::uint64_t removed = 0;
      for (std::uint64_t n = first; n <= last; ++n) removed += model.erase(n);
      ASSERT_EQ(ranges.erase(first, last), removed);
    }
    ASSERT_EQ(ranges.total(), model.size());
    ASSERT_EQ(ranges.contains(first), model.contains(first));
  }
  std::uint64_t before = 0;
  for (const auto& range : ranges.all()) {
    if (before != 0) {
      EXPECT_GT(range.first, before + 1) << "two ranges touch";
    }
    before = range.last;
  }
}

// Every range that a RangeMap holds, number by number; fails if two of them overlap.
std::map<std::uint64_t, int> flat(const RangeMap<int>& ranges) {
  std::map<std::uint64_t, int> numbers;
  for (const auto& range : ranges.all()) {
    for (std::uint64_t n = range.first;; ++n) {
      EXPECT_TRUE(numbers.emplace(n, range.value).second) << n << " is in two ranges";
      if (n == range.last) break;
    }
  }
  return numbers;
}

TEST(RangeMapTest, AgreesWithAMapOfSingleNumbers) {
  for (const std::uint64_t seed : {1U, 2U, 3U, 4711U}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    RangeMap<int> ranges;
    std::map<std::uint64_t, int> model;
    for (int step = 0; step < 1500; ++step) {
      // At the lower and at the upper end of all numbers.
      const std::uint64_t base = random() % 2 == 0 ? 0 : UINT64_MAX - 110;
      const std::uint64_t first = base + random() % 100;
      const std::uint64_t last = first + random() % 11;
      if (const int value = static_cast<int>(random() % 4); value == 0) {
        ranges.erase(first, last);
        for (std::uint64_t n = first; n <= last && n >= first; ++n) model.erase(n);
      } else {
        ranges.assign(first, last, value);
        for (std::uint64_t n = first; n <= last && n >= first; ++n) model[n] = value;
      }
      const auto numbers = flat(ranges);
      ASSERT_EQ(numbers, model) << "step " << step;
      const auto there = model.find(first);
      const int* found = ranges.find(first);
      ASSERT_EQ(found != nullptr, there != model.end());
      if (found != nullptr) {
        ASSERT_EQ(*found, there->second);
      }
      std::size_t touching = 0;
      std::optional<std::pair<std::uint64_t, int>> before;
      for (const auto& range : ranges.all()) {
        touching +=
            before && before->first + 1 == range.first && before->second == range.value ? 1 : 0;
        before = {range.last, range.value};
      }
      ASSERT_EQ(touching, 0U) << "two ranges could be one";
    }
  }
}

TEST(RangeMapTest, TheWholeOfAllNumbersIsOneRange) {
  RangeMap<int> ranges;
  ranges.assign(0, UINT64_MAX, 1);
  ranges.assign(5, 5, 2);
  EXPECT_EQ(ranges.size(), 3U);
  ranges.assign(9, 4, 3);
  EXPECT_EQ(*ranges.find(9), 1) << "a range that ends before it begins";
  ranges.assign(5, 5, 1);
  EXPECT_EQ(ranges.size(), 1U);
  ranges.erase(UINT64_MAX, UINT64_MAX);
  EXPECT_EQ(ranges.find(UINT64_MAX), nullptr);
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
  GapTracker tracker_{kGapPatience};
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
  const auto verdict =
      judge_after(kGapPatience, std::vector<NumberUse>{{6, Kind::kWithoutScript},
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

TEST_F(GapTrackerTest,
       TasksThatTookTheirNumbersBeforeTheNextJobCameAreNoGapEvenIfTheyAreForgottenByThen) {
  listen();
  seen({100});
  std::vector<NumberUse> tasks;
  for (std::uint64_t n = 101; n <= 5000; ++n) tasks.push_back({n, Kind::kPartOfAnother});
  judge_after(seconds{60}, tasks);
  judge_after(seconds{600},
              std::vector<NumberUse>{});  // they have ended, and the scheduler has forgotten them
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
  judge_after(kGapPatience, std::vector<NumberUse>{});
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
  judge_after(kGapPatience, std::vector<NumberUse>{});
  const std::string kept = tracker_.save();
  GapTracker next{kGapPatience};
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
    GapTracker tracker{kGapPatience};
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
  EXPECT_EQ(tracker_.judge(now_ + kGapPatience, false, std::nullopt).suspected, 1U);
}

TEST_F(GapTrackerTest, MemoryIsBoundedAndTheCountStaysRight) {
  listen();
  for (std::uint64_t n = 1; n <= 10'001; n += 2) {
    now_ += std::chrono::milliseconds{1};
    seen({n});
  }
  judge_after(kGapPatience, std::vector<NumberUse>{});
  const GapStatus status = tracker_.status();
  EXPECT_EQ(status.suspected, 5000U);
  EXPECT_EQ(status.ranges.size(), GapStatus::kRangesShown);
  EXPECT_EQ(status.forgotten, 5000U - GapTracker::kRangesKept);
  EXPECT_LT(tracker_.save().size(), 10'000U);
}

TEST_F(GapTrackerTest, EntriesThatStandAreNoNewsWhenTheSpoolIsListedAsAWholeAgain) {
  for (std::uint64_t n = 1; n <= 5000; ++n) tracker_.seen(n, now_);
  listen();
  seen({5001});
  tracker_.expect_listing();
  for (std::uint64_t hash = 0; hash < 10; ++hash) {
    for (std::uint64_t n = hash; n <= 5003; n += 10) {
      if (n != 5002) tracker_.seen(n, now_);
    }
  }
  listen();
  EXPECT_EQ(tracker_.status().count_changes, 0U);
  EXPECT_EQ(tracker_.status().highest, 5003U);
  EXPECT_EQ(tracker_.status().waiting, 1U) << "5002 came and went in between";
}

TEST_F(GapTrackerTest, NoAnswerOfTheSchedulerCanDoHarm) {
  listen();
  seen({5, 20, 15});
  judge_after(kGapPatience, std::vector<NumberUse>{});
  constexpr std::uint64_t kMost = UINT64_MAX;
  std::vector<NumberUse> answer;
  for (const std::uint64_t n : std::vector<std::uint64_t>{0, 1, 5, 7, 7, 8, 8, 15, 19, 20, 21, 4711,
                                                          kMost - 1, kMost, kMost}) {
    for (const Kind kind :
         {Kind::kOwnEntry, Kind::kPartOfAnother, Kind::kWithoutScript, Kind::kOwnEntry})
      answer.push_back({n, kind});
  }
  judge_after(seconds{1}, answer);
  judge_after(seconds{1}, answer);
  GapStatus status = tracker_.status();
  EXPECT_EQ(status.suspected + status.confirmed, 10U)
      << "all but 7, 8, 15 and 19, that are explained or came";
  seen({kMost, 3, 4, 5, 6, kMost});
  judge_after(seconds{1000}, answer);
  status = tracker_.status();
  EXPECT_EQ(status.waiting, 0U);
  EXPECT_GT(status.count_changes, 0U);
}

TEST_F(GapTrackerTest, AKeptStateWithOverlappingRangesIsLoadedWithoutHarm) {
  GapTracker tracker{kGapPatience};
  tracker.load("1 100 s:10-50 s:20-30 c:25-60 w:5-12 s:0-18446744073709551615 c:50-50", now_);
  tracker.scanned(now_);
  const std::vector<NumberUse> answer{
      {25, Kind::kOwnEntry}, {50, Kind::kOwnEntry}, {30, Kind::kPartOfAnother}};
  now_ += kGapPatience;
  tracker.judge(now_, true, answer);
  const GapStatus status = tracker.status();
  EXPECT_EQ(status.waiting, 0U);
  EXPECT_EQ(status.suspected + status.confirmed, 55U) << "5 to 60, each once, and without 30";
}

// What the tracker keeps, beside a plain set of the numbers that are missing.
TEST_F(GapTrackerTest, WhateverHappensItKeepsEachMissingNumberOnce) {
  for (const std::uint64_t seed : {1U, 2U, 3U, 4711U}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    GapTracker tracker{kGapPatience};
    std::set<std::uint64_t> missing;
    std::uint64_t highest = 100;
    tracker.scanned(now_);
    tracker.seen(highest, now_);
    for (int step = 0; step < 3000; ++step) {
      now_ += std::chrono::milliseconds(random() % 500);
      // Not further back than where a count that starts over is distinguished from a late entry.
      const std::uint64_t any = highest - random() % 90;
      switch (random() % 8) {
        case 0:
          tracker.seen(any, now_);
          missing.erase(any);
          break;
        case 1: {
          std::vector<NumberUse> answer;
          for (int i = 0; i < 5; ++i) {
            const std::uint64_t number = highest - random() % 90;
            const auto kind = static_cast<Kind>(random() % 3);
            answer.push_back({number, kind});
            if (kind != Kind::kOwnEntry) missing.erase(number);
          }
          tracker.judge(now_, true, answer);
          break;
        }
        case 2: tracker.judge(now_, true, std::nullopt); break;
        case 3: {
          if (random() % 20 != 0) break;
          // A restart; it keeps no more than the newest ranges, so the model begins with those too.
          const GapStatus before = tracker.status();
          GapTracker next{kGapPatience};
          next.load(tracker.save(), now_);
          next.scanned(now_);
          tracker = std::move(next);
          const GapStatus after = tracker.status();
          if (before.waiting + before.suspected + before.confirmed !=
              after.waiting + after.suspected + after.confirmed) {
            tracker = GapTracker{kGapPatience};
            tracker.scanned(now_);
            tracker.seen(highest, now_);
            missing.clear();
          }
          break;
        }
        default: {
          const std::uint64_t next = highest + 1 + random() % 4;
          for (std::uint64_t n = highest + 1; n < next; ++n) missing.insert(n);
          highest = next;
          tracker.seen(highest, now_);
        }
      }
      const GapStatus status = tracker.status();
      if (status.forgotten > 0) break;
      ASSERT_EQ(status.waiting + status.suspected + status.confirmed, missing.size())
          << "step " << step;
      ASSERT_EQ(status.highest, highest);
      ASSERT_EQ(status.count_changes, 0U);
    }
  }
}

TEST_F(GapTrackerTest, ItIsDueSoonForTheFirstQuestionAndThenWhenTheTimeIsOver) {
  listen();
  seen({5, 7});
  const SteadyTime begun = now_;
  EXPECT_EQ(tracker_.due(), begun + GapTracker::kFirstQuestion);
  judge_after(GapTracker::kFirstQuestion, std::vector<NumberUse>{});
  EXPECT_EQ(tracker_.due(), begun + kGapPatience);
  judge_after(kGapPatience, std::vector<NumberUse>{});
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
