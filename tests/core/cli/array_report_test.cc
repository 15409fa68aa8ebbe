#include "core/query/array_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "core/cli/array_text.h"
#include "tests/support/zone.h"

namespace scriptorium::cli {
namespace {

using query::ArrayReport;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::ordered_json;

constexpr double kMebi = 1048576;

// One that ran for an hour of the two that it had on 8 CPUs, and needed 1000 MiB of 4000.
Json task(int number) {
  const std::string id = std::to_string(5000 + number);
  return {
      {"id", "e" + id},
      {"kind", "usage.job"},
      {"user", {{"name", "alice"}, {"verified", true}}},
      {"job",
       {{"id", id},
        {"name", "sweep"},
        {"state", "COMPLETED"},
        {"exit_code", "0:0"},
        {"array", {{"job_id", "4711"}, {"task_id", std::to_string(number)}}}}},
      {"usage",
       {{"started_at", "2026-11-21T08:00:00Z"},
        {"ended_at", "2026-11-21T09:00:00Z"},
        {"elapsed_seconds", 3600.0},
        {"request", {{"nodes", 1}, {"time_limit_seconds", 7200.0}}},
        {"cpu", {{"allocated", 8}, {"efficiency_ratio", 0.9}}},
        {"memory", {{"peak_node_bytes", 1000 * kMebi}}},
        {"quality", {{"status", "ok"}}},
        {"findings", Json::array()},
        {"suggest", {{"memory_bytes", 1200 * kMebi}, {"directives", {"#SBATCH --mem=1200M"}}}}}}};
}

// An array of tasks that a test then changes.
class ArrayReportTest : public ::testing::Test {
 protected:
  explicit ArrayReportTest(int tasks = 20) { resize(tasks); }

  void resize(int tasks) {
    events_.clear();
    for (int i = 0; i < tasks; ++i) events_.push_back(task(i));
  }
  Json& usage(std::size_t number) { return event(number)["usage"]; }
  Json& event(std::size_t number) { return *std::next(events_.begin(), number); }
  void end(std::size_t number, const char* state, const char* exit = "0:0") {
    event(number)["job"]["state"] = state;
    event(number)["job"]["exit_code"] = exit;
  }
  void need(std::size_t number, double mebibytes) {
    usage(number)["memory"]["peak_node_bytes"] = mebibytes * kMebi;
  }
  void last(std::size_t number, double seconds) { usage(number)["elapsed_seconds"] = seconds; }
  // As the finding time_over suggests it.
  void suggest_time(std::size_t number, double seconds) {
    usage(number)["suggest"]["time_limit_seconds"] = seconds;
  }

  ArrayReport report() const {
    std::vector<query::TaskLife> lives;
    for (const Json& one : events_) lives.push_back(query::task_life(one));
    return query::array_report(std::move(lives));
  }
  std::string text() const {
    std::istringstream in;
    std::ostringstream out;
    return array_text(report(), Console{.in = in, .out = out, .err = out});
  }
  std::vector<std::string> lines() const {
    const Json suggest = report().suggest;
    return suggest.is_null() || !suggest.contains("directives")
               ? std::vector<std::string>{}
               : suggest.at("directives").get<std::vector<std::string>>();
  }
  // "4711_3 --mem=9G", for each that needs more.
  std::vector<std::string> exceptions() const {
    std::vector<std::string> list;
    const Json suggest = report().suggest;
    for (const Json& one : suggest.at("exceptions")) {
      list.push_back(one.at("task"));
      for (const Json& line : one.at("directives"))
        list.back() += line.get<std::string>().substr(7);
    }
    return list;
  }
  std::vector<std::string> outliers() const {
    std::vector<std::string> list;
    for (const ArrayReport::Outlier& one : report().outliers) {
      list.push_back(one.task);
      for (const std::string& reason : one.reasons) list.back() += ", " + reason;
    }
    return list;
  }

