#include "core/cli/run_trend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/text.h"
#include "core/base/time.h"
#include "core/cli/report_families.h"
#include "core/cli/trend_text.h"
#include "tests/support/zone.h"

namespace scriptorium::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::ordered_json;

constexpr double kGiB = 1024.0 * 1024 * 1024;

// One that ran for an hour on 8 CPUs and needed 1 GiB.
Json event(const std::string& id = "4711") {
  return {{"id", "e" + id},
          {"kind", "usage.job"},
          {"job", {{"id", id}, {"state", "COMPLETED"}, {"exit_code", "0:0"}}},
          {"usage",
           {{"started_at", "2026-11-21T08:00:00Z"},
            {"elapsed_seconds", 3600.0},
            {"request", {{"nodes", 1}, {"time_limit_seconds", 43200.0}}},
            {"cpu", {{"allocated", 8}, {"efficiency_ratio", 0.9}}},
            {"memory", {{"peak_bytes", kGiB}, {"peak_node_bytes", kGiB}}},
            {"quality", {{"status", "ok"}}},
            {"findings", Json::array()},
            {"suggest", {{"memory_bytes", 1288490189}, {"directives", {"#SBATCH --mem=1230M"}}}}}}};
}

RunFigures run() { return run_figures(event("4710")); }

RunFigures run_of(double seconds, double bytes = kGiB, double cpu = 0.9) {
  RunFigures figures = run();
  figures.elapsed_seconds = seconds;
  figures.peak_node_bytes = bytes;
  figures.cpu_ratio = cpu;
  return figures;
}

std::vector<std::string> ids(const RunTrend& trend) {
  std::vector<std::string> result;
  for (const Json& finding : trend.findings) result.push_back(finding.at("id"));
  return result;
}

std::vector<std::string> lines(const RunTrend& trend) {
  if (trend.suggest.is_null()) return {};
  return trend.suggest.at("directives").get<std::vector<std::string>>();
}

TEST(RunTrendTest, ARunLikeThoseBeforeItHasNoFinding) {
  const RunTrend trend = run_trend(event(), {run(), run(), run()});
  EXPECT_EQ(trend.compared, 3U);
  EXPECT_EQ(trend.figures.size(), 3U);
  EXPECT_THAT(ids(trend), IsEmpty());
  EXPECT_THAT(lines(trend), ElementsAre("#SBATCH --mem=1230M"));
}

TEST(RunTrendTest, TwoRunsAreTooFewToCompareWithButNotToSuggestFrom) {
  const RunTrend trend = run_trend(event(), {run_of(600, 2 * kGiB), run_of(600)});
  EXPECT_EQ(trend.compared, 0U);
  EXPECT_THAT(trend.figures, IsEmpty());
  EXPECT_THAT(ids(trend), IsEmpty());
  EXPECT_THAT(lines(trend), ElementsAre("#SBATCH --mem=2460M"));
  EXPECT_EQ(trend.runs, 3U);
}

TEST(RunTrendTest, TwiceAsLongAsTheMedianAndLongerThanAnyIsSlower) {
  EXPECT_THAT(ids(run_trend(event(), {run_of(1800), run_of(1800), run_of(1800)})),
              ElementsAre("slower_than_before"));
  EXPECT_THAT(ids(run_trend(event(), {run_of(1801), run_of(1801), run_of(1801)})), IsEmpty());
  EXPECT_THAT(ids(run_trend(event(), {run_of(1800), run_of(3600), run_of(1800)})), IsEmpty())
      << "one of them took as long";
  const RunTrend trend = run_trend(event(), {run_of(1200), run_of(1200), run_of(1300)});
  EXPECT_THAT(
      trend.findings.at(0).at("text").get<std::string>(),
      AllOf(HasSubstr("3.0 times as long as its last 3 runs (20 min 0 s, at most 21 min 40 s)"),
            HasSubstr("scriptorium diff 4710 4711")));
}

