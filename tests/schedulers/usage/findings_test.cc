#include "schedulers/usage/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>

#include "schedulers/usage/finding_words.h"
#include "schedulers/usage/job_events.h"
#include "tests/schedulers/usage/job_fixtures.h"

namespace scriptorium::usage {
namespace {

using namespace fixtures;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> lines_of(const Suggestion& suggestion) {
  return request_lines("#SBATCH", suggestion.request, 1);
}

TEST(FindingsTest, AJobThatUsesWhatItAskedForHasNone) { EXPECT_THAT(ids(view(node())), IsEmpty()); }

// ---- CPU

TEST(FindingsTest, CpusThatAreNotUsedAreANoticeAndThenAWarning) {
  NodeUsage n = node();
  n.cpu.time_seconds = 4 * 3600 * 0.80;
  EXPECT_EQ(find(view(n), "cpu_low"), std::nullopt);
  n.cpu.time_seconds = 4 * 3600 * 0.79;
  auto found = find(view(n), "cpu_low");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->severity, Severity::kNotice);
  EXPECT_NEAR(found->value, 0.79, 1e-9);
  EXPECT_EQ(found->threshold, 0.80);
  n.cpu.time_seconds = 4 * 3600 * 0.5;
  found = find(view(n), "cpu_low");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->severity, Severity::kWarning);
  EXPECT_THAT(found->text, HasSubstr("50 % of its 4 CPUs"));
}

TEST(FindingsTest, OneBusyCpuOfSeveralIsASerialProgram) {
  NodeUsage n = node();
  n.cpu.time_seconds = 3600;
  const auto found = find(view(n), "cpu_serial");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->suggest.request.cpus, 1U);
  n.cpu.time_seconds = 3600 * 0.85;
  EXPECT_FALSE(find(view(n), "cpu_serial"));
  n.cpu.time_seconds = 3600 * 1.5;
  EXPECT_FALSE(find(view(n), "cpu_serial"));
  JobFacts single = facts();
  single.request.cpus = 1;
  n.cpu = {.time_seconds = 3600.0, .allocated = 1};
  EXPECT_FALSE(find(view_of(single, {n}), "cpu_serial")) << "it had but one";
}

TEST(FindingsTest, AJobWithGpusIsNotJudgedByItsCpus) {
  NodeUsage n = node();
  n.cpu.time_seconds = 3600;
  n.gpus = {gpu(0.9)};
  EXPECT_THAT(ids(view(n)), IsEmpty());
  JobFacts asked = facts();
  asked.request.gpus = 1;  // asked for, though nobody could read them
  n.gpus.clear();
  EXPECT_THAT(ids(view_of(asked, {n})), IsEmpty());
}

TEST(FindingsTest, ANodeThatDidNothingBesideOneThatDidIsCritical) {
  NodeUsage idle = node("n2");
  idle.cpu.time_seconds = 1;
  const auto found = find(view_of(facts(2), {node(), idle}), "cpu_unused_node");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->severity, Severity::kCritical);
  EXPECT_THAT(found->hosts, ElementsAre("n2"));
  EXPECT_FALSE(find(view_of(facts(2), {idle, idle}), "cpu_unused_node"))
      << "a job that only waits is another matter";
}

TEST(FindingsTest, NodesThatWorkUnevenlyAreNamed) {
  NodeUsage slow = node("n2");
  slow.cpu.time_seconds = 4 * 3600 * 0.4;
  const auto found = find(view_of(facts(2), {node(), slow}), "cpu_imbalance");
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->value, 0.6, 1e-9);
  EXPECT_THAT(found->hosts, ElementsAre("n2"));
  slow.cpu.time_seconds = 4 * 3600 * 0.6;
  EXPECT_FALSE(find(view_of(facts(2), {node(), slow}), "cpu_imbalance"));
}

TEST(FindingsTest, WaitingForCpusIsSaidByPressureElseByThrottling) {
  NodeUsage n = node();
  n.cpu.pressure_some_seconds = 3600 * 0.21;
  EXPECT_TRUE(find(view(n), "cpu_oversubscribed"));
  n.cpu.pressure_some_seconds = 10;
  n.cpu.throttled_seconds = 3000;
  EXPECT_FALSE(find(view(n), "cpu_oversubscribed")) << "pressure tells it better";
  n.cpu.pressure_some_seconds.reset();
  EXPECT_TRUE(find(view(n), "cpu_oversubscribed"));
}