  test::Zone zone_{test::kBerlin};
  std::list<Json> events_;
};

// ---- the head and the spread

TEST_F(ArrayReportTest, IsOneScreenOfAllTasks) {
  for (std::size_t i = 0; i < 20; ++i) {
    last(i, 3600 + 30 * static_cast<double>(i));
    usage(i)["findings"] = {{{"id", "mem_over"}, {"severity", "warning"}}};
  }
  last(17, 7000);
  need(17, 3000);
  end(3, "FAILED", "3:0");
  last(3, 60);
  usage(3)["findings"] = {{{"id", "short_job"}, {"severity", "info"}}};
  EXPECT_EQ(text(),
            "array 4711  sweep  20 tasks\n"
            "  owner      alice\n"
            "  tasks      19 COMPLETED, 1 FAILED\n"
            "  ran        2026-11-21 09:00:00 CET to 2026-11-21 10:00:00 CET\n"
            "\n"
            "               TIME        MEMORY      CPU\n"
            "least          1 min 0 s   1000 MiB    90 %\n"
            "median         1 h 4 min   1000 MiB    90 %\n"
            "most           1 h 56 min  2.9 GiB     90 %\n"
            "                    #      #\n"
            "                    #      #\n"
            "                    #      #\n"
            "least to most  .    #   .  #        .  all equal\n"
            "\n"
            "Tasks unlike the others\n"
            "  4711_3   FAILED (exit 3:0)\n"
            "  4711_17  ran 1 h 56 min (median 1 h 5 min); needed 2.9 GiB of memory (median 1000 "
            "MiB)\n"
            "\n"
            "FINDING    SEVERITY  TASKS  EXAMPLE\n"
            "mem_over   warning      19  4711_0\n"
            "short_job  info          1  4711_3\n"
            "\n"
            "Next time, if the task that did not complete needs no more, by the most that 19 of 20 "
            "tasks\nneeded\n"
            "  #SBATCH --mem=1200M\n"
            "But more for 4711_17 (--mem=3600M)\n"
            "\n"
            "scriptorium report 4711_3 shows one task, and explains its findings.\n");
}

TEST_F(ArrayReportTest, EachTaskCountsAsItRanLast) {
  Json first = task(4);
  first["id"] = "another";
  first["job"]["state"] = "PREEMPTED";
  first["usage"]["started_at"] = "2026-11-20T08:00:00Z";
  events_.push_back(first);  // the last life first
  const ArrayReport array = report();
  EXPECT_EQ(array.tasks, 20U);
  EXPECT_EQ(array.ran_again, 1U);
  EXPECT_THAT(array.states, ElementsAre(std::pair{"COMPLETED", 20U}));
  EXPECT_THAT(text(), HasSubstr("20 COMPLETED; 1 ran more than once\n"));
  first["usage"]["memory"]["peak_node_bytes"] = 1100 * kMebi;
  events_.back() = first;
  EXPECT_THAT(lines(), ElementsAre("#SBATCH --mem=1320M")) << "it may need as much once more";
}

TEST_F(ArrayReportTest, ItsHistogramHasEachTaskInOneOfTenBins) {
  resize(11);
  for (std::size_t i = 0; i < 11; ++i) last(i, 1000 + 100 * static_cast<double>(i));
  const ArrayReport::Spread spread = report().spreads.at(0);
  EXPECT_EQ(spread.figure, query::Figure::kTime);
  EXPECT_THAT(spread.bins, ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 1, 2));
  EXPECT_EQ(spread.median, 1500);
  EXPECT_THAT(text(), AllOf(HasSubstr("least          16 min 40 s  "),
                            HasSubstr("               ##########\n")));
}

TEST_F(ArrayReportTest, TwoTasksAndTasksWithoutFiguresHaveASpreadOfWhatIsKnown) {
  resize(2);
  last(1, 7200);
  EXPECT_THAT(text(), HasSubstr("least to most  #        #  all equal  all equal\n"));
  EXPECT_THAT(outliers(), IsEmpty());
  usage(1).erase("cpu");
  EXPECT_THAT(text(), HasSubstr("tasks          2           2          1\n"));
  usage(0).erase("cpu");
  EXPECT_THAT(text(), Not(HasSubstr("CPU")));
  for (std::size_t i = 0; i < 2; ++i) event(i).erase("usage");
  EXPECT_EQ(text(),
            "array 4711  sweep  2 tasks\n"
            "  owner      alice\n"
            "  tasks      2 COMPLETED\n"
            "\n"
            "scriptorium report 4711_TASK shows one task, and explains its findings.\n");
}

TEST_F(ArrayReportTest, WhatWasMeasuredInPartIsNotInTheSpread) {
  need(3, 10);
  usage(3)["quality"]["status"] = "partial";
  EXPECT_EQ(report().spreads.at(1).least, 1000 * kMebi);
  EXPECT_EQ(report().suggest.at("not_measured"), 1U);
  EXPECT_THAT(text(), HasSubstr("Next time, if the task that had no measured memory needs no more, "
                                "by the most that 19 of 20\ntasks needed\n"));
}

TEST_F(ArrayReportTest, OfManyTasksTheTextIsOneScreen) {
  resize(2000);
  for (std::size_t i = 0; i < 2000; ++i) {
    usage(i)["gpu"] = {{"count", 2}, {"utilization_ratio", static_cast<double>(i) / 2000}};
    for (std::size_t f = 0; f < 22; ++f)
      usage(i)["findings"].push_back(
          {{"id", "finding_" + std::to_string(f)}, {"severity", "warning"}});
    if (i % 3 == 0) end(i, "FAILED", "1:0");
    if (i % 7 == 0) need(i, 100.0 * static_cast<double>(i));
    if (i % 100 == 1) end(i, "TIMEOUT");
  }
  std::istringstream all(text());
  std::size_t count = 0;
  for (std::string line; std::getline(all, line); ++count)
    EXPECT_LE(line.size(), count < 14 ? 80U : 98U) << line;
  EXPECT_LE(count, 45U);
  EXPECT_THAT(text(), AllOf(HasSubstr("  and 16 more\n"), HasSubstr(" more\n\nFINDING")));
}

// ---- outliers

TEST_F(ArrayReportTest, AFigureIsUnusualFarBeyondTheQuartiles) {
  struct Case {
    const char* what;
    double usual, step, odd;  // of the times
    bool is_odd;
  };
  for (const Case& one :
       {Case{"longer by more than a half", 3600, 0, 5401, true},
        Case{"longer by less than a half", 3600, 0, 5399, false},
        Case{"shorter by more than a half", 3600, 0, 1799, true},
        Case{"shorter by less than a half", 3600, 0, 1801, false},
        Case{"a minute more", 10, 0, 71, true}, Case{"less than a minute more", 10, 0, 69, false},
        // The middle half of 1000 to 1950 is 475 wide, and ends at 1712.
        Case{"within three of these distances", 1000, 50, 3100, false},
        Case{"beyond three of these distances", 1000, 50, 3300, true}}) {
    for (std::size_t i = 0; i < 20; ++i) last(i, one.usual + one.step * static_cast<double>(i));
    last(19, one.odd);
    EXPECT_EQ(outliers().size(), one.is_odd ? 1U : 0U) << one.what;
  }
}

TEST_F(ArrayReportTest, AShareOfTheCpusIsUnusualByATenthAndOnlyIfTheTaskWasLongEnough) {
  usage(5)["cpu"]["efficiency_ratio"] = 0.79;
  EXPECT_THAT(outliers(), ElementsAre("4711_5, used 79 % of its CPUs (median 90 %)"));
  usage(5)["quality"]["status"] = "short";
  EXPECT_THAT(outliers(), IsEmpty());
  usage(5)["quality"]["status"] = "ok";
  usage(5)["cpu"]["efficiency_ratio"] = 0.81;
  EXPECT_THAT(outliers(), IsEmpty());
}

TEST_F(ArrayReportTest, MemoryIsUnusualByAHalfAndSixtyFourMebibytes) {
  need(5, 1501);
  EXPECT_THAT(outliers(), ElementsAre("4711_5, needed 1.5 GiB of memory (median 1000 MiB)"));
  need(5, 1499);
  EXPECT_THAT(outliers(), IsEmpty());
  for (std::size_t i = 0; i < 20; ++i) need(i, 10);
  need(5, 73);
  EXPECT_THAT(outliers(), IsEmpty());
  need(5, 75);
  EXPECT_EQ(outliers().size(), 1U);
}

TEST_F(ArrayReportTest, FewerThanFiveTasksHaveNoQuartiles) {
  resize(4);
  last(3, 360000);
  EXPECT_THAT(outliers(), IsEmpty());
  resize(5);
  last(3, 360000);
  EXPECT_EQ(outliers().size(), 1U);
}

TEST_F(ArrayReportTest, TasksThatFailedAreNamedAndDoNotDecideWhatIsUsual) {
  for (std::size_t i = 0; i < 12; ++i) {
    end(i, "FAILED", "1:0");
    last(i, 1);
  }
  const auto list = outliers();
  ASSERT_EQ(list.size(), 12U);
  EXPECT_EQ(list.at(0), "4711_0, FAILED (exit 1:0)") << "and not that it was brief";
  EXPECT_THAT(text(), HasSubstr("  and 2 more\n"));
}

TEST_F(ArrayReportTest, TheRarestReasonComesFirst) {
  for (std::size_t i = 0; i < 4; ++i) end(i, "FAILED", "1:0");
  end(10, "OUT_OF_MEMORY", "0:125");
  end(11, "OUT_OF_MEMORY", "0:125");
  last(19, 36000);
  EXPECT_THAT(outliers(), ElementsAre("4711_19, ran 10 h 0 min (median 1 h 0 min)",
                                      "4711_10, killed for memory", "4711_11, killed for memory",
                                      "4711_0, FAILED (exit 1:0)", "4711_1, FAILED (exit 1:0)",
                                      "4711_2, FAILED (exit 1:0)", "4711_3, FAILED (exit 1:0)"));
}

TEST_F(ArrayReportTest, AGraveFindingThatATenthOfTheTasksHaveIsAReason) {
  const auto add = [&](std::size_t number, const char* severity) {
    usage(number)["findings"] = {{{"id", "gpu_unused"}, {"severity", severity}}};
  };
  add(3, "notice");
  EXPECT_THAT(outliers(), IsEmpty());
  add(3, "warning");
  EXPECT_EQ(outliers().size(), 1U);
  add(3, "critical");
  add(4, "critical");
  EXPECT_THAT(outliers(), ElementsAre("4711_3, gpu_unused (2 of 20 tasks)",
                                      "4711_4, gpu_unused (2 of 20 tasks)"));
  add(5, "critical");
  EXPECT_THAT(outliers(), IsEmpty());
}

TEST_F(ArrayReportTest, FindingsAreThoseOfMostTasksFirst) {
  for (std::size_t i = 2; i < 9; ++i)
    usage(i)["findings"] = {{{"id", "mem_over"}, {"severity", "warning"}}};
  usage(1)["findings"] = {{{"id", "cpu_low"}, {"severity", "notice"}},
                          {{"id", "cpu_low"}, {"severity", "notice"}}};
  const auto list = report().findings;
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].id + " " + list[0].example, "mem_over 4711_2");
  EXPECT_EQ(list[0].tasks, 7U);
  EXPECT_EQ(list[1].tasks, 1U) << "a task counts once";
}