TEST(RunTrendTest, MemoryThatGrewAndCpusThatFellAreSaid) {
  Json now = event();
  now["usage"]["memory"]["peak_node_bytes"] = 1.5 * kGiB;
  EXPECT_THAT(ids(run_trend(now, {run(), run(), run()})), ElementsAre("memory_grew"));
  EXPECT_THAT(ids(run_trend(now, {run(), run_of(3600, 1.5 * kGiB), run()})), IsEmpty());
  now["usage"]["memory"]["peak_node_bytes"] = 1.49 * kGiB;
  EXPECT_THAT(ids(run_trend(now, {run(), run(), run()})), IsEmpty());

  now = event();
  now["usage"]["cpu"]["efficiency_ratio"] = 0.6;
  EXPECT_THAT(ids(run_trend(now, {run(), run(), run()})), ElementsAre("cpu_fell"));
  EXPECT_THAT(ids(run_trend(now, {run(), run_of(3600, kGiB, 0.6), run()})), IsEmpty());
  now["usage"]["cpu"]["efficiency_ratio"] = 0.61;
  EXPECT_THAT(ids(run_trend(now, {run(), run(), run()})), IsEmpty());
  now["usage"]["cpu"]["efficiency_ratio"] = 0.05;
  const RunFigures idle = run_of(3600, kGiB, 0.14);
  EXPECT_THAT(ids(run_trend(now, {idle, idle, idle})), IsEmpty()) << "a tenth of the CPUs at least";
}

TEST(RunTrendTest, OnlyRunsThatCompletedOnAsManyCpusAreComparedWith) {
  std::vector<RunFigures> earlier(5, run_of(600));
  earlier[0].completed = false;
  earlier[1].judged = false;
  earlier[2].cpus = 4;
  EXPECT_EQ(run_trend(event(), earlier).compared, 0U);
  earlier[2].cpus = 8;
  EXPECT_EQ(run_trend(event(), earlier).compared, 3U);
  earlier[2].nodes = 2;
  EXPECT_EQ(run_trend(event(), earlier).compared, 0U);
  earlier[2].nodes = 1;
  earlier[2].gpus = 1;
  EXPECT_EQ(run_trend(event(), earlier).compared, 0U);
}

TEST(RunTrendTest, TheTenNewestAreComparedWith) {
  std::vector<RunFigures> earlier(10, run_of(600));
  earlier.push_back(run_of(7200));
  const RunTrend trend = run_trend(event(), earlier);
  EXPECT_EQ(trend.compared, 10U);
  EXPECT_THAT(ids(trend), ElementsAre("slower_than_before")) << "the eleventh took as long";
}

TEST(RunTrendTest, ATooShortRunIsNotCompared) {
  Json now = event();
  now["usage"]["quality"]["status"] = "short";
  EXPECT_EQ(run_trend(now, {run_of(600), run_of(600), run_of(600)}).compared, 0U);
}

TEST(RunTrendTest, ACourseIsToldOfFiveRunsThatAreInOrder) {
  const auto course = [](const std::vector<double>& newest_first) {
    std::vector<RunFigures> earlier;
    for (const double seconds : newest_first) earlier.push_back(run_of(seconds));
    return run_trend(event(), earlier).figures.at(0).course;
  };
  using Course = FigureTrend::Course;
  EXPECT_EQ(course({3500, 3400, 3300, 3200}), Course::kRising);
  EXPECT_EQ(course({3700, 3800, 3900, 4100}), Course::kFalling);
  EXPECT_EQ(course({3000, 2400, 1800}), Course::kSteady) << "four runs";
  EXPECT_EQ(course({3590, 3580, 3570, 3560}), Course::kSteady) << "by a hundredth";
  EXPECT_EQ(course({3200, 3900, 3100, 3200}), Course::kSteady) << "to and fro";
}

// ---- what to ask for

TEST(RunTrendTest, TheSuggestionIsFromTheMostThatAnyRunNeeded) {
  RunFigures killed = run_of(60, 3 * kGiB);
  killed.completed = killed.judged = false;
  EXPECT_THAT(lines(run_trend(event(), {killed, run_of(3600, 2 * kGiB), run()})),
              ElementsAre("#SBATCH --mem=3690M"));
}

TEST(RunTrendTest, ARunThatWasKilledOrFailedOrShortNeverLowersTheSuggestion) {
  for (const char* state : {"FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL"}) {
    Json now = event();
    now["job"]["state"] = state;
    now["usage"]["memory"]["peak_node_bytes"] = kGiB / 100;
    now["usage"].erase("suggest");
    EXPECT_THAT(lines(run_trend(now, {run_of(3600, 2 * kGiB), run_of(1, 1)})),
                ElementsAre("#SBATCH --mem=2460M"))
        << state;
  }
  Json now = event();
  now["usage"]["quality"]["status"] = "short";
  now["usage"]["memory"]["peak_node_bytes"] = 1;
  now["usage"].erase("suggest");
  EXPECT_THAT(lines(run_trend(now, {run_of(3600, 2 * kGiB)})), ElementsAre("#SBATCH --mem=2460M"));
}

