#include "schedulers/usage/own_usage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "schedulers/usage/own_place.h"
#include "tests/schedulers/usage/cgroup_lab.h"
#include "tests/schedulers/usage/job_fixtures.h"
#include "tests/support/recording_logger.h"

namespace scriptorium::usage {
namespace {

using test::CgroupLab;
using test::FakeClock;
using test::V1Job;
using ::testing::HasSubstr;
using OwnJson = nlohmann::ordered_json;

// ---- where a process is

struct PlaceCase {
  const char* what;
  const char* groups;
  Variables variables;
  const char* scheduler;
  const char* directory;
  const char* job;
  const char* node;
  bool is_launched;
};

class OwnPlaceTest : public ::testing::TestWithParam<PlaceCase> {};

TEST_P(OwnPlaceTest, IsThatOfTheJobWhoseControlGroupsTheProcessIsIn) {
  const PlaceCase& is = GetParam();
  SCOPED_TRACE(is.what);
  const auto own = find_own_place(is.groups, is.variables);
  ASSERT_TRUE(own);
  EXPECT_EQ(own->directory.scheduler, is.scheduler);
  EXPECT_EQ(own->directory.name, is.directory);
  EXPECT_EQ(own->place.job, is.job);
  EXPECT_EQ(own->place.node, is.node);
  EXPECT_EQ(own->place.is_launched, is.is_launched);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, OwnPlaceTest,
    ::testing::Values(
        PlaceCase{"batch script, v1",
                  "4:memory:/slurm/uid_5/job_17/step_batch/task_0\n1:cpu:/\n0::/\n",
                  {{"SLURM_JOB_ID", "99"}},
                  "slurm",
                  "job_17",
                  "17",
                  "",
                  false},
        PlaceCase{"step, v1, several slurmds",
                  "0::/\n4:memory:/slurm_n2/uid_5/job_17/step_0/task_3\n",
                  {},
                  "slurm",
                  "job_17",
                  "17",
                  "n2",
                  true},
        PlaceCase{"step, v2",
                  "0::/system.slice/slurmstepd.scope/job_17/step_12/user/task_0\n",
                  {},
                  "slurm",
                  "job_17",
                  "17",
                  "",
                  true},
        PlaceCase{"batch script, v2, several slurmds, the directory named by a SLUID",
                  "0::/system.slice/n1_slurmstepd.scope/s0123456789ABC/step_batch/user/task_0\n",
                  {{"SLURM_JOB_ID", "17"}},
                  "slurm",
                  "s0123456789ABC",
                  "17",
                  "n1",
                  false},
        PlaceCase{"PBS",
                  "0::/pbs_jobs.service/jobid/4711.server\n",
                  {{"PBS_TASKNUM", "1"}},
                  "pbs",
                  "4711.server",
                  "4711.server",
                  "",
                  false},
        PlaceCase{"Torque, by pbsdsh",
                  "3:memory:/torque/4711[3].server\n",
                  {{"PBS_TASKNUM", "2"}},
                  "torque",
                  "4711[3].server",
                  "4711[3].server",
                  "",
                  true},
        PlaceCase{"a container of its own control groups in a job of Slurm",
                  "0::/\n",
                  {{"SLURM_JOB_ID", "17"}},
                  "slurm",
                  "job_17",
                  "17",
                  "",
                  false},
        PlaceCase{"likewise of Torque",
                  "0::/\n",
                  {{"PBS_JOBID", "4711.server"}, {"PBS_VERSION", "TORQUE-6.1.3"}},
                  "torque",
                  "4711.server",
                  "4711.server",
                  "",
                  false}));

TEST(OwnPlacesTest, AProcessOutsideOfJobsHasNone) {
  EXPECT_FALSE(find_own_place("", {}));
  EXPECT_FALSE(find_own_place("0::/user.slice/user-5.slice/session-1.scope\n", {}));
  EXPECT_FALSE(find_own_place("0::/system.slice/slurmstepd.scope/system\n", {}));
  EXPECT_FALSE(find_own_place("4:memory:/slurm/uid_5\n", {{"SLURM_JOB_ID", "many"}}));
  EXPECT_FALSE(find_own_place("0::/\n", {{"PBS_JOBID", "../etc"}}));
}

TEST(OwnPlacesTest, OnlyTheFirstTaskOfANodeMeasuresAndOnlyTheFirstOfAllMerges) {
  const char* groups = "0::/system.slice/slurmstepd.scope/job_17/step_0/user/task_0\n";
  const auto place = [&](const char* rank, const char* on_node) {
    return find_own_place(groups, {{"SLURM_PROCID", rank}, {"SLURM_LOCALID", on_node}})->place;
  };
  EXPECT_TRUE(place("0", "0").measures && place("0", "0").merges);
  EXPECT_TRUE(place("2", "0").measures && !place("2", "0").merges);
  EXPECT_FALSE(place("3", "1").measures);
}

TEST(OwnFactsTest, AreThoseThatSlurmWroteIntoTheEnvironment) {
  const JobFacts facts = facts_of({{"SLURM_JOB_NAME", "relax"},
                                   {"SLURM_JOB_ACCOUNT", "chem"},
                                   {"SLURM_JOB_PARTITION", "long"},
                                   {"SLURM_ARRAY_JOB_ID", "40"},
                                   {"SLURM_ARRAY_TASK_ID", "3"},
                                   {"SLURM_JOB_NUM_NODES", "3"},
                                   {"SLURM_JOB_CPUS_PER_NODE", "16(x2),8"},
                                   {"SLURM_MEM_PER_CPU", "1024"},
                                   {"SLURM_JOB_START_TIME", "1795219200"},
                                   {"SLURM_JOB_END_TIME", "1795222800"}},
                                  "slurm");
  EXPECT_EQ(facts.job.name, "relax");
  EXPECT_EQ(facts.job.account, "chem");
  EXPECT_EQ(facts.job.partition, "long");
  EXPECT_EQ(facts.job.array->job_id, "40");
  EXPECT_EQ(facts.job.array->task_id, "3");
  EXPECT_EQ(facts.request.nodes, 3U);
  EXPECT_EQ(facts.request.cpus, 40U);
  EXPECT_EQ(facts.request.memory_bytes, std::uint64_t{40} << 30);
  EXPECT_EQ(facts.request.time_limit_seconds, 3600);
  EXPECT_FALSE(facts.state);
  EXPECT_FALSE(facts.user.id) << "anybody can write it there";
}

TEST(OwnFactsTest, WhatIsNotThereOrMalformedIsAbsent) {
  const JobFacts facts = facts_of({{"SLURM_JOB_NUM_NODES", "two"},
                                   {"SLURM_JOB_CPUS_PER_NODE", "16(x"},
                                   {"SLURM_MEM_PER_NODE", "0"},
                                   {"SLURM_JOB_NAME", "vasp"},
                                   {"SLURM_STEP_ID", "0"},
                                   {"SLURM_JOB_START_TIME", "1795222800"},
                                   {"SLURM_JOB_END_TIME", "1795219200"}},
                                  "slurm");
  EXPECT_FALSE(facts.request.nodes);
  EXPECT_FALSE(facts.request.cpus);
  EXPECT_FALSE(facts.request.memory_bytes) << "0 is all of the node's";
  EXPECT_FALSE(facts.request.time_limit_seconds);
  EXPECT_FALSE(facts.job.name) << "it is the step's";
  EXPECT_EQ(facts_of({{"PBS_JOBNAME", "relax"}}, "pbs").job.name, "relax");
}

// ---- the parts of several nodes

std::string part_of(const std::string& name, double seconds) {
  return node_record(fixtures::node(name, seconds));
}

std::vector<std::pair<std::string, double>> names_of(const std::vector<NodeUsage>& nodes) {
  std::vector<std::pair<std::string, double>> names;
  for (const NodeUsage& node : nodes) names.emplace_back(node.job.node, node.elapsed_seconds);
  return names;
}

using Names = std::vector<std::pair<std::string, double>>;

TEST(OwnPartsTest, EachNodeCountsOnceAsItWasReadLast) {
  const auto nodes =
      nodes_of_parts({part_of("n3", 60), part_of("n1", 10), part_of("n2", 50), part_of("n2", 55)},
                     fixtures::node("n1", 61));
  EXPECT_EQ(names_of(nodes), (Names{{"n1", 61}, {"n2", 55}, {"n3", 60}}));
}

TEST(OwnPartsTest, PartsOfOtherJobsAndOfEarlierRunsAndDamagedOnesAreLeftOut) {
  NodeUsage other = fixtures::node("n2", 60);
  other.job.job_id = "4712";
  NodeUsage before = fixtures::node("n3", 60);
  before.job.started_at = fixtures::after(-3600);
  before.ended_at = fixtures::after(-60);
  const std::string whole = part_of("n4", 60);
  const auto nodes = nodes_of_parts({node_record(other), node_record(before),
                                     whole.substr(0, whole.size() / 2), "", "{}", part_of("n5", 9)},
                                    fixtures::node("n1", 60));
  EXPECT_EQ(names_of(nodes), (Names{{"n1", 60}, {"n5", 9}}));
}

// ---- measuring

class OwnUsageTest : public ::testing::Test {
 protected:
  OwnUsageTest() {
    lab_.dir().write("proc/meminfo", "MemTotal: 1000 kB\n");
    lab_.dir().write("proc/self/cgroup", "");
    job_.emplace(lab_, "17");
    other_.emplace(lab_, "18");
    options_.sampler.root = lab_.root();
    options_.sampler.proc = lab_.proc();
    options_.sampler.node = "n1";
    options_.sampler.process_io = false;
    options_.sampler.only = JobDirectory{"slurm", "job_17"};
    options_.jobs.resolve = Resolve::kNone;
    options_.jobs.findings.set("min_samples", 1);
  }