// ---- what to ask for

TEST_F(ArrayReportTest, TheSuggestionIsEnoughForTheMostThatAnyTaskNeeded) {
  need(3, 1400);
  EXPECT_THAT(lines(), ElementsAre("#SBATCH --mem=1680M"));
  EXPECT_THAT(exceptions(), IsEmpty());
}

TEST_F(ArrayReportTest, ATaskThatNeedsFarMoreIsNamedInstead) {
  need(3, 3000);
  EXPECT_THAT(lines(), ElementsAre("#SBATCH --mem=1200M"));
  EXPECT_THAT(exceptions(), ElementsAre("4711_3 --mem=3600M"));
  EXPECT_EQ(report().suggest.at("tasks"), 19U);
}

TEST_F(ArrayReportTest, ManyTasksThatNeedFarMoreAreNotLeftOut) {
  for (const std::size_t number : {3U, 4U}) need(number, 3000);
  EXPECT_EQ(exceptions().size(), 2U) << "a tenth";
  need(5, 3000);
  EXPECT_THAT(exceptions(), IsEmpty());
  EXPECT_THAT(lines(), ElementsAre("#SBATCH --mem=3600M"));
  resize(19);
  for (const std::size_t number : {3U, 4U}) need(number, 3000);
  EXPECT_THAT(exceptions(), IsEmpty()) << "more than a tenth";
  resize(200);
  for (std::size_t i = 0; i < 10; ++i) need(i, 3000);
  EXPECT_EQ(exceptions().size(), 10U);
  need(10, 3000);
  EXPECT_THAT(exceptions(), IsEmpty()) << "no more than ten";
}