TEST(FindingsTest, NothingComputedForALongTimeAtTheEndIsAWarning) {
  NodeUsage n = node();
  n.cpu.idle_tail_seconds = 899;
  EXPECT_FALSE(find(view(n), "idle_tail"));
  n.cpu.idle_tail_seconds = 900;
  EXPECT_TRUE(find(view(n), "idle_tail"));
  NodeUsage busy = node("n2");
  busy.cpu.idle_tail_seconds = 0;
  EXPECT_FALSE(find(view_of(facts(2), {n, busy}), "idle_tail"))
      << "another node worked until the end";
}

TEST(FindingsTest, MuchTimeInTheSystemIsANotice) {
  NodeUsage n = node();
  n.cpu.user_seconds = 3 * 3600;
  n.cpu.system_seconds = 3600;
  EXPECT_TRUE(find(view(n), "system_time"));
  n.cpu.user_seconds = 59;
  n.cpu.system_seconds = 59;
  EXPECT_FALSE(find(view(n), "system_time")) << "too little to matter";
}

// ---- memory

TEST(FindingsTest, TooMuchMemoryIsFoundWithWhatToAskForNext) {
  NodeUsage n = node();
  n.memory.peak_working_set_bytes = 1 * kGiB;
  const auto found = find(view(n), "mem_over");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->severity, Severity::kWarning);
  EXPECT_THAT(lines_of(found->suggest), ElementsAre("#SBATCH --mem=1230M"));
  n.memory.peak_working_set_bytes = 2 * kGiB;
  EXPECT_EQ(find(view(n), "mem_over")->severity, Severity::kNotice);
}

TEST(FindingsTest, MemoryThatOneNodeNeedsIsNotTooMuchForAllOfThem) {
  NodeUsage idle = node("n2");
  idle.memory.peak_working_set_bytes = kMiB;
  NodeUsage full = node("n1");
  full.memory.peak_working_set_bytes = static_cast<std::uint64_t>(0.7 * 4 * kGiB) + 1;
  EXPECT_FALSE(find(view_of(facts(2), {full, idle}), "mem_over"));
  --*full.memory.peak_working_set_bytes;
  EXPECT_TRUE(find(view_of(facts(2), {full, idle}), "mem_over"));
}

TEST(FindingsTest, MemoryThatNobodyElseCouldUseIsNotCalledTooMuch) {
  NodeUsage n = node();
  n.memory.peak_working_set_bytes = 1 * kGiB;
  FindingOptions options;
  options.set("mem_over_default_bytes_per_cpu", static_cast<double>(kGiB));
  EXPECT_FALSE(find(view(n), "mem_over", options)) << "it took what everybody gets";
  n.node_cpus = 4;
  EXPECT_FALSE(find(view(n), "mem_over")) << "it has the whole node";
  EXPECT_THAT(lines_of(suggest(view(n), {})), ElementsAre("#SBATCH --mem=1230M"))
      << "and is told all the same what it needed";
}

TEST(FindingsTest, AnOutOfMemoryKillIsSaidAloneAndEvenOfAShortJob) {
  NodeUsage n = node("n1", 5);
  n.memory.oom_kills = 1;
  const auto found = find_all(view(n), {});
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().id, "mem_oom");
  EXPECT_THAT(lines_of(found.front().suggest), ElementsAre("#SBATCH --mem=8G"));
  JobFacts by_state = facts();
  by_state.state = "OUT_OF_MEMORY";
  n = node();
  n.memory.peak_working_set_bytes = 4 * kGiB;
  EXPECT_THAT(ids(view_of(by_state, {n})), ElementsAre("mem_oom"))
      << "and neither near the limit nor too much";
}

// A step that had all of the job's CPUs for this long, and used so much CPU time.
StepUse step(const std::string& name, double elapsed_seconds, double cpu_seconds) {
  StepUse made{.name = name,
               .started_at = fixtures::kStart,
               .elapsed_seconds = elapsed_seconds,
               .last_read = LastRead::kRemoval};
  made.cpu = {.time_seconds = cpu_seconds,
              .allocated = 4,
              .efficiency_ratio = cpu_seconds / (elapsed_seconds * 4)};
  made.memory.oom_kills = 0;
  return made;
}

