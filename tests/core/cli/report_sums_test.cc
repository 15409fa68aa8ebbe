#include "core/cli/report_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace scriptorium::cli {
namespace {

using query::RunSums;
using query::SumBy;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kWeek = 7 * 86'400;

Timestamp at(std::int64_t seconds) { return Timestamp{seconds * kSecond}; }

// The second week; the first is the one before.
query::SumPeriod second_week() { return {.from = at(kWeek), .until = at(2 * kWeek)}; }

JobRun run_at(std::int64_t ended, std::uint64_t core_seconds = 7'200,
              std::optional<std::uint64_t> unused = 3'600) {
  return {.user = "alice",
          .verified = true,
          .ended_at = at(ended),
          .core_seconds = core_seconds,
          .unused_core_seconds = unused};
}

std::string text_of(const RunSums& sums, std::size_t limit = 0) {
  std::istringstream in;
  std::ostringstream out;
  return sums_text(sums, limit, Console{.in = in, .out = out, .err = out});
}

TEST(ReportSumsTest, TheTableHasTheWorstRowsAndTheTotal) {
  RunSums sums(SumBy::kUser, second_week());
  for (int i = 0; i < 5; ++i) {
    JobRun run = run_at(kWeek, 36'000, 3'600 * (i + 1));
    run.user = "u" + std::to_string(i);
    run.findings = {"cpu_low"};
    if (i == 4) run.findings.push_back("mem_over");
    sums.add(run);
  }
  const std::string text = text_of(sums, 2);
  EXPECT_THAT(text, HasSubstr("USER   JOBS  CORE HOURS  WASTED"));
  EXPECT_THAT(text,
              HasSubstr("u4        1        10.0     5.0  50 %    new  cpu_low (1) mem_over (1)"));
  EXPECT_THAT(text, Not(HasSubstr("u2 ")));
  EXPECT_THAT(text, HasSubstr("and 3 more rows"));
  EXPECT_THAT(text,
              HasSubstr("total     5        50.0    15.0  30 %    new  cpu_low (5) mem_over (1)"));
}

TEST(ReportSumsTest, WhatIsNotKnownIsADash) {
  RunSums sums(SumBy::kUser, second_week());
  JobRun run = run_at(kWeek, 0, 0);
  run.gpu_seconds = 3'600;
  sums.add(run);
  EXPECT_THAT(text_of(sums), HasSubstr("alice     1         0.0     0.0  -        1.0     0.0"));
  EXPECT_THAT(text_of(sums), AllOf(HasSubstr("GPU HOURS"), HasSubstr("a GPU hour counts as ten")));
}

TEST(ReportSumsTest, WithoutABeginningThereIsNoTrend) {
  RunSums sums(SumBy::kUser, {.from = std::nullopt, .until = at(2 * kWeek)});
  sums.add(run_at(kWeek));
  EXPECT_THAT(text_of(sums), AllOf(Not(HasSubstr("TREND")), HasSubstr("Jobs that ended until")));
}

TEST(ReportSumsTest, TheFootSaysWhatARowHas) {
  EXPECT_THAT(text_of(RunSums(SumBy::kModule, second_week())),
              HasSubstr("in full in the row of each"));
  EXPECT_THAT(text_of(RunSums(SumBy::kProgram, second_week())),
              HasSubstr("by the program's share"));
  EXPECT_THAT(text_of(RunSums(SumBy::kWeek, second_week())),
              AllOf(HasSubstr("from that Monday on"), Not(HasSubstr("TREND"))));
  RunSums sums(SumBy::kAccount, second_week());
  sums.add(run_at(kWeek, 100'000, std::nullopt));
  sums.add_unfinished(3, 5);
  EXPECT_THAT(text_of(sums),
              AllOf(HasSubstr("(no usage) has 1 job whose use was not measured."),
                    HasSubstr("(no usage) has 3 jobs submitted in this time, of which no end")));
}

}  // namespace
}  // namespace scriptorium::cli