TEST_F(ArrayReportTest, ATaskThatDidNotCompleteOrWasShortMayRaiseButNeverLowers) {
  for (const char* state : {"FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"}) {
    resize(20);
    for (std::size_t i = 5; i < 20; ++i) {
      end(i, state);
      need(i, 1);
    }
    const auto memory = [&] { return report().suggest.at("memory_bytes").get<double>() / kMebi; };
    EXPECT_EQ(memory(), 1200) << state;
    need(19, 1400);
    EXPECT_EQ(memory(), 1680) << state;
    need(19, 1);
    for (std::size_t i = 2; i < 5; ++i) {
      end(i, state);
      need(i, 1);
    }
    EXPECT_EQ(memory(), 1200) << state << ": two that completed are not the exception";
  }
  resize(20);
  for (std::size_t i = 5; i < 20; ++i) {
    usage(i)["quality"]["status"] = "short";
    need(i, 1);
  }
  EXPECT_THAT(lines(), ElementsAre("#SBATCH --mem=1200M"));
  need(19, 1400);
  EXPECT_THAT(lines(), ElementsAre("#SBATCH --mem=1680M"));
}

TEST_F(ArrayReportTest, WithoutATaskThatCameToItsEndTheEventsOwnSuggestionsRemain) {
  for (std::size_t i = 0; i < 20; ++i) {
    end(i, "FAILED", "1:0");
    usage(i)["suggest"]["memory_bytes"] = 4000 * kMebi;  // what it had
    need(i, 1);
  }
  EXPECT_THAT(lines(), ElementsAre("#SBATCH --mem=4000M"));
  for (std::size_t i = 0; i < 20; ++i) usage(i).erase("suggest");
  EXPECT_TRUE(report().suggest.is_null());
}