TEST(FindingsTest, AKillNamesItsSteps) {
  NodeUsage n = node();
  n.memory.oom_kills = 2;
  for (const char* name : {"batch", "0", "1", "2", "3", "4", "5"})
    n.steps.steps.push_back(step(name, 100, 1));
  const auto text = [&] { return find(view(n), "mem_oom")->text; };
  EXPECT_THAT(find(view(n), "mem_oom")->steps, IsEmpty());
  EXPECT_THAT(text(), HasSubstr("were killed. Its results may"));
  n.steps.steps[3].memory.oom_kills = 1;
  EXPECT_THAT(find(view(n), "mem_oom")->steps, ElementsAre("2"));
  EXPECT_THAT(text(), HasSubstr(" It happened in step 2. "));
  n.steps.steps[0].memory.oom_kills = 1;
  EXPECT_THAT(text(), HasSubstr(" It happened in steps batch and 2. "));
  for (StepUse& one : n.steps.steps) one.memory.oom_kills = 1;
  EXPECT_THAT(text(), HasSubstr(" It happened in steps batch, 0, 1, 2 and 3 more. "));
}

TEST(FindingsTest, UnusedCpusNameTheStepThatHasMostOfThem) {
  NodeUsage n = node();
  n.cpu.time_seconds = 0.5 * 4 * 3600;  // 7200 of 14400 s are unused
  n.steps.steps = {step("batch", 3600, 10), step("0", 1800, 7190), step("1", 1000, 400)};
  const auto found = [&] { return *find(view(n), "cpu_low"); };
  EXPECT_THAT(found().steps, IsEmpty()) << "3600 of the unused time is no more than half";
  n.steps.steps[2] = step("1", 1000, 399);
  EXPECT_THAT(found().steps, ElementsAre("1"));
  EXPECT_THAT(found().text,
              ::testing::EndsWith(" Most of the unused time is that of step 1, which used 10 % of "
                                  "its 4 CPUs for 17 min."));
  n.steps.steps[2].last_read = LastRead::kSample;
  EXPECT_THAT(found().steps, IsEmpty()) << "it may have used them when nobody saw it";
  n.steps.steps[2] = step("interactive", 1000, 399);
  EXPECT_THAT(found().steps, IsEmpty()) << "it may have waited for the others";
  n.cpu.time_seconds = 3600;
  n.steps.steps = {step("batch", 3600, 1), step("0", 3599, 3599)};
  EXPECT_THAT(find(view(n), "cpu_serial")->steps, ElementsAre("0"));
}

TEST(FindingsTest, UnusedCpusSayHowManyThreadsRan) {
  NodeUsage n = node();
  n.cpu.time_seconds = 3600;
  n.programs.programs = {{.name = "python3", .cpu_seconds = 1801, .threads = 36, .busy_threads = 1},
                         {.name = "bash", .cpu_seconds = 1799, .threads = 1, .busy_threads = 1}};
  const auto text = [&] { return find(view(n), "cpu_serial")->text; };
  EXPECT_THAT(text(), ::testing::EndsWith(" Of the 36 threads of its main program, 1 ran."));
  EXPECT_THAT(find(view(n), "cpu_low")->text, HasSubstr(", 1 ran."));
  n.cpu.throttled_seconds = 1000;
  EXPECT_THAT(find(view(n), "cpu_oversubscribed")->text, HasSubstr(", 1 ran."));
  n.programs.programs[0].busy_threads.reset();
  EXPECT_THAT(text(), Not(HasSubstr("main program")));
  n.programs.programs[0].busy_threads = 1;
  n.programs.programs[0].cpu_seconds = 1800;
  EXPECT_THAT(text(), Not(HasSubstr("main program"))) << "no more than half of the CPU time";
  n.programs.programs[0] = {.name = "a", .cpu_seconds = 3000, .threads = 1, .busy_threads = 1};
  EXPECT_THAT(text(), Not(HasSubstr("main program")));
}

TEST(FindingsTest, ComingNearTheLimitIsSaidPerNodeAndPageCacheIsNoNeed) {
  NodeUsage n = node();
  n.memory.peak_working_set_bytes = 3 * kGiB;
  n.memory.peak_charged_bytes = 4 * kGiB;  // a dd of a large file
  EXPECT_THAT(ids(view(n)), IsEmpty());
  n.memory.peak_working_set_bytes = 3900 * kMiB;
  const auto found = find(view(n), "mem_near_limit");
  ASSERT_TRUE(found);
  EXPECT_THAT(found->hosts, ElementsAre("n1"));
  EXPECT_EQ(lines_of(suggest(view(n), {})), lines_of(found->suggest));
}