TEST(RunTrendTest, AKillForMemoryAsksForMoreThanAnyRunNeeded) {
  Json now = event();
  now["job"]["state"] = "OUT_OF_MEMORY";
  now["usage"]["suggest"]["memory_bytes"] = 8 * kGiB;
  EXPECT_THAT(lines(run_trend(now, {run_of(3600, 2 * kGiB)})), ElementsAre("#SBATCH --mem=8G"));
}

TEST(RunTrendTest, WithoutARunThatCameToItsEndTheEventsOwnSuggestionRemains) {
  RunFigures failed = run_of(3600, 2 * kGiB);
  failed.completed = false;
  const RunTrend trend = run_trend(event(), {failed});
  EXPECT_EQ(trend.runs, 0U);
  EXPECT_EQ(with_trend(event()["usage"], trend).at("suggest"), event()["usage"]["suggest"]);
  RunFigures brief = run_of(1, 1);
  brief.judged = false;
  EXPECT_EQ(run_trend(event(), {brief}).runs, 0U);
}

TEST(RunTrendTest, WhatAccountingKnowsOfAllOfARunIsAsGoodAsAMeasurement) {
  Json one = event();
  for (const char* status : {"ok", "accounting"}) {
    one["usage"]["quality"]["status"] = status;
    EXPECT_TRUE(run_figures(one).judged) << status;
  }
  for (const char* status : {"short", "partial", "none"}) {
    one["usage"]["quality"]["status"] = status;
    EXPECT_FALSE(run_figures(one).judged) << status;
  }
}

TEST(RunTrendTest, ARunThatNeededMostItselfIsSuggestedForByItsOwnNeed) {
  Json now = event();
  now["usage"]["memory"]["peak_node_bytes"] = 4 * kGiB;
  now["usage"]["suggest"].erase("memory_bytes");
  now["usage"]["suggest"]["condition"] = "the sun shines";
  const RunTrend trend = run_trend(now, {run()});
  EXPECT_THAT(lines(trend), ElementsAre("#SBATCH --mem=5G"));
  EXPECT_EQ(trend.suggest.at("condition"), "the sun shines");
}

TEST(RunTrendTest, PbsIsAskedForTheMemoryOfAllNodes) {
  Json now = event();
  now["usage"]["request"]["nodes"] = 3;
  now["usage"]["suggest"]["directives"] = {"#PBS -l mem=3690mb"};
  EXPECT_THAT(lines(run_trend(now, {run()})), ElementsAre("#PBS -l mem=3690mb"));
}

TEST(RunTrendTest, TypicalIsTheMedianOfTheRunsThatCompletedAndWereMeasured) {
  RunFigures failed = run_of(1);
  failed.completed = false;
  RunFigures brief = run_of(1);
  brief.judged = false;
  EXPECT_EQ(typical({failed, brief, failed, brief}, Figure::kTime), std::nullopt);
  EXPECT_EQ(typical({failed, run_of(100), brief, run_of(300)}, Figure::kTime), 200);
  EXPECT_EQ(typical({failed, run_of(500), brief, run_of(100), run_of(300)}, Figure::kTime), 300);
}

TEST(RunTrendTest, RunsMayComeInAnyOrderWithThisOneAmongThem) {
  std::vector<RunFigures> runs{run_figures(event())};
  for (int i = 0; i < 11; ++i) {
    runs.push_back(run_of(i == 0 ? 7200 : 600));  // the oldest took long
    runs.back().started_at = Timestamp{(i + 1) * kSecond};
  }
  const RunTrend trend = run_trend(event(), runs);
  EXPECT_EQ(trend.compared, 10U);
  EXPECT_EQ(trend.runs, 12U);
  EXPECT_THAT(ids(trend), ElementsAre("slower_than_before"));
}

TEST(RunTrendTest, ATaskIsNamedByItsArray) {
  Json one = event();
  EXPECT_EQ(run_figures(one).job, "4711");
  one["job"]["array"] = {{"job_id", "4700"}, {"task_id", "3"}};
  EXPECT_EQ(run_figures(one).job, "4700_3");
}

TEST(RunTrendTest, ARunCompletedOnlyWithExitCode0) {
  Json one = event();
  EXPECT_TRUE(run_figures(one).completed);
  one["job"]["exit_code"] = "1:0";
  EXPECT_FALSE(run_figures(one).completed);
}

TEST(RunTrendTest, TheTimeIsEnoughForTheLongestRunAndNotSuggestedIfThatNeedsAllOfIt) {
  Json now = event();
  now["usage"]["suggest"]["time_limit_seconds"] = 5400.0;
  EXPECT_THAT(lines(run_trend(now, {run_of(7200)})),
              ElementsAre("#SBATCH --mem=1230M", "#SBATCH --time=03:00:00"));
  EXPECT_THAT(lines(run_trend(now, {run_of(1800)})),
              ElementsAre("#SBATCH --mem=1230M", "#SBATCH --time=01:30:00"));
  EXPECT_THAT(lines(run_trend(now, {run_of(7200), run_of(28800)})),
              ElementsAre("#SBATCH --mem=1230M"));
}