TEST_F(ArrayReportTest, ATaskThatWasKilledForMemoryIsNamedWithWhatItsEventSuggests) {
  end(3, "OUT_OF_MEMORY", "0:125");
  usage(3)["suggest"]["memory_bytes"] = 8000 * kMebi;
  need(3, 990);
  EXPECT_THAT(exceptions(), ElementsAre("4711_3 --mem=8G"));
  for (std::size_t i = 4; i < 9; ++i) event(i) = event(3);
  for (std::size_t i = 4; i < 9; ++i) {
    event(i)["job"]["array"]["task_id"] = std::to_string(i);
    event(i)["job"]["id"] = std::to_string(5000 + i);
  }
  EXPECT_THAT(exceptions(), IsEmpty());
  EXPECT_THAT(lines(), ElementsAre("#SBATCH --mem=8G"));
}

TEST_F(ArrayReportTest, AKillCountsUntilTheTaskHasCompleted) {
  Json killed = task(4);
  killed["id"] = "another";
  killed["job"]["state"] = "OUT_OF_MEMORY";
  killed["usage"]["started_at"] = "2026-11-21T06:00:00Z";
  killed["usage"]["suggest"]["memory_bytes"] = 8000 * kMebi;
  events_.push_back(killed);
  EXPECT_THAT(exceptions(), IsEmpty());
  end(4, "FAILED", "1:0");
  EXPECT_THAT(exceptions(), ElementsAre("4711_4 --mem=8G"));
}

TEST_F(ArrayReportTest, LessTimeIsSuggestedIfTheLongestTaskHadFarTooMuch) {
  EXPECT_THAT(lines(), ElementsAre("#SBATCH --mem=1200M"));
  for (std::size_t i = 0; i < 20; ++i) {
    last(i, 1200);
    suggest_time(i, 1800);
  }
  EXPECT_THAT(lines(), ElementsAre("#SBATCH --mem=1200M", "#SBATCH --time=00:30:00"));
  last(3, 1500);
  suggest_time(3, 2280);
  EXPECT_THAT(lines(), ElementsAre("#SBATCH --mem=1200M", "#SBATCH --time=00:38:00"));
  end(7, "FAILED", "1:0");
  last(7, 1600);
  EXPECT_THAT(lines(), ElementsAre("#SBATCH --mem=1200M", "#SBATCH --time=00:40:00"))
      << "raised by one that failed";
  for (std::size_t i = 7; i < 10; ++i) {
    end(i, "FAILED", "1:0");
    last(i, 7000);
  }
  EXPECT_THAT(lines(), ElementsAre("#SBATCH --mem=1200M")) << "raised beyond what was asked for";
  for (std::size_t i = 7; i < 10; ++i) last(i, 1600);
  usage(3)["suggest"].erase("time_limit_seconds");
  EXPECT_THAT(lines(), ElementsAre("#SBATCH --mem=1200M"));
}