TEST(FindingsTest, SwapAndPressureAreNotices) {
  NodeUsage n = node();
  n.memory.peak_swap_bytes = 64 * kMiB;
  n.memory.pressure_full_seconds = 3600 * 0.051;
  n.io.pressure_full_seconds = 3600 * 0.11;
  EXPECT_THAT(ids(view(n)), ElementsAre("mem_swap", "mem_pressure", "io_heavy"));
  n.memory.peak_swap_bytes = 63 * kMiB;
  n.memory.pressure_full_seconds = 100;
  n.io.pressure_full_seconds = 300;
  EXPECT_THAT(ids(view(n)), IsEmpty());
}

TEST(FindingsTest, BytesASecondAreJudgedOnlyWhereTheSiteSaysHowManyAreTooMany) {
  NodeUsage n = node();
  n.io.read_bytes = 3600 * 100 * kMiB;
  EXPECT_THAT(ids(view(n)), IsEmpty());
  FindingOptions options;
  options.set("io_heavy_bytes_per_second", 50.0 * static_cast<double>(kMiB));
  EXPECT_THAT(ids(view(n), options), ElementsAre("io_heavy"));
}

// ---- time

TEST(FindingsTest, TooMuchTimeIsFoundOfAJobThatCompleted) {
  JobFacts asked = facts();
  asked.request.time_limit_seconds = 7200;
  const auto found = find(view_of(asked, {node()}), "time_over");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->severity, Severity::kNotice);
  EXPECT_THAT(lines_of(found->suggest), ElementsAre("#SBATCH --time=01:30:00"));
  asked.request.time_limit_seconds = 72000;
  EXPECT_EQ(find(view_of(asked, {node()}), "time_over")->severity, Severity::kWarning);
  asked.state = "FAILED";
  EXPECT_FALSE(find(view_of(asked, {node()}), "time_over")) << "it might have run for longer";
}

TEST(FindingsTest, TheTimeLimitReachedIsCriticalEvenOfAJobThatWasHardlySeen) {
  JobFacts asked = facts();
  asked.state = "TIMEOUT";
  NodeUsage n = node("n1", 60);
  n.quality = {.samples = 1};
  EXPECT_THAT(ids(view_of(asked, {n})), ElementsAre("time_out"));
}

TEST(FindingsTest, AJobThatWasStoppedEarlyIsNotAdvisedToDoMoreAtOnce) {
  JobFacts asked = facts();
  asked.state = "FAILED";
  EXPECT_EQ(find(view_of(asked, {node("n1", 5)}), "short_job")->text,
            "The job ran for 5 s and did not come to its end.");
  EXPECT_THAT(find(view(node("n1", 5)), "short_job")->text, HasSubstr("let one job do several"));
}

TEST(FindingsTest, VeryShortJobsAreCounted) {
  EXPECT_THAT(ids(view(node("n1", 29))), ElementsAre("short_job"));
  EXPECT_THAT(ids(view(node("n1", 30))), IsEmpty());
}

