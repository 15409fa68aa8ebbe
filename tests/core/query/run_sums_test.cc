#include "core/query/run_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "core/query/calendar.h"

namespace scriptorium::query {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kWeek = 7 * 86'400;

Timestamp at(std::int64_t seconds) { return Timestamp{seconds * kSecond}; }

// The second week; the first is the one before.
SumPeriod second_week() { return {.from = at(kWeek), .until = at(2 * kWeek)}; }

JobRun run_at(std::int64_t ended, std::uint64_t core_seconds = 7'200,
              std::optional<std::uint64_t> unused = 3'600) {
  return {.user = "alice",
          .verified = true,
          .account = "chem",
          .partition = "batch",
          .ended_at = at(ended),
          .core_seconds = core_seconds,
          .unused_core_seconds = unused,
          .nodes = {"n1"}};
}

Json row_of(const RunSums& sums, const std::string& by, const std::string& name) {
  const Json json = sums.json();
  for (const Json& row : json["rows"]) {
    if (row[by] == name) return row;
  }
  return {};
}

std::vector<std::string> names_of(const Json& json, const std::string& by) {
  std::vector<std::string> names;
  for (const Json& row : json["rows"]) names.push_back(row[by]);
  return names;
}

TEST(RunSumsTest, ARunCountsWhereItEnds) {
  RunSums sums(SumBy::kUser, second_week());
  for (const std::int64_t second :
       {std::int64_t{-1}, std::int64_t{0}, kWeek - 1, kWeek, 2 * kWeek - 1, 2 * kWeek})
    sums.add(run_at(second));
  const Json total = sums.json()["total"];
  EXPECT_EQ(total["jobs"], 2);
  EXPECT_EQ(total["before"]["jobs"], 2);
  EXPECT_EQ(total["core_seconds"], 14'400);
  EXPECT_EQ(total["wasted_core_seconds"], 7'200);
}

TEST(RunSumsTest, WithoutABeginningEverythingCountsAndThereIsNoTrend) {
  RunSums sums(SumBy::kUser, {.from = std::nullopt, .until = at(2 * kWeek)});
  sums.add(run_at(-5 * kWeek));
  sums.add(run_at(kWeek));
  EXPECT_EQ(sums.json()["total"]["jobs"], 2);
  EXPECT_FALSE(sums.json()["total"].contains("before"));
  EXPECT_FALSE(sums.json().contains("from"));
  EXPECT_FALSE(sums.has_trend());
}

TEST(RunSumsTest, TheRowsAddUpToTheTotalExactly) {
  std::mt19937 random(4711);
  const auto number = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  std::map<SumBy, RunSums> all;
  for (const SumBy by : {SumBy::kUser, SumBy::kAccount, SumBy::kPartition, SumBy::kNode,
                         SumBy::kProgram, SumBy::kWeek, SumBy::kMonth})
    all.emplace(by, RunSums(by, second_week()));
  for (int i = 0; i < 5'000; ++i) {
    const auto core_seconds = static_cast<std::uint64_t>(number(1'000'003));
    JobRun run = run_at(number(2 * kWeek - 1), core_seconds);
    run.unused_core_seconds = core_seconds / 7;
    if (number(9) == 0) run.unused_core_seconds.reset();
    run.gpu_seconds = static_cast<std::uint64_t>(number(1'000));
    if (number(1) == 0) run.unused_gpu_seconds = run.gpu_seconds / 3;
    run.user = number(20) == 0 ? std::nullopt : std::optional("u" + std::to_string(number(40)));
    run.verified = number(4) != 0;
    run.account = "a" + std::to_string(number(9));
    run.partition = "p" + std::to_string(number(3));
    run.nodes.clear();
    for (int node = number(6); node > 0; --node)
      run.nodes.push_back("n" + std::to_string(number(50)));
    // As rounded shares are: they may be a little more or less than the whole.
    if (number(3) != 0) run.programs = {{"python3", 3'334}, {"gmx", 3'333}, {"python3", 3'333 + 2}};
    for (auto& [by, sums] : all) sums.add(run);
  }
  for (auto& [by, sums] : all) {
    sums.add_unfinished(17, 4);
    const Json json = sums.json();
    for (const char* figure :
         {"core_seconds", "wasted_core_seconds", "gpu_seconds", "wasted_gpu_seconds", "jobs"}) {
      const bool parts = by == SumBy::kNode || by == SumBy::kProgram;
      if (parts && std::string(figure) == "jobs") continue;  // one counts in several rows
      std::uint64_t now = 0;
      std::uint64_t before = 0;
      for (const Json& row : json["rows"]) {
        now += row[figure].get<std::uint64_t>();
        if (sums.has_trend()) before += row["before"][figure].get<std::uint64_t>();
      }
      EXPECT_EQ(now, json["total"][figure]) << figure;
      if (sums.has_trend()) {
        EXPECT_EQ(before, json["total"]["before"][figure]) << figure;
      }
      EXPECT_GT(now, 0U) << figure;
    }
  }
}

TEST(RunSumsTest, AProgramHasItsShareAndAModuleTheWholeJob) {
  JobRun run = run_at(kWeek, 10'000, 1'000);
  run.programs = {
      {"python3", 7'500}, {"tar", 500}, {kOtherPrograms, 1'000}, {kUnseenPrograms, 1'000}};
  run.modules = {"GROMACS/2023.1", "CUDA/12", "CUDA/12"};
  RunSums programs(SumBy::kProgram, second_week());
  programs.add(run);
  EXPECT_THAT(names_of(programs.json(), "program"),
              ElementsAre("python3", "(not seen)", "(other)", "tar"));
  EXPECT_EQ(row_of(programs, "program", "python3")["core_seconds"], 7'500);
  EXPECT_EQ(row_of(programs, "program", "python3")["wasted_core_seconds"], 750);
  EXPECT_EQ(row_of(programs, "program", "tar")["jobs"], 1);
  RunSums modules(SumBy::kModule, second_week());
  modules.add(run);
  run.modules.clear();
  modules.add(run);
  for (const char* module : {"GROMACS/2023.1", "CUDA/12", "(none)"}) {
    EXPECT_EQ(row_of(modules, "module", module)["jobs"], 1) << module;
    EXPECT_EQ(row_of(modules, "module", module)["core_seconds"], 10'000) << module;
  }
  EXPECT_EQ(modules.json()["total"]["core_seconds"], 20'000);
}

TEST(RunSumsTest, WhoWasNotVerifiedIsNotAddedToOneWhoWas) {
  RunSums sums(SumBy::kUser, second_week());
  JobRun run = run_at(kWeek);
  sums.add(run);
  run.verified = false;
  sums.add(run);
  sums.add(run);
  EXPECT_EQ(row_of(sums, "user", "alice")["jobs"], 1);
  EXPECT_EQ(row_of(sums, "user", "alice (unverified)")["jobs"], 2);
}

TEST(RunSumsTest, JobsWithoutUseAreARowOfTheirOwnAndTheLast) {
  RunSums sums(SumBy::kAccount, second_week());
  sums.add(run_at(kWeek, 100'000, std::nullopt));
  sums.add(run_at(kWeek, 10, 1));
  sums.add_unfinished(3, 5);
  EXPECT_THAT(names_of(sums.json(), "account"), ElementsAre("chem", "(no usage)"));
  const Json row = row_of(sums, "account", "(no usage)");
  EXPECT_EQ(row["jobs"], 4);
  EXPECT_EQ(row["core_seconds"], 100'000);
  EXPECT_EQ(row["wasted_core_seconds"], 0);
  EXPECT_EQ(row["before"]["jobs"], 5);
  EXPECT_EQ(sums.json()["unfinished_jobs"], 3);
  EXPECT_EQ(sums.unmeasured(), 1U);
  EXPECT_EQ(sums.unfinished(), 3U);
}

// A GPU that was measured where the CPUs were not is no job without use.
TEST(RunSumsTest, AGpuHourCountsAsTenInTheOrder) {
  RunSums sums(SumBy::kUser, second_week());
  JobRun cpu = run_at(kWeek, 36'000, 36'000);
  JobRun gpu = run_at(kWeek, 0, std::nullopt);
  gpu.user = "bob";
  gpu.gpu_seconds = 4'000;
  gpu.unused_gpu_seconds = 3'601;
  sums.add(cpu);
  sums.add(gpu);
  EXPECT_THAT(names_of(sums.json(), "user"), ElementsAre("bob", "alice"));
  gpu.ended_at = at(0);
  gpu.unused_gpu_seconds = 3'601 / 2;
  sums.add(gpu);
  EXPECT_EQ(sums.rows()[0].second->trend(), "+100 %");
  EXPECT_EQ(sums.rows()[1].second->trend(), "new");
}

TEST(RunSumsTest, CsvHasEveryRow) {
  RunSums sums(SumBy::kUser, {.from = std::nullopt, .until = at(kWeek)});
  JobRun run = run_at(1, 7'200, 600);
  run.user = "a,b";
  run.findings = {"cpu_low", "mem_over"};
  sums.add(run);
  EXPECT_EQ(sums.csv(),
            "user,jobs,core_seconds,wasted_core_seconds,gpu_seconds,wasted_gpu_seconds,findings\r\n"
            "\"a,b\",1,7200,600,0,0,cpu_low:1 mem_over:1\r\n"
            "total,1,7200,600,0,0,cpu_low:1 mem_over:1\r\n");
}

TEST(RunSumsTest, TheTimeBeforeIsInTheCsvAndCountsWithoutUseToo) {
  RunSums sums(SumBy::kUser, second_week());
  sums.add(run_at(0, 7'200, 36));
  sums.add(run_at(kWeek, 7'200, 3'600));
  sums.add_unfinished(0, 2);
  EXPECT_THAT(sums.csv(), HasSubstr("\r\nalice,1,7200,3600,0,0,1,7200,36,0,0,\r\n(no usage),0,"));
  EXPECT_THAT(sums.csv(), HasSubstr(",before_jobs,before_core_seconds,"));
  EXPECT_EQ(sums.total().trend(), "> 10 x");
}

// A zone with a clock change: one hour ahead until 2026-03-29T01:00:00Z, then two.
std::int64_t berlin(Timestamp time) {
  return time >= *parse_rfc3339("2026-03-29T01:00:00Z") ? 7'200 : 3'600;
}

std::vector<std::string> rows_in_time(SumBy by, const std::vector<std::string>& ends) {
  RunSums sums(
      by, {.from = std::nullopt, .until = *parse_rfc3339("2100-01-01T00:00:00Z"), .zone = &berlin});
  for (const std::string& end : ends) {
    JobRun run = run_at(0);
    run.ended_at = *parse_rfc3339(end);
    sums.add(run);
  }
  return names_of(sums.json(), word_of(by));
}

TEST(RunSumsTest, AWeekBeginsOnMondayByTheReadersClock) {
  EXPECT_THAT(rows_in_time(SumBy::kWeek, {"2025-12-28T22:59:59Z", "2025-12-28T23:00:00Z",
                                          "2026-01-04T22:59:59Z", "2026-01-04T23:00:00Z"}),
              ElementsAre("2026-01-05", "2025-12-29", "2025-12-22"));
  // The Sunday of the clock change has 23 hours.
  EXPECT_THAT(rows_in_time(SumBy::kWeek, {"2026-03-29T21:59:59Z", "2026-03-29T22:00:00Z"}),
              ElementsAre("2026-03-30", "2026-03-23"));
  EXPECT_THAT(rows_in_time(SumBy::kWeek, {"1969-12-31T12:00:00Z"}), ElementsAre("1969-12-29"));
}

TEST(RunSumsTest, AMonthIsThatOfTheReadersClock) {
  EXPECT_THAT(rows_in_time(SumBy::kMonth, {"2025-12-31T22:59:59Z", "2025-12-31T23:00:00Z",
                                           "2026-03-31T21:59:59Z", "2026-03-31T22:00:00Z"}),
              ElementsAre("2026-04", "2026-03", "2026-01", "2025-12"));
}

TEST(RunSumsTest, WeeksAreInOrderOfTimeAndHaveNoTrend) {
  RunSums sums(SumBy::kWeek, {.from = at(kWeek), .until = at(4 * kWeek), .zone = kUtc});
  EXPECT_EQ(sums.first(), at(kWeek));
  sums.add(run_at(kWeek - 1));  // before
  sums.add(run_at(kWeek, 7'200, 7'000));
  sums.add(run_at(2 * kWeek, 7'200, 1));
  sums.add(run_at(3 * kWeek, 7'200, 100));
  sums.add(run_at(3 * kWeek, 7'200, std::nullopt));
  EXPECT_THAT(names_of(sums.json(), "week"),
              ElementsAre("1970-01-19", "1970-01-12", "1970-01-05", "(no usage)"));
  EXPECT_EQ(sums.json()["total"]["jobs"], 4);
  EXPECT_FALSE(sums.json()["total"].contains("before"));
  EXPECT_THAT(sums.csv(), ::testing::StartsWith("week,jobs,core_seconds,wasted_core_seconds,"
                                                "gpu_seconds,wasted_gpu_seconds,findings\r\n"));
}

TEST(RunSumsTest, APeriodIsReadAsPeopleWriteIt) {
  const Moment moment{.now = *parse_rfc3339("2026-11-27T12:00:00.5Z"), .zone = &berlin};
  const auto period = sum_period("2026-11-20", "2026-11", moment);
  EXPECT_FALSE(period);
  EXPECT_EQ(period.error().message(), "until: give a time after since");
  EXPECT_EQ(sum_period("2026-11-20", "", moment)->from, *parse_rfc3339("2026-11-19T22:00:00Z"));
  for (const char* week : {"7d", "1w"})  // begins with that day
    EXPECT_EQ(sum_period(week, "", moment)->from, *parse_rfc3339("2026-11-19T22:00:00Z"));
  EXPECT_EQ(sum_period("1mo", "", moment)->from, *parse_rfc3339("2026-10-26T22:00:00Z"));
  EXPECT_EQ(sum_period("36h", "", moment)->from, *parse_rfc3339("2026-11-26T00:00:00Z"));
  EXPECT_EQ(sum_period("now", "", moment)->from, *parse_rfc3339("2026-11-27T12:00:00Z"));
  EXPECT_EQ(sum_period("7d", "1d", moment)->until, *parse_rfc3339("2026-11-26T12:00:00Z"));
  EXPECT_EQ(sum_period("", "", moment)->until, *parse_rfc3339("2026-11-27T12:00:01Z"));
  EXPECT_FALSE(sum_period("", "", moment)->from);
  EXPECT_THAT(sum_period("", "\x1bx", moment).error().message(),
              HasSubstr("until: \"\\x1bx\" is neither a date"));
}

TEST(Calendar, EveryDayIsInTheUnitThatBeginsLast) {
  using std::chrono::days;
  const std::chrono::sys_days first = std::chrono::year{1899} / 12 / 30;
  for (const CalendarUnit unit :
       {CalendarUnit::kDay, CalendarUnit::kWeek, CalendarUnit::kMonth, CalendarUnit::kYear}) {
    auto begin = first_day(unit, first);
    for (auto day = first; day < first + days(200 * 365); day += days(1)) {
      if (day == next_first_day(unit, begin)) begin = day;
      ASSERT_EQ(first_day(unit, day), begin) << calendar_text(CalendarUnit::kDay, day);
    }
  }
  EXPECT_EQ(calendar_text(CalendarUnit::kYear, first), "1899");
  EXPECT_EQ(calendar_text(CalendarUnit::kMonth, first), "1899-12");
}

TEST(RunSumsTest, TheWordsOfTheOption) {
  for (const std::string& word : sum_by_words()) EXPECT_TRUE(sum_by(word)) << word;
  EXPECT_FALSE(sum_by("colour"));
}

}  // namespace
}  // namespace scriptorium::query
