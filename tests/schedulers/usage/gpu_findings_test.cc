#include "schedulers/usage/gpu_findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "schedulers/usage/job_events.h"
#include "tests/schedulers/usage/job_fixtures.h"

namespace scriptorium::usage {
namespace {

using namespace fixtures;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// As node(), but 1 of its 4 CPUs was busy.
NodeUsage idle_cpus() {
  NodeUsage n = node();
  n.cpu.time_seconds = n.elapsed_seconds;
  return n;
}

TEST(GpuFindingsTest, AGpuThatDidNothingIsCriticalWhetherAProcessHeldItOrNot) {
  NodeUsage n = node();
  n.gpus = {gpu(0.9), gpu(0, "GPU-2")};
  const auto found = find(view(n), "gpu_unused");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->severity, Severity::kCritical);
  EXPECT_EQ(found->value, 1);
  EXPECT_EQ(found->suggest.request.gpus, 1U);
  EXPECT_FALSE(find(view(n), "gpu_low")) << "said already, and worse";
}

TEST(GpuFindingsTest, BusyForAMomentIsNotUnused) {
  NodeUsage n = idle_cpus();
  n.gpus = {gpu(0.0)};
  n.gpus[0].utilization.max = 0.4;
  EXPECT_FALSE(find(view(n), "gpu_unused"));
  EXPECT_TRUE(find(view(n), "gpu_low"));
}

TEST(GpuFindingsTest, GpusThatAreSeldomBusyAreANoticeAndThenAWarning) {
  NodeUsage n = idle_cpus();
  n.gpus = {gpu(0.2)};
  EXPECT_EQ(find(view(n), "gpu_low")->severity, Severity::kNotice);
  n.gpus = {gpu(0.1)};
  EXPECT_EQ(find(view(n), "gpu_low")->severity, Severity::kWarning);
  n.gpus = {gpu(0.25)};
  EXPECT_FALSE(find(view(n), "gpu_low"));
}

TEST(GpuFindingsTest, ALongIdleRunOfAGpuSuggestsToSplitTheJob) {
  NodeUsage n = node();
  n.gpus = {gpu(0.6)};
  n.gpus[0].longest_zero_seconds = 899;
  EXPECT_FALSE(find(view(n), "gpu_idle_run"));
  n.gpus[0].longest_zero_seconds = 900;
  EXPECT_TRUE(find(view(n), "gpu_idle_run"));
}

TEST(GpuFindingsTest, AGpuWithoutReadingsIsNoIdleGpu) {
  NodeUsage n = node();
  NodeGpu mig;  // NVML says NOT_SUPPORTED of a MIG instance's utilization
  mig.id = "MIG-1";
  n.gpus = {mig};
  EXPECT_THAT(ids(view(n)), IsEmpty());
}

TEST(GpuFindingsTest, UnusedGpusNameTheStepThatHasMostOfThem) {
  NodeUsage n = idle_cpus();
  n.gpus = {gpu(0.1), gpu(0.1, "GPU-2")};  // 1.8 GPUs of 3600 s are unused: 6480 s
  n.steps.steps = {step("batch", 3600, 1), step("0", 3600, 1), step("1", 3600, 1)};
  n.steps.steps[0].gpu = {2, 0.1, {}};
  n.steps.steps[1].gpu = {1, 0.1, {}};
  n.steps.steps[2].gpu = {1, 0.101, {}};
  const auto found = [&] { return *find(view(n), "gpu_low"); };
  EXPECT_THAT(found().steps, IsEmpty());
  n.steps.steps[2].gpu.utilization_ratio = 0.099;
  EXPECT_THAT(found().steps, ElementsAre("1"));
  EXPECT_THAT(found().text,
              ::testing::EndsWith(" Most of the unused time is that of step 1, which used 9.9 % of "
                                  "its GPU for 60 min."));
  n.steps.steps[2].gpu.utilization_ratio.reset();
  EXPECT_THAT(found().steps, IsEmpty());
}

TEST(GpuFindingsTest, GpusThatTheNodeDidNotSeeAreOfTheJobToo) {
  JobFacts four = facts();
  four.request.gpus = 4;
  NodeUsage n = idle_cpus();
  n.gpus = {gpu(0.1), gpu(0.1, "GPU-2")};
  JobView job = view_of(four, {n});
  EXPECT_EQ(job.totals.gpu_utilization_ratio, std::nullopt);
  EXPECT_THAT(find(job, "gpu_low")->text, HasSubstr("2 of 4 GPUs could be read"));
  n.gpus[0] = gpu(0);
  EXPECT_THAT(find(view_of(four, {n}), "gpu_unused")->text, HasSubstr("1 of 4 GPUs did nothing"));
  n.gpus[1].energy_joules = 100;
  EXPECT_EQ(view(n).totals.gpu_energy_joules, std::nullopt) << "of one of two";
}

TEST(GpuFindingsTest, EnergyIsTheSumOverAllGpusOfTheJob) {
  NodeUsage first = node();
  NodeUsage second = node("n2");
  first.gpus = {gpu(0.9), gpu(0.9, "GPU-2")};
  second.gpus = {gpu(0.9, "GPU-3")};
  first.gpus[0].energy_joules = 1000;
  first.gpus[1].energy_joules = 200;
  second.gpus[0].energy_joules = 30;
  JobFacts asked = facts(2);
  asked.request.gpus = 3;
  const auto usage = [&] {
    return nlohmann::json::parse(
        job_event("lab", "slurm", view_of(asked, {first, second}), {}).extra_json)["usage"];
  };
  EXPECT_EQ(usage()["gpu"]["energy_joules"], 1230);
  EXPECT_EQ(usage()["nodes"][0]["gpus"][1]["energy_joules"], 200);
  asked.request.shared_gpu = true;
  EXPECT_FALSE(usage()["gpu"].contains("energy_joules")) << "others used the same GPU";
  asked.request = {.nodes = 2, .cpus = 8, .gpus = 4};
  EXPECT_FALSE(usage()["gpu"].contains("energy_joules")) << "one was not seen";
  asked.request.gpus = 3;
  EXPECT_TRUE(usage()["gpu"].contains("energy_joules"));
  second.quality.covered_ratio = 0.5;
  EXPECT_FALSE(usage()["gpu"].contains("energy_joules")) << "half of its time was not seen";
}

TEST(GpuFindingsTest, GpusThatWaitForBusyCpusAreHostBound) {
  struct Case {
    double gpu, cpu;
    std::vector<std::string> found;
  };
  for (const Case& one : std::vector<Case>{{0.50, 1.00, {}},
                                           {0.49, 1.00, {"gpu_host_bound"}},
                                           {0.49, 0.90, {"gpu_host_bound"}},
                                           {0.49, 0.89, {}},
                                           {0.24, 0.90, {"gpu_host_bound"}},
                                           {0.24, 0.89, {"gpu_low"}},
                                           {0.00, 1.00, {"gpu_unused"}}}) {
    NodeUsage n = node();
    n.cpu.time_seconds = one.cpu * 4 * 3600;
    n.gpus = {gpu(one.gpu)};
    EXPECT_EQ(ids(view(n)), one.found) << one.gpu << " of the GPU, " << one.cpu << " of the CPUs";
  }
}

TEST(GpuFindingsTest, AHostBoundJobIsToldItsCpusPerGpu) {
  NodeUsage n = node();
  n.gpus = {gpu(0.4), gpu(0.2, "GPU-2")};
  auto found = find(view(n), "gpu_host_bound");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->severity, Severity::kNotice);
  EXPECT_NEAR(found->value, 0.3, 1e-9);
  EXPECT_EQ(found->threshold, 0.5);
  EXPECT_EQ(
      found->text,
      "The GPUs were busy for 30 % of the time on average. Meanwhile 100 % of the CPUs were busy: "
      "the program probably waits for its CPUs, and the GPUs wait with it. Ask for "
      "more CPUs for each GPU (it had 2), or for fewer GPUs.");
  n.gpus = {gpu(0.14)};
  found = find(view(n), "gpu_host_bound");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->severity, Severity::kWarning);
  EXPECT_EQ(found->threshold, 0.15);
  FindingOptions off;
  off.enable("gpu_host_bound", false);
  EXPECT_THAT(ids(view(n), off), ElementsAre("gpu_low"));
}