TEST(FindingsTest, ARunThatWasCutShortNeverYieldsLessMemoryThanItHad) {
  const auto suggested = [](std::optional<std::string> state, std::uint64_t peak_bytes) {
    JobFacts asked = facts();
    asked.state = std::move(state);
    NodeUsage n = node();
    n.memory.peak_working_set_bytes = peak_bytes;
    return suggest(view_of(asked, {n}), {});
  };
  for (const char* state :
       {"FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "REQUEUED"}) {
    EXPECT_TRUE(suggested(state, kGiB).empty()) << state;
    EXPECT_TRUE(suggested(state, 3400 * kMiB).empty()) << state << ": 1.2 times that is 4080 MiB";
    const Suggestion more = suggested(state, 3900 * kMiB);
    EXPECT_THAT(lines_of(more), ElementsAre("#SBATCH --mem=5G")) << state;
    EXPECT_EQ(more.condition, "the part that did not run needs no more") << state;
  }
  JobFacts asked = facts();
  asked.state = "FAILED";
  asked.request.memory_bytes = 3865470567;  // what would be suggested for 3 GiB
  EXPECT_FALSE(suggest(view_of(asked, {node()}), {}).empty());
  ++*asked.request.memory_bytes;
  EXPECT_TRUE(suggest(view_of(asked, {node()}), {}).empty());
  asked.request.memory_bytes.reset();
  EXPECT_TRUE(suggest(view_of(asked, {node()}), {}).empty()) << "it may have had more";
  EXPECT_EQ(suggested("COMPLETED", kGiB).condition, "");
  EXPECT_THAT(lines_of(suggested({}, kGiB)), ElementsAre("#SBATCH --mem=1230M"));
  EXPECT_EQ(suggested({}, kGiB).condition, "the part that did not run needs no more");
}

TEST(FindingsTest, FragmentsOfNodesAreSaidOnlyWhereTheSiteWantsIt) {
  const JobView job = view_of(facts(2), {node(), node("n2")});
  EXPECT_THAT(ids(job), IsEmpty());
  FindingOptions options;
  options.enable("fragmented", true);
  EXPECT_THAT(ids(job, options), ElementsAre("fragmented"));
}

TEST(FindingsTest, AFindingLinksThePageOfTheSite) {
  NodeUsage n = node();
  n.cpu.time_seconds = 3600;
  FindingOptions options;
  const auto pages = [&] {
    std::vector<std::string> result;
    const auto event =
        nlohmann::json::parse(job_event("lab", "slurm", view(n), options).extra_json);
    for (const auto& found : event["usage"]["findings"])
      result.push_back(found.value("help_url", "none"));
    return result;
  };
  EXPECT_THAT(pages(), ElementsAre("none", "none"));
  Problems problems;
  options.set_help_url(read_help_url({}, "https://hpc.example.org/{finding}#{finding}", problems));
  EXPECT_THAT(pages(), ElementsAre("https://hpc.example.org/cpu_low#cpu_low",
                                   "https://hpc.example.org/cpu_serial#cpu_serial"));
  options.set_help_url(read_help_url({}, "http://hpc/usage", problems));
  EXPECT_THAT(pages(), ElementsAre("http://hpc/usage", "http://hpc/usage"));
  EXPECT_TRUE(problems.empty());
}

// ---- what may be judged

TEST(FindingsTest, ThinDataIsSaidAsSuchAndNotJudged) {
  NodeUsage idle = node();
  idle.cpu.time_seconds = 1;
  ASSERT_THAT(ids(view(idle)), Contains("cpu_low"));

  NodeUsage brief = node("n1", 299);
  brief.cpu.time_seconds = 1;
  EXPECT_EQ(quality_of(view(brief), {}), QualityStatus::kShort);
  EXPECT_THAT(ids(view(brief)), IsEmpty());

  NodeUsage once = idle;
  once.quality.samples = 1;
  EXPECT_EQ(quality_of(view(once), {}), QualityStatus::kShort);

  NodeUsage gap = idle;
  gap.quality.covered_ratio = 0.79;
  EXPECT_EQ(quality_of(view(gap), {}), QualityStatus::kPartial);
  EXPECT_THAT(ids(view(gap)), IsEmpty());

  EXPECT_EQ(quality_of(view_of(facts(2), {idle}), {}), QualityStatus::kPartial)
      << "one of two nodes";

  NodeUsage blind = idle;
  blind.cpu = {};
  blind.memory = {};
  EXPECT_EQ(quality_of(view(blind), {}), QualityStatus::kNone);
  EXPECT_THAT(ids(view(blind)), IsEmpty());
  EXPECT_TRUE(suggest(view(blind), {}).empty());
}

TEST(FindingsTest, WhatWasNotMeasuredIsNotZero) {
  NodeUsage n = node();
  n.cpu = {};
  EXPECT_THAT(ids(view(n)), IsEmpty());
  NodeUsage other = node("n2");
  EXPECT_EQ(view_of(facts(2), {n, other}).cpu_ratio(), std::nullopt) << "half a sum is no sum";
}

TEST(FindingsTest, WhatSomeNodesOrGpusSaidIsNotTakenForAll) {
  NodeUsage idle = node();
  idle.cpu.idle_tail_seconds = 1800;
  EXPECT_FALSE(find(view_of(facts(2), {idle, node("n2")}), "idle_tail"))
      << "the other node did not say";

  EXPECT_EQ(view_of(facts(2), {node()}).cpu_ratio(), std::nullopt);
  EXPECT_EQ(view_of(facts(2), {node()}).memory_ratio(), std::nullopt);

  NodeUsage gpus = node();
  gpus.cpu.time_seconds = 3600;
  gpus.gpus = {gpu(0.2), gpu(0, "GPU-2"), NodeGpu{.id = "GPU-3"}};
  const JobView job = view(gpus);
  EXPECT_EQ(job.totals.gpu_utilization_ratio, std::nullopt);
  EXPECT_THAT(lines_of(find(job, "gpu_unused")->suggest), IsEmpty())
      << "nobody knows what the third one did";
  gpus.gpus.erase(gpus.gpus.begin() + 1);
  EXPECT_THAT(find(view(gpus), "gpu_low")->text, HasSubstr("1 of 2 GPUs could be read"));
}

TEST(FindingsTest, ANodeThatDidNotSayMayHaveHadMore) {
  NodeUsage blind = node("n2");
  blind.memory = {};
  blind.io.read_bytes = 1;
  const JobView job = view_of(facts(2), {node(), blind});
  EXPECT_EQ(quality_of(job, {}), QualityStatus::kOk);
  EXPECT_TRUE(suggest(job, {}).empty());
  EXPECT_EQ(job.totals.read_bytes, std::nullopt) << "half a sum is no sum";
  EXPECT_EQ(view_of(facts(2), {node()}).system_ratio(), std::nullopt);
}

TEST(FindingsTest, AKillForMemorySuggestsTwiceWhatThatNodeHad) {
  NodeUsage killed = node();
  killed.memory.oom_kills = 1;
  EXPECT_THAT(lines_of(suggest(view_of(facts(4), {killed}), {})), ElementsAre("#SBATCH --mem=8G"))
      << "not a quarter of it, as one of four nodes reported";
  JobFacts unknown = facts(2);
  unknown.request.nodes.reset();
  EXPECT_THAT(lines_of(suggest(view_of(unknown, {killed, node("n2")}), {})),
              ElementsAre("#SBATCH --mem=8G"));
}

TEST(FindingsTest, AProgramThatWasParallelForATimeIsNotSerial) {
  NodeUsage n = node();
  n.cpu.time_seconds = 3600;
  n.cpu.utilization = {.avg = 0.25, .min = 0.0, .max = 1.0, .p50 = 0.0};
  EXPECT_THAT(ids(view(n)), ElementsAre("cpu_low"));
}

// Readings that cover a half of the time have not seen all of the memory; the counter of CPU time
// has all of it.
TEST(FindingsTest, OfAJobThatWasSeenInPartOnlyItsCpuTimeHasAShare) {
  NodeUsage n = node();
  n.gpus = {gpu(0.9)};
  n.quality.covered_ratio = 0.5;
  const auto usage = [&] {
    return nlohmann::json::parse(job_event("lab", "slurm", view(n), {}).extra_json)["usage"];
  };
  EXPECT_EQ(usage()["cpu"]["efficiency_ratio"], 1.0);
  EXPECT_FALSE(usage()["memory"].contains("efficiency_ratio"));
  EXPECT_FALSE(usage()["gpu"].contains("utilization_ratio"));
  n.quality.last_read = LastRead::kSample;
  EXPECT_FALSE(usage()["cpu"].contains("efficiency_ratio"));
}

TEST(FindingsTest, WithoutTheNumberOfNodesNothingIsSuggested) {
  NodeUsage serial = node();
  serial.cpu.time_seconds = 3600;
  JobFacts unknown = facts();
  unknown.request.nodes.reset();
  const JobView job = view_of(unknown, {serial});
  EXPECT_THAT(ids(job), Contains("cpu_serial"));
  EXPECT_TRUE(suggest(job, {}).empty()) << "another node may have needed more";
}

TEST(FindingsTest, SuspendedTimeDoesNotCount) {
  JobFacts paused = facts();
  paused.suspended_seconds = 1800;
  NodeUsage n = node();
  n.cpu.time_seconds = 4 * 1800;
  const JobView job = view_of(paused, {n});
  EXPECT_DOUBLE_EQ(*job.cpu_ratio(), 1.0);
  EXPECT_THAT(ids(job), Not(Contains("cpu_low")));
}

TEST(FindingsTest, TheSchedulersCountOfCpusCountsWhereNobodyIsBoundToThem) {
  NodeUsage n = node();
  n.cpu.allocated = 64;  // the cpuset of the whole machine
  EXPECT_DOUBLE_EQ(*view(n).cpu_ratio(), 1.0);
}

// TuringWatch (ksyx/turingopt) drops samples in which nothing moved, so that a 4-core step that is
// busy for 20 % of the time reads as 4 cores at 100 %, and counts a GPU once for each batch, so
// that two busy GPUs read as half used.
TEST(FindingsTest, IdleTimeStandsInTheMeanSoThatABurstIsNotFullUse) {
  NodeUsage n = node();
  n.cpu.time_seconds = 4 * 3600 * 0.2;
  n.cpu.utilization = {.avg = 0.2, .min = 0.0, .max = 1.0, .p50 = 0.0};
  const auto found = find(view(n), "cpu_low");
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->value, 0.2, 1e-9);
}