TEST(RunTrendTest, OneCpuIsNotSuggestedIfARunUsedMore) {
  Json now = event();
  now["usage"]["cpu"]["efficiency_ratio"] = 0.125;
  now["usage"]["suggest"]["cpus"] = 1;
  const RunFigures serial = run_of(3600, kGiB, 0.125);
  EXPECT_THAT(
      lines(run_trend(now, {serial})),
      ElementsAre("#SBATCH --cpus-per-task=1", "#SBATCH --ntasks=1", "#SBATCH --mem=1230M"));
  EXPECT_THAT(lines(run_trend(now, {serial, run_of(3600, kGiB, 0.2)})),
              ElementsAre("#SBATCH --mem=1230M"));
}

TEST(RunTrendTest, TheWordsAreThoseOfTheRunsScheduler) {
  Json now = event();
  now["usage"].erase("suggest");
  Json before = event("4710");
  before["usage"]["suggest"]["directives"] = {"#PBS -l mem=1230mb"};
  EXPECT_THAT(lines(run_trend(now, {run_figures(before)})), ElementsAre("#PBS -l mem=1230mb"));
}

TEST(RunTrendTest, AnOlderEventsMemoryIsThatOfItsFullestNode) {
  Json old = event();
  old["usage"]["memory"].erase("peak_node_bytes");
  EXPECT_EQ(run_figures(old).peak_node_bytes, kGiB);
  old["usage"]["request"]["nodes"] = 2;
  EXPECT_EQ(run_figures(old).peak_node_bytes, std::nullopt);
  old["usage"]["nodes"] = {{{"memory", {{"peak_working_set_bytes", 3}}}},
                           {{"memory", {{"peak_working_set_bytes", 5}}}}};
  EXPECT_EQ(run_figures(old).peak_node_bytes, 5);
}

TEST(RunTrendTest, WhatIsNoEventHasNoFigures) {
  for (const char* text : {"null", "[]", "{\"usage\": 3}", "{\"usage\": {\"suggest\": [1]}}"}) {
    const Json strange = Json::parse(text);
    RunFigures earlier = run_figures(strange);
    earlier.event_id = "another";
    const RunTrend trend = run_trend(strange, {earlier, run()});
    EXPECT_EQ(trend.compared, 0U) << text;
  }
}

TEST(RunTrendTest, FiguresThatNoJobHasAreNotUsed) {
  for (const double strange : {-1.0, 1e16, 1e300}) {
    Json now = event();
    now["usage"]["request"]["nodes"] = 1e9;
    now["usage"]["suggest"]["cpus"] = 1e10;
    for (const char* key : {"memory_bytes", "time_limit_seconds", "gpus"})
      now["usage"]["suggest"][key] = strange;
    now["usage"]["memory"]["peak_node_bytes"] = strange;
    now["usage"]["elapsed_seconds"] = strange;
    now["usage"]["nodes"] = Json::array();
    Json earlier = now;
    earlier["id"] = "e4709";
    EXPECT_THAT(lines(run_trend(now, {run(), run_figures(earlier)})),
                ElementsAre("#SBATCH --mem=1230M"))
        << strange;
  }
}

// ---- shown

TEST(TrendTextTest, IsATableOfTheRunsBeforeAndThisOne) {
  std::istringstream in;
  std::ostringstream out;
  const Console console{.in = in, .out = out, .err = out};
  const RunTrend trend =
      run_trend(event(), {run_of(1250), run_of(1200), run_of(1150), run_of(1100)});
  EXPECT_EQ(trend_text(trend, console),
            "\n"
            "ITS LAST 4 RUNS        LEAST       MEDIAN         MOST   THIS RUN  TREND\n"
            "time             18 min 20 s  19 min 35 s  20 min 50 s  1 h 0 min  rising\n"
            "memory               1.0 GiB      1.0 GiB      1.0 GiB    1.0 GiB\n"
            "CPU                     90 %         90 %         90 %       90 %\n");
  EXPECT_EQ(trend_text(RunTrend{}, console), "");
}

