#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/text.h"
#include "core/cli/report_archive.h"
#include "core/cli/report_text.h"
#include "tests/core/cli/said.h"
#include "tests/support/temp_dir.h"
#include "tests/support/zone.h"

namespace scriptorium::cli {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::ordered_json;

Json block(const std::string& host) {
  return {{"host", {{"name", host}}},
          {"started_at", "2026-11-21T08:00:00.000000Z"},
          {"ended_at", "2026-11-21T10:00:00.000000Z"},
          {"elapsed_seconds", 7200.0},
          {"cpu", {{"time_seconds", 7200.0}, {"allocated", 2}, {"efficiency_ratio", 0.5}}},
          {"memory", {{"peak_working_set_bytes", 450887680}, {"limit_bytes", 2147483648}}},
          {"quality", {{"samples", 241}, {"last_read", "removal"}}}};
}

// Half of two CPUs for two hours, as the issue of a busy-half job has it.
Json job(const std::string& id = "4711") {
  return {{"schema", "scriptorium.event/1"},
          {"id", std::string(64 - id.size(), 'a') + id},
          {"kind", "usage.job"},
          {"time", "2026-11-21T07:59:00.000Z"},
          {"captured_at", "2026-11-21T10:00:02.000000Z"},
          {"capture", "cgroup2"},
          {"complete", true},
          {"cluster", "lab"},
          {"scheduler", "slurm"},
          {"host", {{"name", "n12"}}},
          {"job",
           {{"id", id},
            {"name", "md"},
            {"account", "chem"},
            {"partition", "batch"},
            {"state", "COMPLETED"},
            {"exit_code", "0:0"}}},
          {"user", {{"name", "alice"}, {"id", "1000"}, {"verified", true}}},
          {"usage",
           {{"elapsed_seconds", 7200.0},
            {"started_at", "2026-11-21T08:00:00.000Z"},
            {"ended_at", "2026-11-21T10:00:00.000Z"},
            {"source", {{"cpu", "cgroup2"}, {"memory", "cgroup2"}}},
            {"request",
             {{"nodes", 1},
              {"cpus", 2},
              {"memory_bytes", 2147483648},
              {"time_limit_seconds", 43200.0}}},
            {"cpu", {{"time_seconds", 7200.0}, {"allocated", 2}, {"efficiency_ratio", 0.5}}},
            {"memory",
             {{"peak_bytes", 450887680}, {"limit_bytes", 2147483648}, {"efficiency_ratio", 0.21}}},
            {"time", {{"efficiency_ratio", 0.1667}}},
            {"nodes", {block("n12")}},
            {"quality",
             {{"status", "ok"},
              {"nodes_reporting", 1},
              {"nodes_expected", 1},
              {"samples", 241},
              {"covered_ratio", 1.0}}},
            {"findings",
             {{{"id", "cpu_serial"},
               {"severity", "warning"},
               {"value", 1.0},
               {"unit", "count"},
               {"scope", "job"},
               {"text",
                "On average 1.00 CPUs were busy of 2: the program runs on one CPU at a time."}}}},
            {"suggest",
             {{"cpus", 1},
              {"memory_bytes", 541065216},
              {"directives", {"#SBATCH --cpus-per-task=1", "#SBATCH --mem=520M"}}}}}}};
}

Json node_event(const std::string& host) {
  Json node = job();
  node["id"] = std::string(63, 'b') + host.back();
  node["kind"] = "usage.node";
  node["host"]["name"] = host;
  node["usage"] = block(host);
  node["usage"].erase("host");
  return node;
}

// One CPU of two, from `minute` minutes after the job's start to an hour after that.
Json step(const std::string& name, int minute = 0) {
  return {{"name", name},
          {"started_at", "2026-11-21T08:" + std::to_string(10 + minute) + ":00.000000Z"},
          {"ended_at", "2026-11-21T09:" + std::to_string(10 + minute) + ":00.000000Z"},
          {"elapsed_seconds", 3600.0},
          {"cpu", {{"time_seconds", 3600.0}, {"allocated", 2}, {"efficiency_ratio", 0.5}}},
          {"memory",
           {{"peak_working_set_bytes", 450887680},
            {"peak_charged_bytes", 536870912},
            {"oom_kills", 0}}},
          {"last_read", "removal"}};
}

class ReportTest : public ::testing::Test {
 protected:
  ReportTest() { archive_ = own_.make_directory("archive"); }

  void keep(const Json& event, const std::string& name) {
    std::filesystem::create_directories(std::filesystem::path(archive_ + "/" + name).parent_path());
    own_.write("archive/" + name, event.dump(2) + "\n");
  }
  Said run(std::vector<std::string> words, bool colour = false) {
    words.insert(words.begin(), "report");
    if (file_.empty()) {
      words.insert(words.end(), {"--archive", archive_});
    } else {
      words.insert(words.end(), {"--config", file_});
    }
    return say(words, "", false, colour);
  }