TEST(FindingsTest, TwoBusyGpusAreNotHalfUsed) {
  NodeUsage n = node();
  n.gpus = {gpu(0.9, "GPU-1"), gpu(0.9, "GPU-2")};
  const JobView job = view(n);
  EXPECT_NEAR(*job.totals.gpu_utilization_ratio, 0.9, 1e-9);
  EXPECT_THAT(ids(job), IsEmpty());
}

// Its rules that are sound, each with a job that it was made for. (Not taken over: few cores and
// Jupyter, which are opinions.)
TEST(FindingsTest, EverySoundRuleOfTuringWatchHasItsFinding) {
  const auto with = [](const auto& change) {
    NodeUsage n = node();
    change(n);
    return ids(view(n));
  };
  EXPECT_THAT(with([](NodeUsage& n) { n.cpu.time_seconds = 0.4 * 4 * 3600; }), Contains("cpu_low"))
      << "cpu_underusage";
  EXPECT_THAT(with([](NodeUsage& n) { n.cpu.time_seconds = 3600; }), Contains("cpu_serial"))
      << "low_concurrency";
  EXPECT_THAT(with([](NodeUsage& n) { n.memory.peak_working_set_bytes = 2 * kGiB; }),
              Contains("mem_over"))
      << "mem_underusage";
  EXPECT_THAT(with([](NodeUsage& n) { n.cpu.pressure_some_seconds = 1800; }),
              Contains("cpu_oversubscribed"))
      << "oversubscribe";
  EXPECT_THAT(with([](NodeUsage& n) {
                n.gpus = {gpu(0.1)};
                n.cpu.time_seconds = 3600;
              }),
              Contains("gpu_low"))
      << "gpu_underusage, investigate_usage";
  EXPECT_THAT(with([](NodeUsage& n) { n.cpu.time_seconds = 0; }), Contains("cpu_low"))
      << "completely_no_util";
  EXPECT_THAT(with([](NodeUsage& n) { n.gpus = {gpu(0)}; }), Contains("gpu_unused"))
      << "completely_no_util";
  EXPECT_THAT(with([](NodeUsage& n) {
                n.gpus = {gpu(0.7)};
                n.gpus[0].longest_zero_seconds = 1000;
              }),
              Contains("gpu_idle_run"))
      << "try_split";
  EXPECT_THAT(with([](NodeUsage& n) { n.cpu.system_seconds = 1.4 * 3600; }),
              Contains("system_time"))
      << "sys_ratio";
  JobFacts generous = facts();
  generous.request.time_limit_seconds = 36000;
  EXPECT_THAT(ids(view_of(generous, {node()})), Contains("time_over"))
      << "timelimit_underusage, which never fired there";
}