  CgroupLab lab_;
  FakeClock clock_;
  scriptorium::test::RecordingLogger log_;
  std::optional<V1Job> job_, other_;
  OwnUsage::Options options_;

  std::unique_ptr<OwnUsage> make(Variables variables = {}) {
    OwnPlace own{.directory = *options_.sampler.only};
    own.place.job = own.directory.name.substr(4);
    own.place.node = "n1";
    return std::make_unique<OwnUsage>(own, options_, std::move(variables),
                                      PluginContext{"usage", "", log_, clock_}, real_files());
  }
};

TEST_F(OwnUsageTest, ReportsTheWholeCpuTimeOfTheOwnJobAloneAfterOneReading) {
  clock_.advance(std::chrono::seconds(600));
  job_->cpu(1200);
  other_->cpu(5000);
  const auto own = make({{"SLURM_CLUSTER_NAME", "lab"}, {"SLURM_JOB_NUM_NODES", "1"}});
  ASSERT_TRUE(own->step(true).has_value());
  const auto events = own->merge({}, true, {});
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].kind, "usage.job");
  EXPECT_EQ(events[1].kind, "usage.node");
  EXPECT_EQ(events[0].cluster, "lab");
  EXPECT_FALSE(events[0].complete) << "the job has not ended";
  EXPECT_FALSE(events[1].complete);
  const OwnJson extra = OwnJson::parse(events[0].extra_json);
  EXPECT_EQ(extra["job"]["state"], "RUNNING");
  EXPECT_EQ(extra["usage"]["cpu"]["time_seconds"], 1200);
  EXPECT_NEAR(extra["usage"]["cpu"]["efficiency_ratio"].get<double>(), 0.5, 0.01)
      << "the counter has all of it, however late it was read";
  EXPECT_FALSE(extra["usage"]["memory"].contains("efficiency_ratio")) << "its peak was not seen";
  EXPECT_EQ(extra["usage"]["quality"]["status"], "partial");
  EXPECT_EQ(extra["usage"]["nodes"].size(), 1U);
  EXPECT_EQ(OwnJson::parse(events[1].extra_json)["usage"]["quality"]["last_read"], "running");
}