TEST_F(ArrayReportTest, ATaskThatNeedsFarMoreTimeThanIsSuggestedIsNamed) {
  for (std::size_t i = 0; i < 20; ++i) {
    last(i, 1200);
    suggest_time(i, 1800);
  }
  last(3, 3600);
  usage(3)["suggest"].erase("time_limit_seconds");
  EXPECT_THAT(lines(), ElementsAre("#SBATCH --mem=1200M", "#SBATCH --time=00:30:00"));
  EXPECT_THAT(exceptions(), ElementsAre("4711_3 --time=01:30:00"));
}

TEST_F(ArrayReportTest, TasksThatRanIntoTheirLimitRaiseIt) {
  for (std::size_t i = 0; i < 6; ++i) {
    end(i, "TIMEOUT");
    last(i, 7200);
  }
  EXPECT_THAT(lines(), ElementsAre("#SBATCH --mem=1200M", "#SBATCH --time=03:00:00"));
  EXPECT_THAT(exceptions(), IsEmpty());
  resize(20);
  end(3, "TIMEOUT");
  last(3, 7200);
  EXPECT_THAT(lines(), ElementsAre("#SBATCH --mem=1200M")) << "the others have enough";
  EXPECT_THAT(exceptions(), ElementsAre("4711_3 --time=03:00:00"));
  for (std::size_t i = 0; i < 20; ++i) usage(i).erase("memory");
  EXPECT_THAT(text(), HasSubstr("\nNext time, more for 4711_3 (--time=03:00:00)\n"));
}

TEST_F(ArrayReportTest, OneCpuIsSuggestedIfMostTasksNeedNoMoreAndNoneUsedMore) {
  for (std::size_t i = 0; i < 20; ++i) {
    usage(i)["cpu"]["efficiency_ratio"] = 0.125;
    if (i < 11) usage(i)["suggest"]["cpus"] = 1;
  }
  const auto cpus = [&] { return report().suggest.contains("cpus"); };
  EXPECT_TRUE(cpus());
  usage(19)["cpu"]["efficiency_ratio"] = 0.2;
  EXPECT_FALSE(cpus());
  usage(19)["cpu"]["efficiency_ratio"] = 0.125;
  usage(10)["suggest"].erase("cpus");
  EXPECT_FALSE(cpus()) << "only half of them";
}

TEST_F(ArrayReportTest, FewerGpusAreSuggestedOnlyIfNoTaskUsedThem) {
  for (std::size_t i = 0; i < 20; ++i) usage(i)["suggest"]["gpus"] = i == 5 ? 2 : 1;
  EXPECT_EQ(report().suggest.at("gpus"), 2U);
  usage(7)["suggest"].erase("gpus");
  EXPECT_FALSE(report().suggest.contains("gpus"));
}

TEST_F(ArrayReportTest, TheWordsAreThoseOfTheTasksSchedulerAndTheMemoryThatOfItsNodes) {
  for (std::size_t i = 0; i < 20; ++i) {
    usage(i)["request"]["nodes"] = 3;
    usage(i)["suggest"]["directives"] = {"#PBS -l mem=3600mb"};
  }
  EXPECT_THAT(lines(), ElementsAre("#PBS -l mem=3600mb"));
  need(3, 3000);
  EXPECT_THAT(text(), HasSubstr("But more for 4711_3 (-l mem=11gb)\n"));
}

TEST_F(ArrayReportTest, TheConditionThatMostTasksHaveIsSaid) {
  for (std::size_t i = 0; i < 5; ++i) usage(i)["suggest"]["condition"] = "the sun shines";
  usage(7)["suggest"]["condition"] = "the moon shines";
  EXPECT_EQ(report().suggest.at("condition"), "the sun shines");
}

