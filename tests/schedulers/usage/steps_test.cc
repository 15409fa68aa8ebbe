#include "schedulers/usage/steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "schedulers/usage/accounting.h"
#include "schedulers/usage/job_events.h"

// Figures of steps that are used for their job, by what sacct prints of them.
namespace scriptorium::usage {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;
using Fields = std::map<std::string, std::string>;

// Rows of sacct: two hours in which a job of 4 CPUs and 16 GiB ran, unless the fields say
// otherwise.
class Accounting {
 public:
  Accounting& job(Fields fields) {
    id_ = fields.contains("JobIDRaw") ? fields["JobIDRaw"] : "1";
    job_ = {{"JobIDRaw", id_},
            {"JobID", id_},
            {"UID", "1001"},
            {"User", "bob"},
            {"Submit", "2026-11-21T08:00:00"},
            {"Start", "2026-11-21T08:00:00"},
            {"End", "2026-11-21T10:00:00"},
            {"ElapsedRaw", "7200"},
            {"TimelimitRaw", "UNLIMITED"},
            {"State", "COMPLETED"},
            {"NNodes", "1"},
            {"AllocTRES", "cpu=4,mem=16G,node=1"},
            {"TotalCPU", "07:50:00"},
            {"UserCPU", "07:50:00"},
            {"SystemCPU", "00:00:00"}};
    fields.merge(job_);
    job_ = fields;
    return row(fields);
  }
  // As long as the job, one task on one node, with all of its CPU time.
  Accounting& step(const std::string& name, Fields fields) {
    fields.insert({"JobIDRaw", id_ + "." + name});
    fields.insert({"NNodes", "1"});
    fields.insert({"NTasks", fields["NNodes"]});
    for (const char* same : {"Start", "End", "TotalCPU"}) fields.insert({same, job_[same]});
    return row(fields);
  }

  JobView view() const {
    auto jobs = parse_sacct(text_, "@");
    EXPECT_TRUE(jobs) << jobs.error().message();
    EXPECT_EQ(jobs->size(), 1U);
    return jobs->front().view;
  }
  // The event's "usage".
  Json usage() const {
    return Json::parse(job_event("lab", "slurm", view(), {}).extra_json)["usage"];
  }

 private:
  Accounting& row(const Fields& fields) {
    std::istringstream names(sacct_arguments("@", {}, {}).back());
    for (std::string name; std::getline(names, name, ',');)
      text_ += (fields.contains(name) ? fields.at(name) : "") + "@";
    text_ += "\n";
    return *this;
  }

