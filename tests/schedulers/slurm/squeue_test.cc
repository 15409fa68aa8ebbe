#include "schedulers/slurm/squeue.h"
#include "core/base/time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/schedulers/slurm/fixtures.h"

namespace scriptorium::slurm {
namespace {

using namespace std::literals;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::string_view kGuard = "X0123456789abcdef0123456789abcdef";

std::string recorded_bytes() {
  return fixtures::fixture_bytes(fixtures::fixture_path("squeue/squeue.answer"));
}
std::vector<QueueRow> recorded_rows() { return parse_queue(recorded_bytes(), kGuard).value(); }

std::vector<const QueueRow*> of_array(const std::vector<QueueRow>& rows, std::uint64_t id) {
  std::vector<const QueueRow*> result;
  for (const QueueRow& row : rows) {
    if (row.array_job_id == id) result.push_back(&row);
  }
  return result;
}

OwnerAnswer recorded_answer(std::uint64_t id, bool stub = false) {
  const auto rows = recorded_rows();
  return make_answer(of_array(rows, id), {.job_id = id, .unchanged = true, .stub = stub});
}

TEST(SqueueNumbersTest, ReadsARecordedAnswer) {
  const auto rows = recorded_rows();
  ASSERT_THAT(rows, SizeIs(13));
  EXPECT_EQ(rows[0].job_id, 11U);
  EXPECT_EQ(rows[0].state, "F");
  EXPECT_EQ(rows[0].tasks, "");
  EXPECT_EQ(rows[0].uid, 65534U);
  EXPECT_EQ(rows[0].submitted, 1795271405);
  EXPECT_EQ(rows[0].het_job_id, std::nullopt);
  EXPECT_EQ(rows[1].tasks, "0,3,6,9,12,15,18,33,40-50%4");
  EXPECT_EQ(rows[6].het_job_id, 4U);
  EXPECT_EQ(rows[6].het_component, 1U);
  EXPECT_EQ(rows[9].job_id, 12U);
  EXPECT_EQ(rows[9].array_job_id, 3U);
}

TEST(TimesAreAlikeTest, IfOneSubmitTimeMayFitBoth) {
  EXPECT_TRUE(times_are_alike(5 * kSecond, 5 * kSecond + 999'999'999));
  EXPECT_TRUE(times_are_alike(5 * kSecond, 6 * kSecond + 999'999'999));
  EXPECT_TRUE(times_are_alike(6 * kSecond + 999'999'999, 5 * kSecond));
  EXPECT_FALSE(times_are_alike(5 * kSecond + 999'999'999, 7 * kSecond));
  EXPECT_FALSE(times_are_alike(7 * kSecond, 5 * kSecond + 999'999'999));
}

TEST(SqueueNumbersTest, AnEmptyAnswerHasNoRow) {
  EXPECT_THAT(parse_queue("", kGuard).value(), IsEmpty());
}

TEST(SqueueNumbersTest, OneOddFieldRefusesTheWholeAnswer) {
  const std::string good = "2|2|0-5%2|1002|1002|1795229652|N/A|N/A|0|PD|1|aXqXpX/wXnX\n";
  ASSERT_TRUE(parse_queue(good, "X"));
  for (const std::string_view odd : {"2|2|0-5%2|1002|1002|1795229652|N/A|N/A|0|PD\n"sv,
                                     "2|2|0-5%2|1002|1002|1795229652|N/A|N/A|0|PD|x\n"sv,
                                     "2|2|0-5%2|1002|1002|1795229652|N/A|N/A|0|PD||\n"sv,
                                     "2|2|0-5%2|1002|1002|1795229652|N/A|N/A|0|\n"sv,
                                     "2|2|0-5%2|1002|1002|1795229652|N/A|N/A|0|pd|\n"sv,
                                     "2|2|0-5%2|1002|1002|1795229652|N/A|N/A|0|P D|\n"sv,
                                     "2|2|0-5%2|1002|1002|1795229652|N/A|N/A|N/A|PD|\n"sv,
                                     "N/A|2|0-5%2|1002|1002|1795229652|N/A|N/A|0|PD|\n"sv,
                                     "2|2|...|1002|1002|1795229652|N/A|N/A|0|PD|\n"sv,
                                     "2|2||1002|1002|1795229652|N/A|N/A|0|PD|\n"sv,
                                     "2|2|N/A|bob|1002|1795229652|N/A|N/A|0|PD|\n"sv,
                                     "2|2|N/A|-1|1002|1795229652|N/A|N/A|0|PD|\n"sv,
                                     "2|2|N/A|4294967296|1002|1795229652|N/A|N/A|0|PD|\n"sv,
                                     "2|2|N/A|+1|1002|1795229652|N/A|N/A|0|PD|\n"sv,
                                     "2|2|N/A|0x1|1002|1795229652|N/A|N/A|0|PD|\n"sv,
                                     " 2|2|N/A|1|1002|1795229652|N/A|N/A|0|PD|\n"sv,
                                     "2|2|N/A|1|1002|2026-11-21T00:00:00|N/A|N/A|0|PD|\n"sv,
                                     "2|2|N/A|1|1002|1795229652|n/a|N/A|0|PD|\n"sv,
                                     "2|2|N/A|1|1002|1795229652|N/A|N/A|0|PD|"sv,
                                     "\n"sv,
                                     "2|2|N/A|1|10"sv,
                                     "slurm_load_jobs error\n"sv,
                                     "2|2|N/A|1|1002|99999999999999999999|N/A|N/A|0|PD|\n"sv}) {
    std::string row(odd);
    if (row.ends_with("|\n")) row.replace(row.size() - 1, 1, "1|aXqXpX/wXnX\n");
    const auto rows = parse_queue(good + row, "X");
    ASSERT_FALSE(rows) << odd;
    EXPECT_EQ(rows.error().kind(), ErrorKind::kTransient);
    EXPECT_THAT(rows.error().message(), HasSubstr("not as Slurm writes it"));
  }
}

TEST(SqueueTextsTest, ReadsNamesThatForgeRowsInAnyOtherFormat) {
  std::map<std::uint64_t, QueueRow> rows;
  for (QueueRow& row : recorded_rows()) rows[row.job_id] = std::move(row);
  ASSERT_THAT(rows, SizeIs(13));
  EXPECT_EQ(rows[6].name, "x\n1|1|N/A|0|0|1795229652|N/A|N/A|0|PD|\n");
  EXPECT_EQ(rows[7].name, "tail newline\n");
  EXPECT_EQ(rows[8].name, "  lead|pipe %A\ttab");
  EXPECT_EQ(rows[8].account, "phy\nsics");
  EXPECT_EQ(rows[9].name, "bad\377\376name");
  EXPECT_EQ(rows[9].work_dir, "/home/bob/new\nline");
  EXPECT_EQ(rows[10].name, std::nullopt) << "an empty name";
  EXPECT_EQ(rows[1].account, std::nullopt) << "(null)";
  EXPECT_EQ(rows[1].qos, std::nullopt);
  EXPECT_EQ(rows[1].partition, "main");
}

TEST(SqueueTextsTest, TheFormatIsWhatTheAnswerIsReadBy) {
  EXPECT_EQ(queue_format("X"),
            "JobID:|,ArrayJobID:|,ArrayTaskID:|,UserID:|,GroupID:|,SubmitTime:|,HetJobID:|,"
            "HetJobOffset:|,RestartCnt:|,"
            "StateCompact:|,BatchFlag:|,Account:X,QOS:X,Partition:X,WorkDir:X,Name:X");
  EXPECT_TRUE(parse_queue("1|1|N/A|0|0|5|N/A|N/A|0|PD|1|aXqXpX/wXnX\n", "X"));
}

TEST(SqueueTextsTest, AnotherGuardOrNumberOfFieldsRefusesTheWholeAnswer) {
  const std::string good = "1|1|N/A|0|0|5|N/A|N/A|0|PD|1|aXYqXYpXY/wXYnXY\n";
  ASSERT_TRUE(parse_queue(good, "XY"));
  EXPECT_FALSE(parse_queue(good, "XZ"));
  EXPECT_FALSE(parse_queue(good, ""));
  for (const std::string_view odd : {"1|1|N/A|0|0|5|N/A|N/A|0|PD|1|aXYqXYpXY/wXY\n"sv,
                                     "1|1|N/A|0|0|5|N/A|N/A|0|PD|1|aXYqXYpXY/wXYnXYmXY\n"sv,
                                     "1|1|N/A|0|0|5|N/A|N/A|0|PD|1|aXYqXYpXY/wXYnXY"sv,
                                     "1|1|N/A|0|0|5|N/A|N/A|0|PD|1|aXYqXYpXY/wXYn"sv,
                                     "1|1|N/A|0|0|5|N/A|N/A|0|PD|2|aXYqXYpXY/wXYnXY\n"sv,
                                     "1|1|N/A|0|0|5|N/A|N/A|0|PD|aXYqXYpXY/wXYnXY\n"sv, "\n"sv}) {
    EXPECT_FALSE(parse_queue(good + std::string(odd), "XY")) << odd;
  }
}

TEST(SqueueAnswersTest, EveryCutOfARecordedAnswerIsRefusedOrHasFewerWholeRows) {
  const std::string answer = recorded_bytes();
  for (std::size_t length = 0; length < answer.size(); ++length) {
    const auto rows = parse_queue(answer.substr(0, length), kGuard);
    EXPECT_EQ(rows.has_value(),
              length == 0 || answer.substr(0, length).ends_with(std::string(kGuard) + "\n"))
        << length;
  }
}

TEST(SqueueQuestionTest, OneJobIsAskedForAlone) {
  EXPECT_THAT(queue_arguments(std::nullopt), ::testing::Not(::testing::Contains("-j")));
  EXPECT_THAT(queue_arguments("17"),
              ::testing::ElementsAre("-h", "-a", "--local", "-t", "all", "-j", "17"));
}

struct TieCase {
  const char* words;
  bool unchanged;
  bool came_again;
  std::uint64_t restarts;
  std::optional<std::int64_t> submitted;
  std::int64_t mtime_ns;
  bool belongs;
};

class SqueueTieTest : public ::testing::TestWithParam<TieCase> {};

TEST_P(SqueueTieTest, ARowIsTakenOnlyForItsOwnEntry) {
  const TieCase& c = GetParam();
  const QueueRow row{.job_id = 7,
                     .array_job_id = 7,
                     .submitted = c.submitted,
                     .restarts = c.restarts,
                     .state = "PD"};
  EXPECT_EQ(belongs(row, {.job_id = 7,
                          .script_mtime_ns = c.mtime_ns,
                          .unchanged = c.unchanged,
                          .id_came_again = c.came_again}),
            c.belongs)
      << c.words;
}

INSTANTIATE_TEST_SUITE_P(
    Rule, SqueueTieTest,
    ::testing::Values(
        TieCase{"the entry still stands", true, false, 0, 100, 100 * kSecond, true},
        TieCase{"it stands, requeued", true, false, 3, 900, 100 * kSecond, true},
        TieCase{"it stands, submitted at an odd time", true, false, 0, 5, 100 * kSecond, true},
        TieCase{"it stands, though its id had an earlier entry", true, true, 0, 100, 100 * kSecond,
                true},
        TieCase{"gone, same second", false, false, 0, 100, 100 * kSecond, true},
        TieCase{"gone, end of the same second", false, false, 0, 100, 101 * kSecond - 1, true},
        TieCase{"gone, submitted a second before", false, false, 0, 99, 100 * kSecond, true},
        TieCase{"gone, submitted two seconds before", false, false, 0, 98, 100 * kSecond, false},
        TieCase{"gone, submitted after", false, false, 0, 101, 101 * kSecond - 1, false},
        TieCase{"gone and requeued", false, false, 1, 100, 100 * kSecond, false},
        TieCase{"gone, no submit time", false, false, 0, std::nullopt, 100 * kSecond, false},
        TieCase{"gone, a later entry of this id is known", false, true, 0, 100, 100 * kSecond,
                false},
        TieCase{"before 1970", false, false, 0, -1, -1, true}));

TEST(SqueueAnswerTest, AnOrdinaryJobGetsItsNumbersAndTexts) {
  const OwnerAnswer answer = recorded_answer(8);
  EXPECT_EQ(answer.state, OwnerAnswer::State::kFound);
  EXPECT_TRUE(answer.user.verified);
  EXPECT_EQ(answer.user.id, "65534");
  EXPECT_EQ(answer.user.group_id, "65534");
  EXPECT_EQ(answer.user.name, std::nullopt);
  EXPECT_EQ(answer.account, "phy\nsics");
  EXPECT_EQ(answer.partition, "main");
  EXPECT_EQ(answer.work_dir, "/home/bob");
  ASSERT_TRUE(answer.submitted_at);
  EXPECT_EQ(answer.submitted_at->nanoseconds, 1795271405 * kSecond);
  EXPECT_FALSE(answer.array || answer.het);
}

TEST(SqueueAnswerTest, AnArrayThatHasNotStartedTellsItsTasks) {
  const OwnerAnswer answer = recorded_answer(10);
  ASSERT_TRUE(answer.array);
  EXPECT_EQ(answer.array->job_id, "10");
  EXPECT_EQ(answer.array->task_spec, "0,3,6,9,12,15,18,33,40-50%4");
  EXPECT_EQ(answer.array->task_id, std::nullopt);
}

TEST(SqueueAnswerTest, AnArrayThatHasStartedDoesNotAsTheListShrinks) {
  const OwnerAnswer answer = recorded_answer(3);
  EXPECT_EQ(answer.state, OwnerAnswer::State::kFound);
  ASSERT_TRUE(answer.array);
  EXPECT_EQ(answer.array->task_spec, std::nullopt);
  EXPECT_EQ(answer.name, "running");
  auto numbers = recorded_rows();
  std::erase_if(numbers, [](const QueueRow& row) { return row.job_id != 3; });
  const OwnerAnswer last = make_answer(of_array(numbers, 3), {.job_id = 3, .unchanged = true});
  EXPECT_EQ(last.array->task_spec, std::nullopt) << "the last task runs under the array's own id";
}

TEST(SqueueAnswerTest, TheEntryOfOneTaskTellsWhichItIs) {
  const auto numbers = recorded_rows();
  std::vector<const QueueRow*> rows;
  for (const QueueRow& row : numbers) {
    if (row.job_id == 13) rows.push_back(&row);
  }
  const OwnerAnswer answer = make_answer(rows, {.job_id = 13, .unchanged = true});
  ASSERT_TRUE(answer.array);
  EXPECT_EQ(answer.array->job_id, "3");
  EXPECT_EQ(answer.array->task_id, "2");
}

TEST(SqueueAnswerTest, OnlyALaterComponentWithAStubIsSynthetic) {
  EXPECT_EQ(recorded_answer(4, true).het->component, 0U);
  EXPECT_FALSE(recorded_answer(4, true).het->synthetic);
  EXPECT_EQ(recorded_answer(5, true).het->job_id, "4");
  EXPECT_EQ(recorded_answer(5, true).het->component, 1U);
  EXPECT_TRUE(recorded_answer(5, true).het->synthetic);
  EXPECT_FALSE(recorded_answer(5, false).het->synthetic) << "its script is a user's own";
}

TEST(SqueueAnswerTest, RowsOfTwoOwnersAreNoAnswer) {
  const QueueRow bob{.job_id = 7, .array_job_id = 7, .uid = 1002, .state = "PD"};
  const QueueRow root{.job_id = 8, .array_job_id = 7, .uid = 0, .state = "R"};
  EXPECT_EQ(make_answer({&bob, &root}, {.job_id = 7, .unchanged = true}).state,
            OwnerAnswer::State::kNotYet);
}

TEST(SqueueAnswerTest, ARowOfAnotherJobOfThatIdIsUnknown) {
  const QueueRow row{.job_id = 7, .array_job_id = 7, .uid = 1002, .submitted = 500, .state = "PD"};
  const OwnerAnswer answer = make_answer({&row}, {.job_id = 7, .script_mtime_ns = 100 * kSecond});
  EXPECT_EQ(answer.state, OwnerAnswer::State::kUnknown);
  EXPECT_FALSE(answer.user.verified || answer.user.id);
}

TEST(SqueueAnswerTest, ARequeuedJobHasNoSubmitTime) {
  const QueueRow row{
      .job_id = 7, .array_job_id = 7, .uid = 1002, .submitted = 500, .restarts = 1, .state = "PD"};
  const OwnerAnswer answer = make_answer({&row}, {.job_id = 7, .unchanged = true});
  EXPECT_EQ(answer.state, OwnerAnswer::State::kFound);
  EXPECT_EQ(answer.submitted_at, std::nullopt);
}

TEST(SqueueUsesTest, ATaskABatchJobAndAJobWithoutScriptAreToldApart) {
  const auto row = [](const std::string& id, const std::string& array, const std::string& batch) {
    return id + "|" + array + "|N/A|0|0|5|N/A|N/A|0|PD|" + batch + "|aXqXpX/wXnX\n";
  };
  const auto rows = parse_queue(
      row("10", "10", "0") + row("8", "8", "1") + row("9", "7", "1") + row("7", "7", "1"), "X");
  ASSERT_TRUE(rows) << rows.error().message();
  ASSERT_EQ(rows->size(), 4U);
  EXPECT_EQ(use_of((*rows)[0]).kind, NumberUse::Kind::kWithoutScript);
  EXPECT_EQ(use_of((*rows)[1]).kind, NumberUse::Kind::kOwnEntry);
  EXPECT_EQ(use_of((*rows)[2]).number, 9U);
  EXPECT_EQ(use_of((*rows)[2]).kind, NumberUse::Kind::kPartOfAnother);
  EXPECT_EQ(use_of((*rows)[3]).kind, NumberUse::Kind::kOwnEntry);
}

TEST(SqueueAnswerTest, NoRowIsUnknown) {
  EXPECT_EQ(make_answer({}, {.job_id = 7}).state, OwnerAnswer::State::kUnknown);
}

}  // namespace
}  // namespace scriptorium::slurm