TEST(GpuFindingsTest, ByAccountingTheHighestReadingSaysThatGpusWaitForCpus) {
  JobView job;
  job.facts = facts();
  job.facts.request.gpus = 2;
  job.nodes_expected = job.nodes_measured = 1;
  job.accounting = true;
  job.totals.elapsed_seconds = 3600;
  job.totals.cpus = 4;
  job.totals.cpu_seconds = 4 * 3600;
  job.totals.gpu_peak_utilization_ratio = 0.2;
  const auto found = find(job, "gpu_host_bound");
  ASSERT_TRUE(found);
  EXPECT_THAT(found->text,
              HasSubstr("No reading of the accounting has the GPUs more than 20 % busy. Meanwhile "
                        "100 % of the CPUs were busy:"));
  job.totals.cpu_seconds = 3600;
  EXPECT_THAT(ids(job), ElementsAre("gpu_low"));
}

TEST(GpuFindingsTest, GpusWhoseMemoryIsHardlyUsedMayBeSmaller) {
  NodeUsage n = node();
  n.gpus = {gpu(0.9), gpu(0.9, "GPU-2")};
  n.gpus[0].peak_memory_bytes = 2 * kGiB;
  n.gpus[1].peak_memory_bytes = 8 * kGiB;
  EXPECT_THAT(ids(view(n)), IsEmpty());
  n.gpus[1].peak_memory_bytes = 8 * kGiB - 1;
  const auto found = find(view(n), "gpu_memory_low");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->severity, Severity::kNotice);
  EXPECT_NEAR(found->value, 0.1, 1e-9);
  EXPECT_THAT(found->text, HasSubstr("At most 8.0 GiB of the 80.0 GiB of memory of a GPU were "
                                     "needed (10 %), and others may wait"));
  FindingOptions lower;
  lower.set("gpu_memory_low_ratio", 0.05);
  EXPECT_THAT(ids(view(n), lower), IsEmpty());
}