  std::string id_, text_;
  Fields job_;
};

std::vector<std::string> findings(const Json& usage) {
  std::vector<std::string> ids;
  for (const Json& found : usage["findings"]) ids.push_back(found["id"]);
  return ids;
}
// What the next job is told to ask for; "" for nothing.
std::string memory_to_ask_for(const Json& usage) {
  if (!usage.contains("suggest")) return "";
  for (const Json& line : usage["suggest"]["directives"]) {
    if (const auto text = line.get<std::string>(); text.starts_with("#SBATCH --mem=")) return text;
  }
  return "";
}

// ---- which nodes

// troycomi/reportseff#37: MPI that was started without srun is seen on the first node alone.
TEST(StepsTest, AStepOnOneOfTwentyNodesIsNotTakenForTheJob) {
  Accounting sacct;
  sacct
      .job({{"NNodes", "20"},
            {"AllocTRES", "cpu=720,mem=3836920M,node=20"},
            {"TotalCPU", "2-23:00:00"}})
      .step("batch", {{"MaxRSS", "33824748K"}, {"TRESUsageInTot", "cpu=2-23:00:00,mem=33824748K"}})
      .step("extern", {{"NNodes", "20"}, {"MaxRSS", "1000K"}, {"TotalCPU", "00:00.005"}});
  const Json usage = sacct.usage();
  EXPECT_EQ(usage["quality"]["status"], "partial");
  EXPECT_EQ(usage["quality"]["nodes_reporting"], 1);
  EXPECT_EQ(usage["quality"]["covered_ratio"], 0.05);
  EXPECT_THAT(findings(usage), IsEmpty());
  EXPECT_FALSE(usage["cpu"].contains("efficiency_ratio")) << "71 h of one node, not of 1,440";
  EXPECT_FALSE(usage["memory"].contains("efficiency_ratio"));
  EXPECT_EQ(memory_to_ask_for(usage), "#SBATCH --mem=39G") << "not a twentieth of it";
  EXPECT_EQ(usage["suggest"]["condition"], "the 19 nodes that were not measured needed no more");
}

TEST(StepsTest, MemoryIsOfTheNodesThatAStepRanOn) {
  Accounting sacct;
  sacct.job({{"NNodes", "4"}, {"AllocTRES", "cpu=16,mem=64G,node=4"}, {"TotalCPU", "1-06:00:00"}})
      .step("batch", {{"MaxRSS", "12G"}, {"TRESUsageInTot", "cpu=00:10:00,mem=12G"}})
      .step("0",
            {{"NNodes", "4"}, {"MaxRSS", "500M"}, {"TRESUsageInTot", "cpu=1-05:50:00,mem=2G"}});
  const Json usage = sacct.usage();
  EXPECT_EQ(usage["quality"]["status"], "accounting");
  EXPECT_EQ(usage["memory"]["peak_bytes"], 14ULL << 30U) << "12 and 4 times 0.5";
  EXPECT_EQ(memory_to_ask_for(usage), "#SBATCH --mem=15G") << "1.2 times 12.5: on the first node";
  EXPECT_FALSE(usage["suggest"].contains("condition"));
}

TEST(StepsTest, OfUnevenTasksTheFullestNodeCounts) {
  const auto with = [](const std::string& largest) {
    Accounting sacct;
    sacct.job({{"NNodes", "2"}, {"AllocTRES", "cpu=4,mem=32G,node=2"}})
        .step(
            "0",
            {{"NNodes", "2"}, {"NTasks", "4"}, {"MaxRSS", largest}, {"TRESUsageInTot", "mem=10G"}});
    return *sacct.view().totals.peak_node_bytes;
  };
  EXPECT_EQ(with("2560M"), 5ULL << 30U) << "four alike, two on each node";
  EXPECT_EQ(with("7G"), 10ULL << 30U) << "7 and any other: at most all of them";
}

TEST(StepsTest, StepsBesideEachOtherOnOtherNodesDoNotShareMemory) {
  Accounting sacct;
  sacct.job({{"NNodes", "2"}, {"AllocTRES", "cpu=4,mem=32G,node=2"}})
      .step("0", {{"NodeList", "n[1-1]"}, {"MaxRSS", "8G"}})
      .step("1", {{"NodeList", "n2"}, {"MaxRSS", "9G"}});
  const JobView job = sacct.view();
  EXPECT_EQ(job.totals.peak_memory_bytes, 17ULL << 30U);
  EXPECT_EQ(job.totals.peak_node_bytes, 9ULL << 30U);
  EXPECT_EQ(job.nodes_measured, 2U);
}

// --mem-per-cpu with more CPUs on one node than on the other.
TEST(StepsTest, ANodeThatHadMoreThanTheOtherIsNotCutToTheMean) {
  Accounting sacct;
  sacct.job({{"NNodes", "2"}, {"AllocTRES", "cpu=10,mem=10G,node=2"}})
      .step("0", {{"NodeList", "n1"}, {"MaxRSS", "7G"}})
      .step("1", {{"NodeList", "n2"}, {"MaxRSS", "1G"}});
  EXPECT_EQ(sacct.view().totals.peak_node_bytes, 7ULL << 30U);
}

// ---- which time

// troycomi/reportseff#73
TEST(StepsTest, StepsThatRanAtTheSameTimeAddUp) {
  Accounting sacct;
  sacct.job({{"AllocTRES", "cpu=10,mem=32G,node=1"}, {"TotalCPU", "19:50:00"}})
      .step("batch", {{"MaxRSS", "20M"}, {"TRESUsageInTot", "mem=20M"}});
  for (int i = 0; i < 10; ++i)
    sacct.step(std::to_string(i),
               {{"MaxRSS", "3000M"}, {"TRESUsageInTot", "cpu=01:59:00,mem=3000M"}});
  const Json usage = sacct.usage();
  EXPECT_EQ(usage["memory"]["peak_bytes"], 30020ULL << 20U);
  EXPECT_EQ(usage["memory"]["efficiency_ratio"], 0.9161);
  EXPECT_THAT(findings(usage), IsEmpty());
  EXPECT_EQ(memory_to_ask_for(usage), "#SBATCH --mem=36G");
  EXPECT_EQ(usage["cpu"]["efficiency_ratio"], 0.9917) << "each step claims all of the job's time";
}

TEST(StepsTest, StepsThatFollowEachOtherDoNotAddUp) {
  Accounting sacct;
  sacct.job({})
      .step("batch", {{"MaxRSS", "1G"}, {"TotalCPU", "00:01:00"}})
      .step("0", {{"MaxRSS", "4G"}, {"End", "2026-11-21T09:00:00"}, {"TotalCPU", "04:00:00"}})
      .step("1", {{"MaxRSS", "6G"}, {"Start", "2026-11-21T09:00:00"}, {"TotalCPU", "03:49:00"}})
      .step("2", {{"MaxRSS", "2G"},
                  {"Start", "2026-11-21T09:30:00"},
                  {"End", "2026-11-21T09:30:00"},
                  {"TotalCPU", "00:00:00.5"}});
  EXPECT_EQ(sacct.view().totals.peak_memory_bytes, 7ULL << 30U) << "the script and the larger";
}

TEST(StepsTest, WhatRanOutsideOfAllStepsIsNotTakenForIdle) {
  Accounting sacct;
  sacct
      .job({{"TotalCPU", "00:10:00"}})  // of an salloc: what ssh starts is in no step
      .step("0", {{"MaxRSS", "1G"}, {"End", "2026-11-21T08:30:00"}});
  const Json usage = sacct.usage();
  EXPECT_EQ(usage["quality"]["status"], "partial");
  EXPECT_EQ(usage["quality"]["covered_ratio"], 0.25);
  EXPECT_THAT(findings(usage), IsEmpty());
  EXPECT_FALSE(usage.contains("suggest")) << "it may have needed more at another time";
}

TEST(StepsTest, AStepOfWhichNothingIsKnownIsNotMeasured) {
  Accounting sacct;
  sacct.job({{"State", "NODE_FAIL"}, {"TotalCPU", "00:00:00"}})
      .step("batch",
            {{"End", "Unknown"}, {"MaxRSS", "0"}, {"TRESUsageInTot", "cpu=00:00:00,mem=0"}});
  const Json usage = sacct.usage();
  EXPECT_EQ(usage["quality"]["status"], "none");
  EXPECT_FALSE(usage.contains("cpu") && usage["cpu"].contains("time_seconds"));
}

// ---- what cannot be

// nauhpc/jobstats#4
TEST(StepsTest, MoreCpuTimeThanTheJobsCpusHadIsNotTaken) {
  Accounting sacct;
  sacct.job({{"TotalCPU", "1-16:59:47"}, {"UserCPU", "1-16:59:47"}})
      .step("batch", {{"TotalCPU", "00:05.079"},
                      {"MaxRSS", "3532K"},
                      {"TRESUsageInTot", "cpu=00:00:05,mem=3532K"}});
  const Json usage = sacct.usage();
  EXPECT_EQ(usage["cpu"]["time_seconds"], 5.079);
  EXPECT_FALSE(usage["cpu"].contains("user_seconds")) << "a split of the figure that is not taken";
  const Json& doubt = usage["quality"]["not_credible"].at(0);
  EXPECT_EQ(doubt["figure"], "cpu.time_seconds");
  EXPECT_THAT(doubt["text"], HasSubstr("41.0 h of CPU time"));
}

TEST(StepsTest, CpuTimeThatNoFieldHasCredibleIsNotMeasured) {
  for (const char* claimed : {"10-00:00:00", "00:00:00"}) {
    Accounting sacct;
    sacct.job({{"TotalCPU", claimed}}).step("batch", {{"MaxRSS", "15G"}});
    const Json usage = sacct.usage();
    EXPECT_FALSE(usage.contains("cpu") && usage["cpu"].contains("time_seconds")) << claimed;
    EXPECT_EQ(usage["quality"]["not_credible"].size(), 1U) << claimed;
    EXPECT_THAT(findings(usage), Not(Contains("cpu_low"))) << claimed;
    EXPECT_FALSE(usage["source"].contains("cpu"));
  }
}

TEST(StepsTest, CpuTimeThatOnlyTheReadingsHaveIsTaken) {
  Accounting sacct;
  sacct.job({{"TotalCPU", "00:00:00"}})
      .step("batch", {{"MaxRSS", "15G"}, {"TRESUsageInTot", "cpu=07:45:00,mem=15G"}});
  const Json usage = sacct.usage();
  EXPECT_EQ(usage["cpu"]["time_seconds"], 27900);
  EXPECT_FALSE(usage["quality"].contains("not_credible"));
}

// eqcorrscan/EQcorrscan#88: jobacct_gather/linux counts shared memory once for each process.
TEST(StepsTest, MoreMemoryThanTheJobHadGivesNoAdvice) {
  Accounting sacct;
  sacct.job({}).step("batch", {{"MaxRSS", "40G"}, {"TRESUsageInTot", "mem=40G"}});
  const Json usage = sacct.usage();
  EXPECT_FALSE(usage["memory"].contains("peak_bytes"));
  EXPECT_EQ(usage["quality"]["not_credible"].at(0)["figure"], "memory.peak_bytes");
  EXPECT_EQ(usage["quality"]["not_credible"].at(0)["value"], 40.0 * (1ULL << 30U));
  EXPECT_FALSE(usage.contains("suggest"));
}

TEST(StepsTest, AJobThatWasKilledForMemoryMayHaveHadMore) {
  Accounting sacct;
  sacct.job({{"State", "OUT_OF_MEMORY"}}).step("batch", {{"MaxRSS", "17G"}});
  const Json usage = sacct.usage();
  EXPECT_FALSE(usage["quality"].contains("not_credible"));
  EXPECT_EQ(memory_to_ask_for(usage), "#SBATCH --mem=32G");
}

// ---- GPUs

// PrincetonUniversity/jobstats PR#53
TEST(StepsTest, AJobWithAPartOrATypeOfGpuIsNotJudgedByItsCpus) {
  for (const char* gres : {"gres/gpu:a100=2", "gres/gpu:a100_1g.5gb=1", "gres/shard=2",
                           "gres/mps=50", "gres/gpu=1,gres/gpu:a100=1"}) {
    Accounting sacct;
    sacct
        .job({{"AllocTRES", std::string("cpu=4,mem=16G,node=1,") + gres}, {"TotalCPU", "00:10:00"}})
        .step("batch", {{"MaxRSS", "15G"}});
    EXPECT_THAT(findings(sacct.usage()), IsEmpty()) << gres;
  }
}

TEST(StepsTest, GpuUseThatAccountingHasIsTakenAsTheMostThatItWas) {
  const auto with = [](const std::string& use) {
    Accounting sacct;
    sacct.job({{"AllocTRES", "cpu=4,mem=16G,node=1,gres/gpu=2"}})
        .step("batch", {{"MaxRSS", "15G"}, {"TRESUsageInTot", "gres/gpumem=0,gres/gpuutil=0"}})
        .step("0", {{"TotalCPU", "00:00:01"}, {"TRESUsageInTot", "mem=1M," + use}});
    return sacct.usage();
  };
  Json usage = with("gres/gpumem=30G,gres/gpuutil=130");
  EXPECT_EQ(usage["source"]["gpu"], "accounting");
  EXPECT_EQ(usage["gpu"]["peak_utilization_ratio"], 0.65) << "130 % of two";
  EXPECT_EQ(usage["gpu"]["peak_memory_bytes"], 30ULL << 30U);
  EXPECT_FALSE(usage["gpu"].contains("utilization_ratio")) << "a mean is not known";
  EXPECT_THAT(findings(usage), IsEmpty());
  EXPECT_THAT(findings(with("gres/gpuutil=20")), Contains("gpu_host_bound"))
      << "even the largest is 10 %";
  EXPECT_THAT(findings(with("gres/gpumem=0,gres/gpuutil=0")), Contains("gpu_low"));
  EXPECT_FALSE(with("gres/gpuutil=0").contains("gpu")) << "unused, or not to be read";
  usage = with("gres/gpumem=5G,gres/gpuutil=0");
  EXPECT_FALSE(usage["gpu"].contains("peak_utilization_ratio")) << "they contradict each other";
  EXPECT_EQ(usage["quality"]["not_credible"].at(0)["figure"], "gpu.peak_utilization_ratio");
  EXPECT_FALSE(with("gres/gpuutil=18446744073709551615").contains("gpu")) << "INFINITE64";
}

// BSC-ES/autosubmit#1455
TEST(StepsTest, EnergyOfTheNodesIsNobodysEnergyOfGpus) {
  Accounting sacct;
  sacct.job({{"AllocTRES", "cpu=4,mem=16G,node=1,energy=2930000"}})
      .step("batch", {{"MaxRSS", "15G"}});
  EXPECT_FALSE(sacct.usage().contains("gpu"));
}

TEST(StepsTest, AsManyStepsAsAUserLikesOnAsManyNodesTakeBoundedMemory) {
  Accounting many;
  many.job({{"NNodes", "4096"}, {"AllocTRES", "cpu=4096,mem=4096G,node=4096"}});
  for (int i = 0; i < 3000; ++i)
    many.step(std::to_string(i), {{"NNodes", "4096"}, {"NodeList", "n[1-4096]"}, {"MaxRSS", "1G"}});
  Accounting garbage;
  garbage.job({}).step("batch", {{"NNodes", "4294967292"}, {"MaxRSS", "1G"}});
  for (const Accounting* sacct : {&many, &garbage}) {
    const Json usage = sacct->usage();
    EXPECT_EQ(usage["quality"]["status"], "partial");
    EXPECT_FALSE(usage.contains("suggest"));
    EXPECT_THAT(usage["quality"]["not_credible"].back()["text"], HasSubstr("not added up"));
  }
}

// ---- a second round of each kind

using Steps = std::vector<std::pair<std::string, Fields>>;
struct Case {
  const char* name;
  Fields job;
  Steps steps;
};
Json usage_of(const Case& one) {
  Accounting sacct;
  sacct.job(one.job);
  for (const auto& [name, fields] : one.steps) sacct.step(name, fields);
  return sacct.usage();
}
const Fields kScript{{"MaxRSS", "20M"}, {"TotalCPU", "00:00:05"}};

TEST(StepsTest, OneStepThatWasNotReadLeavesTheMemoryUnknown) {
  const std::vector<Case> cases{
      {"short steps, one after the other",
       {},
       {{"batch", kScript},
        {"0", {{"End", "2026-11-21T09:00:00"}, {"TotalCPU", "03:50:00"}}},
        {"1", {{"Start", "2026-11-21T09:00:00"}, {"TotalCPU", "03:59:00"}}}}},
      {"the script, not its step", {}, {{"batch", {}}, {"0", kScript}}},
      {"a task of an unknown number of tasks",
       {},
       {{"batch", kScript}, {"0", {{"NTasks", "0"}, {"MaxRSS", "2G"}}}}},
      {"fewer bytes than any process has", {}, {{"batch", {{"MaxRSS", "4096"}}}}},
      {"what ssh started", {}, {{"batch", kScript}, {"extern", {{"TotalCPU", "07:00:00"}}}}},
  };
  for (const Case& one : cases) {
    const Json usage = usage_of(one);
    EXPECT_FALSE(usage["memory"].contains("peak_bytes")) << one.name;
    EXPECT_THAT(findings(usage), Not(Contains("mem_over"))) << one.name;
    EXPECT_EQ(memory_to_ask_for(usage), "") << one.name;
  }
  const Json usage = usage_of(cases[0]);
  EXPECT_THAT(usage["quality"]["not_credible"].at(0)["text"],
              HasSubstr("no memory of steps that used 7.8 h of CPU time"));
  EXPECT_EQ(memory_to_ask_for(usage_of(
                {"", {}, {{"batch", {{"MaxRSS", "10G"}}}, {"0", {{"TotalCPU", "00:00.004"}}}}})),
            "#SBATCH --mem=12G")
      << "hostname needs none to speak of";
}

TEST(StepsTest, WhatIsKnownOfAPartOfTheTimeOrOfItsNodesIsNotJudged) {
  const std::vector<Case> cases{
      {"beside a step without any figure",
       {},
       {{"batch", kScript}, {"0", {{"TotalCPU", "00:00:00"}}}}},
      {"a step that began long before the job",
       {},
       {{"0",
         {{"MaxRSS", "1G"}, {"Start", "2026-11-21T06:00:00"}, {"End", "2026-11-21T09:00:00"}}}}},
      {"NNodes is not there",
       {{"NNodes", ""}, {"AllocTRES", "cpu=40,mem=160G,node=10"}},
       {{"batch", {{"MaxRSS", "1G"}}}}},
      {"nobody says how many nodes",
       {{"NNodes", "4294967294"}, {"AllocTRES", "cpu=40,mem=160G"}},
       {{"batch", {{"MaxRSS", "1G"}}}}},
      {"a job that was made smaller",
       {{"NNodes", "2"}, {"AllocTRES", "cpu=40,mem=160G,node=2"}},
       {{"0", {{"NNodes", "4"}, {"NodeList", "n[1-4]"}, {"MaxRSS", "1G"}}}}},
  };
  for (const Case& one : cases) {
    const Json usage = usage_of(one);
    EXPECT_EQ(usage["quality"]["status"], "partial") << one.name;
    EXPECT_THAT(findings(usage), IsEmpty()) << one.name;
    EXPECT_FALSE(usage["cpu"].contains("efficiency_ratio")) << one.name;
    EXPECT_TRUE(!usage.contains("suggest") || usage["suggest"].contains("condition")) << one.name;
  }
}

TEST(StepsTest, AStepOfAnotherLifeIsNotTheJobs) {
  const Json usage = usage_of({"",
                               {{"TotalCPU", "07:00:00"}},
                               {{"batch", {{"MaxRSS", "15G"}}},
                                {"0",
                                 {{"Start", "2026-11-21T06:00:00"},
                                  {"End", "2026-11-21T07:00:00"},
                                  {"TotalCPU", "00:50:00"},
                                  {"MaxRSS", "20G"}}}}});
  EXPECT_EQ(usage["cpu"]["time_seconds"], 7 * 3600);
  EXPECT_EQ(usage["memory"]["peak_bytes"], 15ULL << 30U);
}

// -n 64 --mem-per-cpu may lie on two nodes as 60 and 4.
TEST(StepsTest, OfNodesThatDifferNobodyKnowsWhatOneHad) {
  Case one{
      "",
      {{"NNodes", "2"}, {"AllocTRES", "cpu=64,mem=96G,node=2"}, {"TotalCPU", "5-00:00:00"}},
      {{"batch",
        {{"MaxRSS", "20M"}, {"AllocTRES", "cpu=60,mem=90G,node=1"}, {"TotalCPU", "00:01"}}},
       {"0",
        {{"NNodes", "2"}, {"NTasks", "64"}, {"MaxRSS", "1G"}, {"TRESUsageInTot", "mem=64G"}}}}};
  EXPECT_EQ(memory_to_ask_for(usage_of(one)), "") << "not the 39G of an even half";
  one.job["State"] = "OUT_OF_MEMORY";
  EXPECT_EQ(memory_to_ask_for(usage_of(one)), "") << "not twice an even half, which one had nearly";
  one.steps[0].second["AllocTRES"] = "cpu=32,mem=48G,node=1";
  EXPECT_EQ(memory_to_ask_for(usage_of(one)), "#SBATCH --mem=96G");
}

TEST(StepsTest, OfAStepWhoseTasksAreNotKnownOneNodeMayHaveHadAll) {
  const auto asked = [](Fields step) {
    step.merge(Fields{{"NNodes", "2"}, {"TRESUsageInTot", "mem=12G"}});
    return memory_to_ask_for(usage_of(
        {"", {{"NNodes", "2"}, {"AllocTRES", "cpu=8,mem=32G,node=2"}}, {{"0", std::move(step)}}}));
  };
  EXPECT_EQ(asked({{"NTasks", "3"}}), "#SBATCH --mem=15G") << "all on one node";
  EXPECT_EQ(asked({{"NTasks", "0"}, {"MaxRSS", "4G"}}), "#SBATCH --mem=10G")
      << "two of three alike";
  EXPECT_EQ(
      memory_to_ask_for(usage_of(
          {"",
           {},
           {{"batch", {{"NodeList", "n1"}, {"MaxRSS", "9G"}}},
            {"0", {{"NodeList", "None assigned"}, {"MaxRSS", "4G"}, {"TotalCPU", "00:01"}}}}})),
      "#SBATCH --mem=16G")
      << "they may have been on one node";
}

TEST(StepsTest, ZeroAndNotSetAreNoFigures) {
  const Steps script{{"batch", {{"MaxRSS", "8G"}}}};
  const Json none = usage_of({"",
                              {{"AllocTRES", "mem=0,node=1"},
                               {"AllocCPUS", "0"},
                               {"TimelimitRaw", "0"},
                               {"State", "OUT_OF_MEMORY"}},
                              script});
  EXPECT_EQ(none["request"], (Json{{"nodes", 1}}));
  EXPECT_EQ(memory_to_ask_for(none), "") << "twice nothing is the least that can be asked for";
  const Json unset = usage_of({"",
                               {{"AllocTRES", "mem=16G,node=1"},
                                {"TimelimitRaw", "4294967294"},
                                {"ElapsedRaw", "1763719200"},
                                {"TotalCPU", "213503982334601-07:00:14"}},
                               script});
  EXPECT_FALSE(unset["request"].contains("time_limit_seconds"));
  EXPECT_FALSE(unset.contains("cpu"));
  EXPECT_EQ(unset["elapsed_seconds"], 7200);
  EXPECT_THAT(findings(unset), Not(Contains("time_over")));
}

TEST(StepsTest, CpuTimeThatContradictsItselfDoesNotMakeAJobIdle) {
  const std::vector<Case> cases{
      {"a step that used memory and no CPU",
       {{"TotalCPU", "00:00:05"}},
       {{"batch", kScript}, {"0", {{"TotalCPU", "00:00:00"}, {"MaxRSS", "14G"}}}}},
      {"busy while it was seen",
       {{"TotalCPU", "06:10:00"}},
       {{"0", {{"MaxRSS", "15G"}, {"End", "2026-11-21T09:37:00"}}}}},
      {"a job's row with more than its steps",
       {},
       {{"batch", {{"TotalCPU", "5:00"}, {"MaxRSS", "15G"}}}}},
  };
  for (const Case& one : cases) EXPECT_THAT(findings(usage_of(one)), IsEmpty()) << one.name;
}

TEST(StepsTest, WhatAStoppedJobNeededIsNoGroundToAskForLess) {
  for (const char* state :
       {"TIMEOUT", "CANCELLED by 7", "FAILED", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE",
        "REQUEUED", "REVOKED", "A_STATE_OF_TOMORROW"}) {
    const Json usage = usage_of({"", {{"State", state}}, {{"batch", {{"MaxRSS", "1G"}}}}});
    EXPECT_FALSE(usage.contains("suggest")) << state;
    EXPECT_THAT(findings(usage), Not(Contains("mem_over"))) << state;
    const Json full = usage_of({"", {{"State", state}}, {{"batch", {{"MaxRSS", "15G"}}}}});
    EXPECT_EQ(memory_to_ask_for(full), "#SBATCH --mem=18G")
        << state << ": more than the 16 GiB it had";
    EXPECT_EQ(full["suggest"]["condition"], "the part that did not run needs no more") << state;
  }
  const Json serial = usage_of(
      {"", {{"State", "FAILED"}, {"TotalCPU", "02:00:00"}}, {{"batch", {{"MaxRSS", "15G"}}}}});
  EXPECT_EQ(serial["suggest"]["condition"],
            "the program never uses more than one CPU at a time, and if the part that did not run "
            "needs no more");
}

TEST(StepsTest, WhatWasNeededInMostOfTheTimeIsSuggestedWithACondition) {
  const Json usage =
      usage_of({"", {}, {{"0", {{"MaxRSS", "13G"}, {"End", "2026-11-21T09:42:00"}}}}});
  EXPECT_EQ(usage["quality"]["status"], "accounting");
  EXPECT_EQ(usage["suggest"]["condition"],
            "no more was needed in the 15 % of the time not measured");
}

TEST(StepsTest, GpusAreNotJudgedWhereAStepWasNotReadOrTheyWereShared) {
  const Fields script{{"MaxRSS", "1G"}, {"TRESUsageInTot", "gres/gpumem=0,gres/gpuutil=0"}};
  const Fields low{{"MaxRSS", "1G"}, {"TRESUsageInTot", "gres/gpumem=1G,gres/gpuutil=20"}};
  const std::vector<Case> cases{
      {"another step has no figure",
       {{"AllocTRES", "cpu=4,mem=16G,node=1,gres/gpu=2"}},
       {{"batch", script}, {"0", low}, {"1", {{"MaxRSS", "12G"}}}}},
      {"only a script that waits was read",
       {{"AllocTRES", "cpu=4,mem=16G,node=1,gres/gpu=1"}},
       {{"batch", script}, {"0", {{"MaxRSS", "12G"}}}}},
      {"shards", {{"AllocTRES", "cpu=4,mem=16G,node=1,gres/gpu=1,gres/shard=2"}}, {{"batch", low}}},
  };
  for (const Case& one : cases) {
    const Json usage = usage_of(one);
    EXPECT_THAT(findings(usage), Not(Contains("gpu_low"))) << one.name;
    EXPECT_FALSE(usage.contains("gpu")) << one.name;
  }
}

}  // namespace
}  // namespace scriptorium::usage
