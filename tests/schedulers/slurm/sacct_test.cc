#include "schedulers/slurm/sacct.h"
#include "core/base/time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/schedulers/slurm/fixtures.h"

namespace scriptorium::slurm {
namespace {

using namespace std::literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using State = OwnerAnswer::State;
using Ids = std::vector<std::uint64_t>;

std::string recorded() {
  return fixtures::fixture_bytes(fixtures::fixture_path("sacct/sacct.answer"));
}
// The times of the scripts of that spool.
constexpr std::int64_t kWritten4 = 1795359443054508580;
constexpr std::int64_t kWritten6 = 1795359443174508590;
constexpr std::int64_t kWritten8 = 1795359443494508600;
constexpr std::int64_t kWritten10 = 1795359443193450862;
constexpr std::int64_t kWritten15 = 1795359454549451341;

std::string owner(std::string_view answer, std::uint64_t id, std::int64_t script_mtime_ns) {
  const auto rows = parse_sacct(answer, Ids{id});
  if (!rows) return rows.error().message();
  const OwnerAnswer found =
      accounted_owner(*rows, {.job_id = id, .script_mtime_ns = script_mtime_ns});
  if (found.state != State::kFound) {
    EXPECT_EQ(found.state, State::kUnknown);
    EXPECT_FALSE(found.user.verified || found.user.id);
    return "unknown";
  }
  EXPECT_TRUE(found.user.verified);
  return *found.user.id + ":" + *found.user.group_id;
}

TEST(SacctArgumentsTest, AskEverybodysJobsOnceForAllIdsAndForNoFieldThatAUserCanShape) {
  EXPECT_THAT(sacct_arguments(Ids{7, 4711}),
              ElementsAre("-a", "-X", "-D", "-n", "--parsable2", "--noconvert", "--local", "-o",
                          "JobIDRaw,JobID,UID,GID,Submit,Cluster", "-j", "7,4711"));
}

TEST(SacctTest, ReadsARecordedAnswer) {
  EXPECT_EQ(owner(recorded(), 1, 1795359443 * kSecond), "1:1");
  EXPECT_EQ(owner(recorded(), 2, 1795359443 * kSecond), "65534:65534")
      << "its name tried to be a row";
  EXPECT_EQ(owner(recorded(), 3, 1795359443 * kSecond), "65534:65534") << "an array that ran";
  EXPECT_EQ(owner(recorded(), 4, kWritten4), "1:1") << "an array, cancelled whole";
  EXPECT_EQ(owner(recorded(), 6, kWritten6), "65534:65534")
      << "the second component has an entry of its own";
  EXPECT_EQ(owner(recorded(), 8, kWritten8), "65534:65534") << "never was eligible";
  EXPECT_EQ(owner(recorded(), 10, kWritten10), "1:1")
      << "requeued, so the first of its rows counts";
  EXPECT_EQ(owner(recorded(), 15, kWritten15), "65534:65534") << "refused after it was spooled";
  EXPECT_EQ(owner(recorded(), 99, 1795359443 * kSecond), "unknown");
}

TEST(SacctTest, OfAnArrayOneRowIsKeptUnderItsOwnNumber) {
  const auto rows = parse_sacct(recorded(), Ids{3, 10});
  ASSERT_TRUE(rows);
  EXPECT_THAT(
      *rows,
      ElementsAre(
          AllOf(Field(&QueueRow::array_job_id, 10U), Field(&QueueRow::submitted, 1795359443)),
          AllOf(Field(&QueueRow::array_job_id, 3U), Field(&QueueRow::job_id, 12U)),
          AllOf(Field(&QueueRow::array_job_id, 10U), Field(&QueueRow::submitted, 1795359455))));
}

TEST(SacctTest, ATasksOwnNumberIsNoEntrys) {
  // Number 12 was given out when the task began. A job 12 that a crash of slurmctld lost may have
  // been another user's.
  EXPECT_EQ(owner(recorded(), 12, 1795359443 * kSecond), "unknown");
}

TEST(SacctTest, OnlyARowOfTheSameSubmissionCounts) {
  constexpr auto kAnswer = "7|7|1002|2001|100|lab\n"sv;
  EXPECT_EQ(owner(kAnswer, 7, 100 * kSecond), "1002:2001");
  EXPECT_EQ(owner(kAnswer, 7, 101 * kSecond + 999'999'999), "1002:2001")
      << "the script came in the next second";
  EXPECT_EQ(owner(kAnswer, 7, 102 * kSecond), "unknown") << "another job had this id before";
  EXPECT_EQ(owner(kAnswer, 7, 100 * kSecond - 1), "unknown") << "another job got this id later";
  EXPECT_EQ(owner("7|7|1002|2001|Unknown|lab\n", 7, 100 * kSecond), "unknown");
}

TEST(SacctTest, AnotherUsersJobOfTheSameIdLendsNoOwner) {
  constexpr auto kAnswer =
      "7|7|1003|2001|100|lab\n7|7|1002|2001|5000|lab\n7|7|1003|2001|9000|lab\n"sv;
  EXPECT_EQ(owner(kAnswer, 7, 5000 * kSecond), "1002:2001");
  EXPECT_EQ(owner(kAnswer, 7, 100 * kSecond), "1003:2001");
  EXPECT_EQ(owner(kAnswer, 7, 6000 * kSecond), "unknown");
}

TEST(SacctTest, RowsThatFitAndDisagreeSayNothing) {
  EXPECT_EQ(owner("8|7_0|1002|2001|100|lab\n9|7_1|1003|2001|100|lab\n", 7, 100 * kSecond),
            "unknown");
  EXPECT_EQ(owner("7|7|1002|2001|100|lab\n7|7|1003|2001|99|lab\n", 7, 100 * kSecond), "unknown");
  EXPECT_EQ(owner("8|7_0|1002|2001|100|lab\n9|7_1|1002|2001|100|lab\n", 7, 100 * kSecond),
            "1002:2001");
}

TEST(SacctTest, ARowWithoutAnOwnerSaysNothing) {
  for (const auto* row : {"7|7||2001|100|lab\n", "7|7|1002||100|lab\n",
                          "7|7|4294967294|2001|100|lab\n", "7|7|4294967295|2001|100|lab\n"}) {
    EXPECT_EQ(owner(row, 7, 100 * kSecond), "unknown") << row;
  }
  EXPECT_EQ(owner("7|7|0|0|100|lab\n", 7, 100 * kSecond), "0:0") << "root is an owner like any";
}

TEST(SacctTest, EveryFormOfAnIdIsRead) {
  for (const auto* id : {"7_0", "7_[0-4]", "7_[0-99%10]", "7_[1,3-5:2%4]", "7_[1-3,...]"}) {
    EXPECT_EQ(owner("8|"s + id + "|1002|2001|100|lab\n", 7, 100 * kSecond), "1002:2001") << id;
  }
}

TEST(SacctTest, OneOddRowRefusesTheWholeAnswer) {
  const std::string good = "7|7|1002|2001|100|lab\n";
  ASSERT_EQ(owner(good, 7, 100 * kSecond), "1002:2001");
  for (const auto* odd : {"\n",
                          "x\n",
                          "7|7|1002|2001|100|lab",
                          "7|7|1002|2001|100\n",
                          "7|7|1002|2001|100|lab|\n",
                          "7|7|1002|2001|100|\n",
                          "7|8|1002|2001|100|lab\n",
                          "7|7_|1002|2001|100|lab\n",
                          "7|7_[]|1002|2001|100|lab\n",
                          "7|7_x|1002|2001|100|lab\n",
                          "7|7+|1002|2001|100|lab\n",
                          "7|7+a|1002|2001|100|lab\n",
                          "7||1002|2001|100|lab\n",
                          "|7|1002|2001|100|lab\n",
                          "7.batch|7.batch|1002|2001|100|lab\n",
                          "7|7|root|2001|100|lab\n",
                          "7|7|-1|2001|100|lab\n",
                          "7|7|+1|2001|100|lab\n",
                          "7|7|1002|chem|100|lab\n",
                          "7|7|4294967296|2001|100|lab\n",
                          "7|7|1002|2001||lab\n",
                          "7|7|1002|2001|2026-11-21T00:00:00|lab\n",
                          "7|7|1002|2001|9223372036854775808|lab\n",
                          "7|7|1002|2001|100|l b\n",
                          " 7|7|1002|2001|100|lab\n",
                          "7|7|1002|2001|100|lab\r\n"}) {
    for (const std::string& answer : {good + odd, odd + good}) {
      // A cut line is only seen as such at the end.
      if (answer == odd + good && odd == "7|7|1002|2001|100|lab"sv) continue;
      const auto rows = parse_sacct(answer, Ids{7});
      ASSERT_FALSE(rows) << answer;
      EXPECT_EQ(rows.error().kind(), ErrorKind::kTransient);
      EXPECT_EQ(rows.error().message(),
                "sacct: a row is not as Slurm writes it; the whole answer is refused");
    }
  }
}

TEST(SacctTest, TwoClustersInOneAnswerAreRefused) {
  EXPECT_THAT(owner("7|7|1002|2001|100|lab\n7|7|1003|2001|100|other\n", 7, 100 * kSecond),
              HasSubstr("more than one cluster"));
}

TEST(SacctTest, AnEmptyAnswerHasNoRow) { EXPECT_THAT(parse_sacct("", Ids{7}).value(), IsEmpty()); }

}  // namespace
}  // namespace scriptorium::slurm