TEST(FindingsTest, WorstComesFirst) {
  NodeUsage n = node();
  n.memory.peak_swap_bytes = kGiB;  // notice
  n.cpu.time_seconds = 3600;        // warnings
  JobFacts late = facts();
  late.state = "TIMEOUT";  // critical
  EXPECT_THAT(ids(view_of(late, {n})),
              ElementsAre("time_out", "cpu_low", "cpu_serial", "mem_swap"));
}

// ---- options

class FindingOptionsTest : public ::testing::Test {
 protected:
  FindingOptionsTest() { table_.path = "source.usage.findings"; }
  void put(const std::string& key, Value value) {
    value.position = {"usage.toml", 7};
    table_.entries.push_back({key, std::move(value)});
  }
  std::string problems() {
    Problems list;
    options_ = read_finding_options(table_, list);
    std::string text;
    for (const Problem& p : list.list()) text += p.text() + "\n";
    return text;
  }
  Table table_;
  FindingOptions options_;
};

TEST_F(FindingOptionsTest, ThresholdsAndSwitchesAreTaken) {
  put("cpu_low_warning_ratio", {0.5});
  put("min_elapsed_seconds", {std::int64_t{5}});
  put("off", {std::vector<Value>{{std::string("time_over")}}});
  put("on", {std::vector<Value>{{std::string("fragmented")}}});
  EXPECT_EQ(problems(), "");
  EXPECT_EQ(options_.get("cpu_low_warning_ratio"), 0.5);
  EXPECT_EQ(options_.get("min_elapsed_seconds"), 5);
  EXPECT_FALSE(options_.on("time_over"));
  EXPECT_TRUE(options_.on("fragmented"));
  EXPECT_TRUE(options_.on("cpu_low"));
}