// Whatever the tasks are like: no task that completed needs more than is suggested, or it is named.
TEST_F(ArrayReportTest, NoTaskThatIsNotNamedWouldBeKilledForFollowingTheSuggestion) {
  for (unsigned seed = 1; seed < 300; ++seed) {
    unsigned state = seed;
    const auto next = [&](unsigned below) {
      state = state * 1664525 + 1013904223;
      return (state >> 16) % below;
    };
    resize(static_cast<int>(2 + next(40)));
    for (std::size_t i = 0; i < events_.size(); ++i) {
      last(i, next(10) == 0 ? 1 + next(20000) : 1000 + next(500));
      need(i, next(10) == 0 ? 1 + next(20000) : 900 + next(200));
      if (next(3) == 0) suggest_time(i, 1800);
      if (next(6) == 0) end(i, "FAILED", "1:0");
      if (next(6) == 0) usage(i)["quality"]["status"] = "short";
    }
    const Json suggest = report().suggest;
    for (std::size_t i = 0; i < events_.size() && !suggest.is_null(); ++i) {
      const std::string name = "4711_" + std::to_string(i);
      Json allowed = suggest;
      for (const Json& one : suggest.at("exceptions")) {
        if (one.at("task") == name) allowed.update(one);
      }
      EXPECT_GE(allowed.value("memory_bytes", 1e18),
                usage(i)["memory"]["peak_node_bytes"].get<double>())
          << seed << " " << name;
      EXPECT_GE(allowed.value("time_limit_seconds", 1e18),
                usage(i)["elapsed_seconds"].get<double>())
          << seed << " " << name;
    }
  }
}

// ---- which jobs

TEST_F(ArrayReportTest, AnotherJobWithTheSameNumberIsNotATask) {
  Json other = task(30);
  other["user"]["name"] = "bob";
  events_.push_back(other);
  Json plain = task(31);
  plain["job"].erase("array");
  events_.push_back(plain);
  EXPECT_EQ(report().tasks, 20U);
  EXPECT_THAT(text(), HasSubstr("\n2 other jobs had this number; --json has all.\n"));
}

TEST_F(ArrayReportTest, LivesOfOneTaskAreNotAnArray) {
  const Json one = task(1);
  const Json two = task(2);
  EXPECT_FALSE(query::is_array(query::task_lives({{.event = &one}, {.event = &one}})));
  EXPECT_FALSE(query::is_array(query::task_lives({{.event = nullptr}})));
  EXPECT_TRUE(query::is_array(query::task_lives({{.event = &one}, {.event = &two}})));
}

TEST_F(ArrayReportTest, StrangeEventsHaveNoFigures) {
  for (const char* strange : {"3", "[]", R"({"suggest": [1], "findings": [3, {"id": []}]})",
                              R"({"memory": {"peak_node_bytes": 1e300}, "elapsed_seconds": -1})"}) {
    for (std::size_t i = 0; i < 20; ++i) usage(i) = Json::parse(strange);
    EXPECT_TRUE(report().suggest.is_null()) << strange;
    EXPECT_THAT(report().spreads, IsEmpty()) << strange;
    EXPECT_THAT(text(), HasSubstr("20 tasks")) << strange;
  }
}

TEST_F(ArrayReportTest, ItsJsonHasTheSameFigures) {
  need(3, 3000);
  end(5, "");
  const Json json = array_json(report());
  EXPECT_EQ(json.at("tasks"), 20);
  EXPECT_EQ(json.at("states"), Json::parse(R"({"COMPLETED": 19, "UNKNOWN": 1})"));
  const Json& memory = json.at("figures").at(1);
  EXPECT_EQ(memory.at("figure"), "peak_node_bytes");
  EXPECT_EQ(memory.at("most"), 3000 * kMebi);
  EXPECT_EQ(memory.at("histogram").at(9), 1);
  EXPECT_EQ(json.at("outliers").at(0).at("task"), "4711_3");
  EXPECT_EQ(json.at("suggest").at("exceptions").at(0).at("memory_bytes"), 3600 * kMebi);
}

}  // namespace
}  // namespace scriptorium::cli