TEST(TrendTextTest, ItsFindingsFollowThoseOfTheEvent) {
  Json now = event();
  now["usage"]["findings"] = {{{"id", "mem_over"}}};
  const Json usage =
      with_trend(now["usage"], run_trend(now, {run_of(600, 2 * kGiB), run_of(600), run_of(600)}));
  EXPECT_EQ(usage.at("findings").size(), 2U);
  EXPECT_EQ(usage.at("findings").at(1).at("id"), "slower_than_before");
  EXPECT_EQ(usage.at("suggest").at("runs"), 4U);
  EXPECT_EQ(usage.at("suggest").at("directives").at(0), "#SBATCH --mem=2460M");
}

// ---- families of many jobs

Json run_at(const std::string& id, const std::string& name, int hour, double seconds) {
  Json one = event(id);
  one["job"]["name"] = name;
  one["user"] = {{"name", "alice"}};
  one["usage"]["started_at"] = "2026-11-21T" + std::to_string(hour) + ":00:00Z";
  one["usage"]["ended_at"] = "2026-11-21T" + std::to_string(hour) + ":30:00Z";
  one["usage"]["elapsed_seconds"] = seconds;
  one["usage"]["findings"] = {{{"id", "mem_over"}, {"severity", "warning"}}};
  return one;
}

TEST(FamilyReportTest, JobsOfOneNameButOfTwoUsersOrClustersAreNotOneFamily) {
  FamilyReport report;
  Json one = run_at("1", "md_1", 11, 1000);
  report.add(one, std::nullopt);
  one["user"]["name"] = "bob";
  report.add(one, std::nullopt);
  one["cluster"] = "other";
  report.add(one, std::nullopt);
  EXPECT_EQ(report.json().at("families").size(), 3U);
}

TEST(FamilyReportTest, ItsFindingsAreThoseOfMostRunsFirstAndItsTrendIsOfTheNewestRuns) {
  FamilyReport report;
  for (int i = 0; i < 12; ++i) {
    Json one = run_at(std::to_string(i), "md", 10 + i, i == 11 ? 1000 : i == 0 ? 5000 : 400);
    if (i % 2 == 0) one["usage"]["findings"].push_back({{"id", "a_rare_one"}});
    report.add(one, 7);
  }
  const Json family = report.json().at("families").at(0);
  EXPECT_EQ(family.at("findings").at(0).at("id"), "mem_over");
  EXPECT_EQ(family.at("findings").at(1), Json::parse(R"({"id": "a_rare_one", "runs": 6})"));
  EXPECT_EQ(family.at("trend").at("findings").at(0).at("id"), "slower_than_before")
      << "the eleventh run before took longer";
}

TEST(FamilyReportTest, IsARowForEachFamilyByItsNumberOrElseByUserAndName) {
  const test::Zone zone("UTC");
  FamilyReport report;
  // The newest run need not come last.
  report.add(run_at("4", "md_4", 14, 3600), std::nullopt);
  for (int i = 1; i <= 3; ++i)
    report.add(run_at(std::to_string(i), "md_" + std::to_string(i), 10 + i, 1000), std::nullopt);
  Json failed = run_at("5", "other", 15, 60);
  failed["job"]["state"] = "FAILED";
  report.add(failed, 7);
  report.add(run_at("6", "another name", 16, 60), 7);
  const Json families = report.json().at("families");
  ASSERT_EQ(families.size(), 2U);
  const Json& md = families.at(0);
  EXPECT_EQ(md.at("last").at("id"), "4");
  EXPECT_EQ(md.at("runs"), 4U);
  EXPECT_EQ(md.at("completed_runs"), 4U);
  EXPECT_EQ(md.at("by_name"), true);
  EXPECT_EQ(md.at("trend").at("findings").at(0).at("id"), "slower_than_before");
  EXPECT_EQ(md.at("findings"), Json::parse(R"([{"id": "mem_over", "runs": 4}])"));
  EXPECT_NEAR(md.at("wasted_core_hours").get<double>(), 0.1 * 8 * 6600 / 3600, 1e-9);
  EXPECT_EQ(families.at(1).at("completed_runs"), 1U);
  EXPECT_EQ(md.at("trend").at("figures").at(0).at("median"), 1000);
  EXPECT_EQ(families.at(1).at("by_name"), false);

  std::istringstream in;
  std::ostringstream out;
  const Console console{.in = in, .out = out, .err = out};
  EXPECT_THAT(
      report.text(1, console),
      AllOf(HasSubstr("md_4  alice     4          4  4         2026-11-21 14:30:00  16 min 40 s"),
            HasSubstr("slower_than_before mem_over (4)"), HasSubstr("and 1 more"),
            HasSubstr("No store knows families here")));
}

}  // namespace
}  // namespace scriptorium::cli