  test::Zone zone_{test::kBerlin};
  test::TempDir own_;
  std::string archive_;
  std::string file_;
};

// ---- one job

TEST_F(ReportTest, AJobIsAScreenThatSaysWhatItUsedAndWhatToWriteNext) {
  keep(job(), "alice/2026/11/4711-md.usage.json");
  const Said said = run({"4711"});
  EXPECT_EQ(said.code, 0);
  EXPECT_EQ(said.err, "");
  EXPECT_EQ(
      said.out,
      "job 4711  md  COMPLETED\n"
      "  owner      alice, account chem, partition batch\n"
      "  ran        2 h 0 min of 12 h 0 min asked for, from 2026-11-21 09:00:00 CET, on n12\n"
      "  measured   by cgroup2, 241 readings, 100 % of the time seen\n"
      "\n"
      "  CPU        [############............]   50 %   1.00 of 2 CPUs busy on average\n"
      "  memory     [#####...................]   21 %   at most 430 MiB of 2.0 GiB\n"
      "  time       [####....................]   17 %   of the time limit\n"
      "\n"
      "Findings\n"
      "  warning  On average 1.00 CPUs were busy of 2: the program runs on one CPU at a time.\n"
      "           [cpu_serial]\n"
      "\n"
      "Next time\n"
      "  #SBATCH --cpus-per-task=1\n"
      "  #SBATCH --mem=520M\n");
}

TEST_F(ReportTest, ThePageOfTheSiteStandsBeneathItsFindingAndIsNotWrapped) {
  Json one = job();
  const std::string page = "https://hpc.example.org/" + std::string(100, 'a') + "/cpu_serial";
  one["usage"]["findings"][0]["help_url"] = page;
  keep(one, "4711-md.usage.json");
  EXPECT_THAT(run({"4711"}).out, HasSubstr("           [cpu_serial]\n           " + page + "\n\n"));
}

TEST_F(ReportTest, TheEnergyOfTheGpusIsSaidInTheUnitThatFits) {
  for (const auto& [joules, words] :
       {std::pair(4320000.0, "1.2 kWh"), std::pair(7200.0, "2 Wh"), std::pair(3599.0, "3599 J")}) {
    Json one = job();
    one["usage"]["gpu"] = {{"count", 4}, {"utilization_ratio", 0.8}, {"energy_joules", joules}};
    keep(one, "4711.usage.json");
    EXPECT_THAT(run({"4711"}).out,
                HasSubstr("  energy     " + std::string(words) + " by its GPUs\n"));
  }
}

TEST_F(ReportTest, ProgramsAreATableOfWhatTheyUsedAndOfWhatNobodySaw) {
  Json one = job();
  one["usage"]["programs"] = {{{"name", "python3"},
                               {"script", "train.py"},
                               {"cpu_seconds", 5400.0},
                               {"cpu_ratio", 0.75},
                               {"processes", 4},
                               {"threads", 36},
                               {"busy_threads", 4},
                               {"ranks", 4}},
                              {{"name", "bash"},
                               {"script", "slurm_script"},
                               {"cpu_seconds", 0.04},
                               {"cpu_ratio", 0},
                               {"processes", 1},
                               {"threads", 1}}};
  one["usage"]["programs_unseen"] = {{"cpu_seconds", 1799.96}, {"cpu_ratio", 0.25}};
  keep(one, "4711.usage.json");
  EXPECT_THAT(
      run({"4711"}).out,
      HasSubstr("\n"
                "PROGRAM                     CPU TIME  SHARE  PROCESSES  THREADS  BUSY  RANKS\n"
                "python3 train.py          1 h 30 min   75 %          4       36     4      4\n"
                "bash slurm_script              40 ms  0.0 %          1        1     -      -\n"
                "(not seen by a reading)  29 min 59 s   25 %\n"
                "\n"
                "Findings\n"));
  one["usage"]["programs"][0]["name"] = "\033[2J\nroot";
  keep(one, "4711.usage.json");
  EXPECT_THAT(run({"4711"}).out, AllOf(Not(HasSubstr("\033")), Not(HasSubstr("\nroot"))));
  for (int i = 0; i < 10; ++i) {
    Json more = one["usage"]["programs"][1];
    more["name"] = "p" + std::to_string(i);
    more["cpu_seconds"] = 10;
    one["usage"]["programs"].push_back(more);
  }
  keep(one, "4711.usage.json");
  EXPECT_THAT(run({"4711"}).out, AllOf(HasSubstr("p6 "), Not(HasSubstr("p7 ")),
                                       ContainsRegex("\\(other programs\\) +30\\.0 s +0\\.4 %")));
}

TEST_F(ReportTest, StepsAreATableInTheOrderOfTheirStart) {
  Json one = job();
  keep(one, "4711.usage.json");
  EXPECT_THAT(run({"4711"}).out, Not(HasSubstr("STEP"))) << "the job was its only step";

  Json batch = step("batch");
  batch["cpu"]["time_seconds"] = 0.25;
  batch["cpu"]["efficiency_ratio"] = 0;
  batch["memory"]["peak_working_set_bytes"] = 1048576;
  Json killed = step("1", 2);
  killed["memory"]["oom_kills"] = 2;
  killed["last_read"] = "sample";
  Json unmeasured = step("2", 3);
  unmeasured.erase("cpu");
  unmeasured.erase("memory");
  one["usage"]["steps"] = {batch, killed, step("0", 1), unmeasured};
  one["usage"]["steps_other"] = {{"steps", 16}, {"cpu_seconds", 12.5}};
  keep(one, "4711.usage.json");
  EXPECT_THAT(
      run({"4711"}).out,
      HasSubstr(
          "\n"
          "STEP              STARTED (CET)              RAN  CPUS            CPU TIME   CPU  PEAK "
          "MEMORY\n"
          "batch             2026-11-21 09:10:00  1 h 0 min     2              250 ms   0 %      "
          "1.0 MiB\n"
          "0                 2026-11-21 09:11:00  1 h 0 min     2           1 h 0 min  50 %      "
          "430 MiB\n"
          "1                 2026-11-21 09:12:00  1 h 0 min     2  at least 1 h 0 min  50 %      "
          "430 MiB  2 kills for memory\n"
          "2                 2026-11-21 09:13:00  1 h 0 min     -                   -     -        "
          "    -\n"
          "(16 other steps)                                                    12.5 s\n"
          "\n"
          "Findings\n"));
  one["usage"]["steps_other"] = {{"steps", 2}};
  keep(one, "4711.usage.json");
  EXPECT_THAT(run({"4711"}).out, ContainsRegex("\\(2 other steps\\) +-\n")) << "none was read";
  one["usage"]["steps_other"] = {{"steps", 1}, {"cpu_seconds", 12.5}};
  one["usage"]["steps"][0]["name"] = "\033[2J\nroot";
  one["usage"]["steps"][1]["started_at"] = "\033[2J\nroot";
  keep(one, "4711.usage.json");
  EXPECT_THAT(run({"4711"}).out, AllOf(HasSubstr("(1 other step) "), Not(HasSubstr("\033")),
                                       Not(HasSubstr("\nroot"))));
}

TEST_F(ReportTest, GpusOfStepsAreAColumnOfTheirMeanOverTheNodes) {
  for (const std::string host : {"n1", "n2"}) {
    Json node = node_event(host);
    Json first = step("0", 5);
    first["gpu"] = {{"count", host == "n1" ? 1 : 3},
                    {"utilization_ratio", host == "n1" ? 0.8 : 0.4}};
    Json second = step("1", 7);
    second["gpu"] = {{"count", 2}};
    if (host == "n1") second["gpu"]["utilization_ratio"] = 0.5;
    Json third = step("2", 9);
    if (host == "n2") third["gpu"] = {{"count", 1}, {"utilization_ratio", 0.3}};
    node["usage"]["steps"] = {first, second, third};
    keep(node, "4711.usage-node-" + host + ".json");
  }
  EXPECT_THAT(
      run({"4711"}).out,
      ContainsRegex("STEP .* CPU +GPU +PEAK MEMORY\n"
                    "0 .* 50 % +50 % +860 MiB\n1 .* 50 % +- +860 MiB\n2 .* 50 % +30 % +860 MiB\n"));
}

TEST_F(ReportTest, AStepOnSeveralNodesIsOneRowWithTheSumsOfItsNodes) {
  for (const std::string host : {"n1", "n2"}) {
    Json node = node_event(host);
    // Each node has one of its own, too.
    node["usage"]["steps"] = {step("0", 5), step(host == "n1" ? "1" : "2", host == "n1" ? 9 : 7)};
    keep(node, "4711.usage-node-" + host + ".json");
    if (host == "n1") continue;
    Json& wide = node["usage"]["steps"][0];
    wide["started_at"] = "2026-11-21T08:14:00.000000Z";  // a minute before n1
    wide["elapsed_seconds"] = 7200.0;
    wide["cpu"]["allocated"] = 4;
    wide["memory"]["oom_kills"] = 1;
    wide["last_read"] = "sample";
    node["usage"]["steps_other"] = {{"steps", 3}, {"cpu_seconds", 90.0}};
    keep(node, "4711.usage-node-n2.json");
  }
  // 7200 s of six CPUs' two hours.
  const std::string rows =
      "\n0 +2026-11-21 09:14:00 +2 h 0 min +6 +at least 2 h 0 min +17 % +860 MiB  1 kill for "
      "memory\n2 +2026-11-21 09:17:00 +1 h 0 min +2 +1 h 0 min +50 % +430 MiB\n1 +2026-11-21 "
      "09:19:00 [^\n]*\n\\(other steps\\) +1 min 30 s\n\n";
  EXPECT_THAT(run({"4711"}).out, AllOf(HasSubstr("no summary of the whole job"),
                                       ContainsRegex("STEP +STARTED" + ("[^\n]*" + rows))));
  Json summary = job();
  keep(summary, "4711.usage.json");
  EXPECT_THAT(run({"4711"}).out, ContainsRegex(rows)) << "as by accounting, which has no list";
  summary["usage"]["steps"] = {step("7")};
  keep(summary, "4711.usage.json");
  EXPECT_THAT(run({"4711"}).out, AllOf(ContainsRegex("\n7 +2026-11-21 09:10:00"),
                                       Not(HasSubstr("2026-11-21 09:14:00"))));
}

TEST_F(ReportTest, AFigureThatOneNodeDidNotMeasureIsNotThatOfTheStep) {
  for (const std::string host : {"n1", "n2"}) {
    Json node = node_event(host);
    node["usage"]["steps"] = {step("0")};
    if (host == "n2") node["usage"]["steps"][0]["cpu"].erase("time_seconds");
    if (host == "n2") node["usage"]["steps"][0].erase("memory");
    keep(node, "4711.usage-node-" + host + ".json");
  }
  EXPECT_THAT(run({"4711"}).out,
              ContainsRegex("\n0 +2026-11-21 09:10:00 +1 h 0 min +4 +- +- +-\n"));
}

TEST_F(ReportTest, OfTheStepsOfManyNodesThoseWithMostCpuTimeAreShown) {
  for (int host = 0; host < 2; ++host) {
    Json node = node_event("n" + std::to_string(host));
    for (int i = 0; i < 17; ++i) {
      Json one = step(std::to_string(17 * host + i), i);
      one["cpu"]["time_seconds"] = i == 3 ? 1.0 : 100.0;
      node["usage"]["steps"].push_back(one);
    }
    keep(node, "4711.usage-node-n" + std::to_string(host) + ".json");
  }
  const std::string out = run({"4711"}).out;
  EXPECT_THAT(out, AllOf(HasSubstr("\n0 "), HasSubstr("\n33 "), Not(HasSubstr("\n3 ")),
                         Not(HasSubstr("\n20 ")), ContainsRegex("\\(other steps\\) +2\\.0 s\n")));
}

TEST_F(ReportTest, ColoursAreUsedOnlyWhereAskedFor) {
  keep(job(), "4711-md.usage.json");
  EXPECT_THAT(run({"4711"}).out, Not(HasSubstr("\033")));
  EXPECT_THAT(run({"4711"}, true).out, HasSubstr("\033[33mwarning"));
}

TEST_F(ReportTest, WhatUsersTypedCannotMoveTheCursorOrForgeALine) {
  Json hostile = job();
  hostile["job"]["name"] = "x\033[2J\n  owner      root\xe2\x80\xae";
  hostile["user"]["name"] = "al\rice";
  hostile["usage"]["findings"][0]["text"] = "a\033]0;title\007b";
  hostile["usage"]["findings"][0]["help_url"] = "https://x/\033[2J\n  owner      root";
  hostile["usage"]["suggest"]["directives"] = {"#SBATCH --mem=1G\nrm -rf /"};
  hostile["usage"]["nodes"] = {block("n\0331"), block("n2")};
  keep(hostile, "4711.usage.json");
  const Said said = run({"4711"});
  EXPECT_EQ(said.code, 0);
  EXPECT_THAT(said.out, Not(HasSubstr("\033")));
  EXPECT_THAT(said.out, Not(HasSubstr("\r")));
  EXPECT_THAT(said.out, Not(HasSubstr("\n  owner      root")));
  EXPECT_THAT(said.out, Not(HasSubstr("\nrm -rf")));
  EXPECT_THAT(run({"--since", "2026-11-01"}).out, Not(HasSubstr("\033")));
}

TEST_F(ReportTest, ShortPartialAndUnseenJobsAreSaidToBeSo) {
  Json brief = job();
  brief["usage"]["quality"]["status"] = "short";
  brief["usage"]["findings"] = Json::array();
  brief["usage"].erase("suggest");
  keep(brief, "4711.usage.json");
  EXPECT_THAT(run({"4711"}).out,
              AllOf(HasSubstr("too short to judge"), Not(HasSubstr("No findings"))));

  Json parts = job("4712");
  parts["usage"]["quality"] = {
      {"status", "partial"}, {"nodes_reporting", 1}, {"nodes_expected", 4}};
  parts["usage"]["cpu"].erase("efficiency_ratio");
  parts["usage"]["memory"].erase("efficiency_ratio");
  parts["usage"]["suggest"]["condition"] = "the 3 nodes that were not measured needed no more";
  keep(parts, "4712.usage.json");
  EXPECT_THAT(
      run({"4712"}).out,
      AllOf(HasSubstr("only 1 of 4 nodes measured"),
            HasSubstr("CPU        at least 2 h 0 min of CPU time; it had 2 CPUs"),
            HasSubstr("memory     at least 430 MiB; it had 2.0 GiB"),
            HasSubstr("Next time, if the 3 nodes that were not measured needed no more\n")));
  parts["usage"]["quality"] = {
      {"status", "partial"}, {"nodes_reporting", 1}, {"last_read", "accounting"}};
  keep(parts, "4712.usage.json");
  EXPECT_THAT(run({"4712"}).out, HasSubstr("it is not known how many nodes it had, so"));

  Json doubtful = job("4714");
  doubtful["usage"]["source"] = {{"cpu", "accounting"}};
  doubtful["usage"]["memory"].erase("peak_bytes");
  doubtful["usage"]["memory"].erase("efficiency_ratio");
  doubtful["usage"]["gpu"] = {{"peak_utilization_ratio", 0.65}};
  doubtful["usage"]["request"]["gpus"] = 2;
  doubtful["usage"]["quality"] = {
      {"status", "accounting"},
      {"not_credible",
       {{{"figure", "memory.peak_bytes"}, {"value", 4e10}, {"text", "Too much."}}}}};
  keep(doubtful, "4714.usage.json");
  EXPECT_THAT(run({"4714"}).out,
              AllOf(HasSubstr("by the scheduler's accounting only\n"),
                    HasSubstr("memory     no data\n"), HasSubstr("not used   Too much.\n"),
                    HasSubstr("GPU        by accounting at most 65 % busy, of 2 GPUs\n")));

  Json unseen = job("4713");
  unseen["usage"] = {{"elapsed_seconds", 3.0},
                     {"quality", {{"status", "none"}, {"nodes_reporting", 0}}},
                     {"findings", Json::array()}};
  keep(unseen, "4713.usage.json");
  const std::string out = run({"4713"}).out;
  EXPECT_THAT(out, HasSubstr("no data: this job was not observed"));
  EXPECT_THAT(out, HasSubstr("CPU        no data"));
  EXPECT_THAT(out, Not(HasSubstr("0 %"))) << "nothing that was not measured is 0";

  Json good = job("4714");
  good["usage"]["findings"] = Json::array();
  keep(good, "4714.usage.json");
  EXPECT_THAT(run({"4714"}).out, HasSubstr("No findings."));
}

TEST_F(ReportTest, NodesOfAnAccountedJobTellOfThemselves) {
  Json wide = job();
  wide["capture"] = "accounting";
  wide["usage"].erase("nodes");
  wide["usage"]["request"]["nodes"] = 2;
  wide["usage"]["quality"] = {
      {"status", "accounting"}, {"nodes_reporting", 0}, {"nodes_expected", 2}};
  keep(wide, "alice/2026/11/4711-md.usage.json");
  for (const std::string host : {"n1", "n2"}) {
    Json node = node_event(host);
    node["usage"]["programs"] = {
        {{"name", "mpi"}, {"cpu_seconds", 3600.0}, {"processes", 2}, {"threads", 2}, {"ranks", 2}}};
    node["usage"]["programs"][0]["busy_threads"] = host == "n1" ? 1 : 2;
    keep(node, "alice/2026/12/4711-_none.usage-node-" + host + ".json");
  }
  Json earlier = job();  // of the life before a requeue
  earlier["kind"] = "usage.node";
  earlier["id"] = std::string(64, 'c');
  earlier["host"]["name"] = "n3";
  earlier["usage"] = {{"started_at", "2026-11-20T08:00:00Z"}, {"ended_at", "2026-11-20T09:00:00Z"}};
  keep(earlier, "alice/2026/11/4711-_none.usage-node-n3.json");

  const std::string out = run({"4711"}).out;
  EXPECT_THAT(out, HasSubstr("by the scheduler's accounting only"));
  EXPECT_THAT(out, ContainsRegex("NODE +CPU +PEAK MEMORY"));
  EXPECT_THAT(out, ContainsRegex("n1 +50 % +430 MiB"));
  EXPECT_THAT(out, ContainsRegex("n2 +50 %"));
  EXPECT_THAT(out, ContainsRegex("mpi +2 h 0 min +50 % +4 +4 +3 +4\n"));
  EXPECT_THAT(out, Not(HasSubstr("n3")));
  const Json all = Json::parse(run({"4711", "--json"}).out);
  ASSERT_EQ(all["jobs"].size(), 1U);
  EXPECT_EQ(all["jobs"][0]["event"]["id"], wide["id"]);
  EXPECT_EQ(all["jobs"][0]["nodes"].size(), 2U);
}

TEST_F(ReportTest, WithoutASummaryTheNodesAreShownAndNothingIsJudged) {
  Json node = job();
  node["kind"] = "usage.node";
  node["usage"] = block("n12");
  keep(node, "4711.usage-node-n12.json");
  const Said said = run({"4711"});
  EXPECT_EQ(said.code, 0);
  EXPECT_THAT(said.out,
              AllOf(HasSubstr("no summary of the whole job"), ContainsRegex("n12 +50 %")));
}

TEST_F(ReportTest, AJobThatRanTwiceIsShownAsItRanLast) {
  keep(job(), "4711.usage.json");
  Json later = job();
  later["id"] = std::string(64, 'd');
  later["usage"]["started_at"] = "2026-11-22T08:00:00.000Z";
  later["job"]["state"] = "FAILED";
  keep(later, "4711.2.usage.json");
  const std::string out = run({"4711"}).out;
  EXPECT_THAT(out, AllOf(HasSubstr("FAILED"), HasSubstr("last of 2 times")));
  EXPECT_EQ(Json::parse(run({"4711", "--json"}).out)["jobs"].size(), 2U);
}

TEST_F(ReportTest, AnArrayIsOneReportAndATaskAScreen) {
  for (int task = 0; task < 3; ++task) {
    Json one = job(std::to_string(4800 + task));
    one["job"]["array"] = {{"job_id", "4800"}, {"task_id", std::to_string(task)}};
    keep(one, std::to_string(4800 + task) + ".usage.json");
  }
  EXPECT_THAT(run({"4800"}).out,
              AllOf(HasSubstr("array 4800  md  3 tasks\n"), HasSubstr("  #SBATCH --mem=520M\n")));
  const Json all = Json::parse(run({"4800", "--json"}).out);
  EXPECT_EQ(all["jobs"].size(), 3U);
  EXPECT_EQ(all["array"]["tasks"], 3);
  EXPECT_FALSE(Json::parse(run({"4800_1", "--json"}).out).contains("array"));
  EXPECT_THAT(run({"4800_1"}).out, HasSubstr("job 4801 (4800_1)"));
  EXPECT_EQ(run({"4800_7"}).code, 66);
}

TEST_F(ReportTest, AJobOfWhichNothingIsKnownIsSaidNotToBeKnown) {
  keep(job("47110"), "47110-md.usage.json");
  const Said said = run({"4711"});
  EXPECT_EQ(said.code, 66);
  EXPECT_EQ(said.out, "");
  EXPECT_THAT(said.err, HasSubstr("no data on what job 4711 used"));
}

TEST_F(ReportTest, WhatIsNoRecordOfUsageIsPassedOver) {
  own_.write("archive/4711-usage.sh", "#!/bin/sh\n");
  own_.write("archive/4711-x.usage.json", "not JSON");
  own_.write("archive/4711-y.usage.json", R"({"kind":"usage.job","job":"4711","usage":[]})");
  own_.write("archive/.4711.usage.json.tmp-0123abcd-89abcdef.7", job().dump());
  Json script = job();
  script["kind"] = "job.script";
  keep(script, "4711-usage.json");
  std::filesystem::create_symlink("/dev/zero", archive_ + "/4711-z.usage.json");
  ASSERT_EQ(::mkfifo((archive_ + "/4711-p.usage.json").c_str(), 0600), 0);
  EXPECT_EQ(run({"4711"}).code, 66);
  std::filesystem::create_directory_symlink(archive_, archive_ + "/loop");
  keep(job(), "4711.usage.json");
  EXPECT_EQ(Json::parse(run({"4711", "--json"}).out)["jobs"].size(), 1U);
}

// ---- many jobs

TEST_F(ReportTest, TheTableIsSortedByWaste) {
  Json small = job("1");
  small["usage"]["elapsed_seconds"] = 60.0;
  Json large = job("2");
  large["usage"]["cpu"]["allocated"] = 64;
  Json dear = job("3");
  dear["usage"]["gpu"] = {{"count", 8}, {"utilization_ratio", 0.0}};
  keep(small, "1.usage.json");
  keep(large, "2.usage.json");
  keep(dear, "3.usage.json");
  const Json all = Json::parse(run({"--user", "alice", "--json"}).out);
  std::vector<std::string> ids;
  for (const Json& row : all["jobs"]) ids.push_back(row["id"]);
  EXPECT_THAT(ids, ElementsAre("3", "2", "1"));
  EXPECT_DOUBLE_EQ(all["jobs"][1]["wasted_core_hours"].get<double>(), 64.0);
  EXPECT_DOUBLE_EQ(all["jobs"][0]["wasted_gpu_hours"].get<double>(), 16.0);
  const std::string out = run({"--user", "alice"}).out;
  EXPECT_THAT(out, ContainsRegex("JOB +USER +NAME"));
  EXPECT_LT(out.find("\n3 "), out.find("\n2 "));
  EXPECT_THAT(out, HasSubstr("3 jobs left unused 66.0 core hours, 16.0 GPU hours"));
  EXPECT_THAT(run({"--user", "alice", "--limit", "1"}).out,
              HasSubstr("and 2 more; --limit 0 shows all"));
}

TEST_F(ReportTest, TimesAreThoseOfTheReadersZoneAndSaySo) {
  Json summer = job("1");
  summer["usage"]["ended_at"] = "2026-10-25T00:30:00Z";
  keep(summer, "1.usage.json");
  const std::vector<std::string> since{"--since", "2026-10-25"};
  EXPECT_THAT(run(since).out, AllOf(HasSubstr("ENDED (CEST) "), HasSubstr("2026-10-25 02:30:00 ")));
  Json winter = job("2");
  winter["usage"]["ended_at"] = "2026-10-25T01:30:00Z";
  winter["usage"]["started_at"] = "2026-11-21T08:00:01Z";
  keep(winter, "2.usage.json");
  EXPECT_THAT(run(since).out, AllOf(HasSubstr("ENDED  "), HasSubstr("2026-10-25 02:30:00 CEST "),
                                    HasSubstr("2026-10-25 02:30:00 CET ")));
  EXPECT_THAT(run({"--since", "2026-10-25", "--limit", "1"}).out, HasSubstr("ENDED (CE"))
      << "of what is shown";
  EXPECT_THAT(run({"--since", "2026-10-25", "--family"}).out, HasSubstr("ENDED (CET)"));
  EXPECT_EQ(Json::parse(run({"--since", "2026-10-25T02:30:01+01:00", "--json"}).out)["jobs"].size(),
            0U);
  EXPECT_EQ(Json::parse(run({"--since", "2026-10-25", "--json"}).out)["jobs"][0]["ended_at"],
            "2026-10-25T00:30:00Z")
      << "in UTC for programs";
}

TEST_F(ReportTest, AUserIsFoundByNameAndByNumberAndAPeriodByTheEndOfJobs) {
  keep(job("1"), "1.usage.json");
  Json other = job("2");
  other["user"] = {{"name", "bob"}, {"id", "1001"}, {"verified", true}};
  other["usage"]["ended_at"] = "2026-11-01T10:00:00.000Z";
  keep(other, "2.usage.json");
  const auto ids = [&](const std::vector<std::string>& words) {
    auto with_json = words;
    with_json.emplace_back("--json");
    std::vector<std::string> result;
    const Said said = run(with_json);
    if (said.code != 0) return std::vector{said.err};
    const Json all = Json::parse(said.out);
    for (const Json& row : all["jobs"]) result.push_back(row["id"]);
    std::sort(result.begin(), result.end());
    return result;
  };
  EXPECT_THAT(ids({"--user", "bob"}), ElementsAre("2"));
  EXPECT_THAT(ids({"--user", "1000"}), ElementsAre("1"));
  EXPECT_THAT(ids({"--user", "carol"}), IsEmpty());
  EXPECT_THAT(ids({"--since", "2026-11-01"}), ElementsAre("1", "2"));
  EXPECT_THAT(ids({"--since", "2026-11-01T10:00:01Z"}), ElementsAre("1"));
  EXPECT_THAT(ids({"--since", "2026-11-01T11:00:01+01:00"}), ElementsAre("1"));
  EXPECT_THAT(ids({"--since", "2026-11-01T11:00:01"}), ElementsAre("1"));
  EXPECT_THAT(ids({"--since", "2026-11-01T11:00:00"}), ElementsAre("1", "2"));
  EXPECT_THAT(ids({"--since", "999999d"}), ElementsAre("1", "2"));
}

TEST_F(ReportTest, FilesThatWereWrittenBeforeAreNotOpened) {
  keep(job("1"), "1.usage.json");
  keep(job("2"), "2.usage.json");
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(240);
  std::filesystem::last_write_time(archive_ + "/1.usage.json", old);
  std::vector<std::string> read;
  const Timestamp since{system_clock().now().nanoseconds - std::int64_t{86400} * 1'000'000'000};
  const auto counts =
      walk_records({.root = archive_, .since = since},
                   [&](const std::string& path, const std::string&) { read.push_back(path); });
  ASSERT_TRUE(counts);
  EXPECT_THAT(read, ElementsAre(archive_ + "/2.usage.json"));
}

TEST_F(ReportTest, ModulesAreThoseOfTheScriptsHoweverOldTheseAre) {
  keep(job("4711"), "4711-md.usage.json");
  keep(job("4712"), "4712-md.usage.json");
  Json script = job("4711");
  script["id"] = std::string(64, 'b');
  script["kind"] = "job.script";
  script.erase("usage");
  script["script"] = {{"modules", {"GROMACS/2024.2"}}};
  keep(script, "4711-disk-usage.json");  // a script's name is not enough to take it for a record
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(200'000);
  std::filesystem::last_write_time(archive_ + "/4711-disk-usage.json", old);
  const Said said = run({"--by", "module", "--since", "2026-11-20", "--json"});
  ASSERT_EQ(said.code, 0) << said.err;
  std::map<std::string, int> jobs;
  const Json all = Json::parse(said.out);
  for (const Json& row : all["rows"]) jobs[row["module"]] = row["jobs"];
  EXPECT_THAT(jobs, ElementsAre(std::pair("(none)", 1), std::pair("GROMACS/2024.2", 1)));
  EXPECT_THAT(said.err, HasSubstr("1 job has no script in the file tree"));
}

// ---- the command line, the configuration

TEST_F(ReportTest, WrongLinesAreRefusedWithTheReason) {
  EXPECT_EQ(run({}).code, 64);
  EXPECT_THAT(run({}).err, HasSubstr("JOB, --user, --since, --by or --mail"));
  EXPECT_THAT(run({"--user", "alice", "--user", "bob"}).err, HasSubstr("--mail"));
  EXPECT_EQ(run({"4711", "--user", "alice"}).code, 64);
  EXPECT_EQ(run({"--user", "alice", "--jobstats"}).code, 64);
  const Said since = run({"--since", "soon"});
  EXPECT_EQ(since.code, 64);
  EXPECT_THAT(since.err, HasSubstr("7d"));
}

TEST_F(ReportTest, TheTreesOfTheConfigurationsSinksAreRead) {
  keep(job(), "alice/4711.usage.json");
  const std::string begin = "cluster = \"lab\"\nstate_dir = \"" + own_.path() +
                            "/state\"\n[source.replay]\nfolder = \"/nonexistent\"\n";
  file_ =
      own_.write("scriptorium.toml", begin + "[sink.archive]\nplugin = \"file\"\nroot = \"" +
                                         archive_ + "\"\nkinds = [\"job.script\", \"usage.*\"]\n");
  EXPECT_EQ(run({"4711"}).code, 0);
  EXPECT_EQ(run({"--by", "module"}).code, 0);
  own_.write("scriptorium.toml", begin + "[sink.archive]\nplugin = \"file\"\nroot = \"" + archive_ +
                                     "\"\nkinds = [\"usage.*\"]\n");
  EXPECT_EQ(run({"4711"}).code, 0);
  const Said without_scripts = run({"--by", "module"});
  EXPECT_EQ(without_scripts.code, 78);
  EXPECT_THAT(without_scripts.err, HasSubstr("no sink keeps the scripts where a report can read"));
  own_.write("scriptorium.toml",
             begin + "[sink.archive]\nplugin = \"file\"\nroot = \"" + archive_ + "\"\n");
  const Said said = run({"4711"});
  EXPECT_EQ(said.code, 78);
  EXPECT_THAT(said.err, AllOf(HasSubstr("no sink keeps usage.job where a report can read it"),
                              HasSubstr("usage.*"), HasSubstr("--archive")));
}

TEST_F(ReportTest, AnArchiveThatIsNotThereIsSaid) {
  archive_ += "/nowhere";
  const Said said = run({"4711"});
  EXPECT_EQ(said.code, 69);
  EXPECT_THAT(said.err, HasSubstr("nowhere: no such file"));
}

// ---- jobstats' form

TEST_F(ReportTest, JobstatsFormIsAGzipOfItsJson) {
  Json one = job();
  one["usage"]["nodes"][0]["gpus"] = {{{"id", "GPU-1"},
                                       {"index", 3},
                                       {"utilization", {{"avg_ratio", 0.987}}},
                                       {"peak_memory_bytes", 1000},
                                       {"memory_limit_bytes", 2000}}};
  keep(one, "4711.usage.json");
  const Said said = run({"4711", "--jobstats"});
  ASSERT_EQ(said.code, 0);
  ASSERT_THAT(said.out, ::testing::StartsWith("JS1:"));
  const std::string file =
      own_.write("js1", base64_decode(said.out.substr(4, said.out.size() - 5)).value());
  FILE* gzip = ::popen(("gzip -dc < '" + file + "'").c_str(), "r");
  ASSERT_NE(gzip, nullptr);
  std::string text(4096, '\0');
  text.resize(::fread(text.data(), 1, text.size(), gzip));
  ASSERT_EQ(::pclose(gzip), 0);
  EXPECT_EQ(
      Json::parse(text),
      Json::parse(
          R"({"nodes":{"n12":{"total_memory":2147483648,"used_memory":450887680,"total_time":7200.0,"cpus":2,
                            "gpu_total_memory":{"3":2000},"gpu_used_memory":{"3":1000},"gpu_utilization":{"3":98.7}}},
                            "total_time":7200,"gpus":1})"));
  one["usage"]["quality"]["status"] = "short";
  keep(one, "4711.usage.json");
  EXPECT_EQ(run({"4711", "--jobstats"}).out, "JS1:Short\n");

  Json part = job("4712");
  part["usage"]["request"]["nodes"] = 2;
  keep(part, "4712.usage.json");
  EXPECT_EQ(run({"4712", "--jobstats"}).out, "JS1:None\n") << "one of two nodes";
}

}  // namespace
}  // namespace scriptorium::cli