TEST(GpuFindingsTest, MemoryOfGpusIsNotJudgedWhereItIsUnusedSharedOrNotKnown) {
  NodeUsage n = node();
  n.gpus = {gpu(0.9), gpu(0.9, "GPU-2")};
  for (NodeGpu& one : n.gpus) one.peak_memory_bytes = kGiB;
  JobFacts asked = facts();
  const auto found = [&] { return find(view_of(asked, {n}), "gpu_memory_low").has_value(); };
  EXPECT_TRUE(found());
  asked.request.gpus = 3;
  EXPECT_FALSE(found()) << "one was not seen";
  asked.request.gpus = 2;
  asked.request.shared_gpu = true;
  EXPECT_FALSE(found()) << "it had a part of it";
  asked.request.shared_gpu = false;
  n.gpus[1].memory_limit_bytes.reset();
  EXPECT_FALSE(found());
  n.gpus[1] = gpu(0, "GPU-2");
  n.gpus[1].peak_memory_bytes = 0;
  EXPECT_FALSE(found()) << "gpu_unused says it, and it is worse";
}

TEST(GpuFindingsTest, ClocksThatAreHeldDownAreAMatterForTheSitesStaff) {
  NodeUsage first = node();
  NodeUsage second = node("n2");
  first.gpus = {gpu(0.9), gpu(0.9, "GPU-2")};
  second.gpus = {gpu(0.9, "GPU-3")};
  second.gpus[0].throttled_ratio = 0.099;
  const auto job = [&] { return view_of(facts(2), {first, second}); };
  EXPECT_THAT(ids(job()), IsEmpty());
  second.gpus[0].throttled_ratio = 0.1;
  auto found = find(job(), "gpu_throttled");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->severity, Severity::kWarning);
  EXPECT_EQ(found->value, 0.1);
  EXPECT_THAT(found->hosts, ElementsAre("n2"));
  EXPECT_THAT(found->text,
              HasSubstr("1 of 3 GPUs worked with their clocks held down for 10 % of the time,"));
  EXPECT_THAT(found->text, HasSubstr("report it to the site's staff"));
  EXPECT_TRUE(found->suggest.empty());
  first.gpus[0].throttled_ratio = 0.6;
  found = find(job(), "gpu_throttled");
  ASSERT_TRUE(found);
  EXPECT_THAT(found->hosts, ElementsAre("n1", "n2"));
  EXPECT_THAT(found->text, HasSubstr("2 of 3 GPUs worked with their clocks held down for up to "
                                     "60 % of the time,"));
  first.quality.covered_ratio = 0.5;
  EXPECT_THAT(ids(job()), Not(::testing::Contains("gpu_throttled"))) << "too little was seen";
}

}  // namespace
}  // namespace scriptorium::usage