TEST_F(FindingOptionsTest, WhatIsWrongIsSaidWithLineKeyAndWhatIsMeant) {
  put("cpu_low_waring_ratio", {0.5});
  put("mem_over_notice_ratio", {1.5});
  put("time_over_seconds", {std::string("long")});
  put("off", {std::vector<Value>{{std::string("cpu_lo")}}});
  EXPECT_THAT(
      problems(),
      ::testing::AllOf(
          HasSubstr(
              "usage.toml:7: source.usage.findings.cpu_low_waring_ratio: unknown key; did you mean "
              "\"cpu_low_warning_ratio\"?"),
          HasSubstr("mem_over_notice_ratio: out of range; allowed: 0 .. 1; given: 1.5"),
          HasSubstr("time_over_seconds: "),
          HasSubstr("no finding has the id \"cpu_lo\"; did you mean \"cpu_low\"?")));
}

// The page that administrators read has every rule and every default.
TEST(FindingDocsTest, TheDocumentationHasEveryRuleAndEveryDefault) {
  std::ifstream file(SCRIPTORIUM_FIXTURES "/../../docs/usage.md");
  ASSERT_TRUE(file) << "docs/usage.md cannot be read";
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (const FindingRuleInfo& rule : finding_rules()) {
    EXPECT_THAT(page, HasSubstr("| `" + std::string(rule.id) + "` |")) << "a row of its own";
  }
  for (const FindingParameter& parameter : finding_parameters()) {
    std::array<char, 64> value{};
    std::snprintf(value.data(), value.size(), "%.10g", parameter.value);
    EXPECT_THAT(page, HasSubstr("| `" + std::string(parameter.key) + "` | " + value.data() + " |"));
  }
}

// The job that tests/system/test_usage_page.py makes for the page.
TEST(FindingDocsTest, TheReportInThePageHasTheFindingsAndSuggestionsOfItsJob) {
  NodeUsage n = node("n12", 7200);
  n.cpu = {.time_seconds = 7200.0, .allocated = 2};
  n.memory = {.peak_working_set_bytes = 430ULL << 20, .limit_bytes = 2 * kGiB, .oom_kills = 0};
  n.programs.programs = {{.name = "python3",
                          .script = "simulate.py",
                          .cpu_seconds = 7177.5,
                          .threads = 4,
                          .busy_threads = 1}};
  JobFacts asked = facts();
  asked.request = {
      .nodes = 1, .cpus = 2, .memory_bytes = 2 * kGiB, .time_limit_seconds = 3 * 3600.0};
  std::ifstream file(SCRIPTORIUM_FIXTURES "/../../docs/usage.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const std::size_t begin = page.find("$ scriptorium report 4711\n");
  const std::string block = page.substr(begin, page.find("```", begin) - begin);
  const std::string screen = std::regex_replace(block, std::regex("\\s+"), " ");
  const JobView job = view_of(asked, {n});
  for (const Finding& found : find_all(job, {}))
    EXPECT_THAT(screen, HasSubstr(found.text + " [" + std::string(found.id) + "]"));
  EXPECT_THAT(ids(job), ElementsAre("cpu_low", "cpu_serial", "mem_over"));
  for (const std::string& line : lines_of(suggest(job, {}))) EXPECT_THAT(screen, HasSubstr(line));
}

}  // namespace
}  // namespace scriptorium::usage