TEST_F(OwnUsageTest, MergesWhatAnotherNodeGaveAndSaysNothingOfTheStateAtTheEnd) {
  const auto own = make({{"SLURM_JOB_NUM_NODES", "2"}});
  ASSERT_TRUE(own->step(true).has_value());
  auto node = parse_node(own->part());
  ASSERT_TRUE(node.has_value());
  node->job.node = "n2";
  node->cpu.time_seconds = 7;
  const auto events = own->merge({node_record(*node)}, false, {});
  ASSERT_EQ(events.size(), 3U);
  const OwnJson extra = OwnJson::parse(events[0].extra_json);
  EXPECT_FALSE(extra["job"].contains("state"));
  EXPECT_EQ(extra["usage"]["cpu"]["time_seconds"], 7);
  EXPECT_EQ(extra["usage"]["nodes"].size(), 2U);
}

TEST_F(OwnUsageTest, TakesAReadingWhenOneIsDueAndNoneBefore) {
  const auto own = make();
  ASSERT_TRUE(*own->step(true));
  EXPECT_FALSE(*own->step(false));
  clock_.advance(own->next_step() - clock_.steady());
  EXPECT_TRUE(*own->step(false));
  EXPECT_TRUE(*own->step(true)) << "when it is asked for";
}

TEST_F(OwnUsageTest, RefusesAJobThatHasNoControlGroupsHere) {
  options_.sampler.only = JobDirectory{"slurm", "job_19"};
  const auto own = make();
  const auto read = own->step(true);
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().kind(), ErrorKind::kPermanent);
  EXPECT_THAT(read.error().message(), HasSubstr("job 19 has no control groups on this node (n1)"));
}

}  // namespace
}  // namespace scriptorium::usage
