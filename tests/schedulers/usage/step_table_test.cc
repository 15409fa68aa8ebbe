#include "schedulers/usage/step_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedulers/usage/life.h"
#include "schedulers/usage/step_reader.h"

namespace scriptorium::usage {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Optional;

constexpr std::int64_t kSecondNs = 1'000'000'000;

// That many seconds after the job's start, which is at 1000 of the steady clock.
Moment at(double seconds) {
  const auto ns = static_cast<std::int64_t>(seconds * kSecondNs);
  return {SteadyTime(std::chrono::nanoseconds(1000 * kSecondNs + ns)),
          Timestamp{5000 * kSecondNs + ns}};
}

Reading reading(double seconds, std::optional<double> cpu_seconds,
                std::optional<std::uint64_t> anon_bytes = std::nullopt) {
  Reading made;
  made.at = at(seconds).at;
  made.time = at(seconds).time;
  made.put(CpuStat{.time_seconds = cpu_seconds}, Method::kCgroup1);
  made.put(MemoryStat{.anon_bytes = anon_bytes}, Method::kCgroup1);
  return made;
}

class StepTableTest : public ::testing::Test {
 protected:
  StepTable steps_;

  std::map<std::string, StepUse> uses() const {
    std::map<std::string, StepUse> by_name;
    for (const StepUse& one : steps_.uses(at(100)).steps) by_name[one.name] = one;
    return by_name;
  }
};

TEST_F(StepTableTest, AStepHasWhatItWasReadToUseUntilItsLastTaskWasRemoved) {
  steps_.appeared("batch", at(0));
  steps_.appeared("0", at(10));
  Reading first = reading(12, 1.5, 70);
  first.cpu.allocated = 4;
  first.memory.peak_charged_bytes = 90;
  steps_.add("0", first, false);
  steps_.add("0", reading(30, 50, 40), false);
  Reading last = reading(40, 80, 0);
  last.memory.peak_charged_bytes = 120;
  steps_.add("0", last, true);
  steps_.removed("0", at(41), true);

  const StepUse step = uses().at("0");
  EXPECT_EQ(step.started_at, at(10).time);
  EXPECT_EQ(step.ended_at, at(40).time) << "when its task was removed, not its directory";
  EXPECT_DOUBLE_EQ(step.elapsed_seconds, 30);
  EXPECT_THAT(step.cpu.time_seconds, Optional(80.0));
  EXPECT_THAT(step.cpu.allocated, Optional(4U));
  EXPECT_THAT(step.cpu.efficiency_ratio, Optional(DoubleNear(80.0 / 120, 1e-9)));
  EXPECT_THAT(step.memory.peak_working_set_bytes, Optional(70U));
  EXPECT_THAT(step.memory.peak_charged_bytes, Optional(120U));
  EXPECT_EQ(step.memory.oom_kills, std::nullopt) << "nobody counted any";
  EXPECT_EQ(step.last_read, LastRead::kRemoval);

  const StepUse batch = uses().at("batch");
  EXPECT_DOUBLE_EQ(batch.elapsed_seconds, 100) << "one that still runs ends with its job";
  EXPECT_EQ(batch.cpu.time_seconds, std::nullopt) << "never read";
  EXPECT_EQ(batch.last_read, LastRead::kSample);
}

TEST_F(StepTableTest, AJobThatOnlyHasItsBatchStepHasNoSteps) {
  steps_.appeared("batch", at(0));
  steps_.appeared("extern", at(0));
  EXPECT_TRUE(steps_.uses(at(5)).steps.empty());
  steps_.appeared("interactive", at(1));
  EXPECT_EQ(uses().size(), 2U) << "the extern step, which did nothing, is left out";
  steps_.add("extern", reading(2, 0.99), false);
  EXPECT_EQ(uses().count("extern"), 0U);
  steps_.add("extern", reading(3, 1), false);
  EXPECT_EQ(uses().count("extern"), 1U) << "somebody came in by ssh";
}

TEST_F(StepTableTest, WhatIsReadOfAStepThatIsBeingRemovedIsNotTakenForItsEnd) {
  steps_.appeared("0", at(0));
  steps_.add("0", reading(10, 5, 10), true);
  steps_.add("0", reading(11, std::nullopt, 10), true);   // its CPU time is gone already
  steps_.add("0", reading(12, std::nullopt, 10), false);  // likewise, by a sweep
  steps_.add("0", reading(13, 5, 10), false);             // it is still there, but does nothing
  EXPECT_EQ(uses().at("0").last_read, LastRead::kRemoval);
  EXPECT_DOUBLE_EQ(uses().at("0").elapsed_seconds, 10);
  steps_.add("0", reading(20, 6), false);
  EXPECT_EQ(uses().at("0").last_read, LastRead::kSample) << "another task of it runs";
  steps_.removed("0", at(30), true);
  EXPECT_DOUBLE_EQ(uses().at("0").elapsed_seconds, 30);
}

TEST_F(StepTableTest, AStepWhoseEndWasNotSeenEndedAtItsLastReading) {
  steps_.appeared("0", at(0));
  steps_.add("0", reading(10, 5), false);
  steps_.removed("0", at(40), false);
  steps_.removed("0", at(50), true);  // once is enough
  EXPECT_DOUBLE_EQ(uses().at("0").elapsed_seconds, 10);
}

TEST_F(StepTableTest, WithoutACounterOfCpuTimeTheOthersTellTheEnd) {
  steps_.appeared("0", at(0));
  steps_.add("0", reading(10, std::nullopt, 7), true);
  EXPECT_EQ(uses().at("0").last_read, LastRead::kRemoval);
  EXPECT_DOUBLE_EQ(uses().at("0").elapsed_seconds, 10);
}

TEST_F(StepTableTest, AnotherStepTakesThePlaceOfTheSmallestThatEnded) {
  for (std::size_t i = 0; i < StepTable::kMostSteps; ++i) {
    const std::string name = std::to_string(i);
    steps_.appeared(name, at(static_cast<double>(i)));
    steps_.add(name, reading(200, i == 7 ? 1 : i == 70 ? 0.5 : 10), false);
    if (i < 10) steps_.removed(name, at(201), true);
  }
  steps_.appeared("1000", at(202));
  steps_.add("1000", reading(210, 500), true);
  EXPECT_EQ(steps_.find("7"), nullptr);
  EXPECT_NE(steps_.find("1000"), nullptr);
  steps_.appeared("7", at(203));
  EXPECT_EQ(steps_.find("7"), nullptr) << "its directory is listed once more";
  EXPECT_EQ(steps_.state().left_out.steps, 1U);

  EXPECT_NE(steps_.find("70"), nullptr) << "it runs";
  const StepUses all = steps_.uses(at(300));
  EXPECT_EQ(all.steps.size(), kMostStepsShown);
  EXPECT_EQ(all.steps.front().name, "0") << "by start";
  EXPECT_EQ(all.steps.back().name, "1000") << "of those that used most";
  ASSERT_TRUE(all.other);
  EXPECT_EQ(all.other->steps, StepTable::kMostSteps + 1 - kMostStepsShown);
  EXPECT_THAT(all.other->cpu_seconds, Optional(DoubleNear(95 * 10 + 1 + 0.5, 1e-6)));
}

TEST_F(StepTableTest, WhileAllRunOneMoreIsOnlyCounted) {
  for (std::size_t i = 0; i < StepTable::kMostSteps + 3; ++i)
    steps_.appeared(std::to_string(i), at(1));
  for (std::size_t i = 0; i < StepTable::kMostSteps + 3; ++i)  // all are listed again
    steps_.appeared(std::to_string(i), at(2));
  EXPECT_EQ(steps_.state().steps.size(), StepTable::kMostSteps);
  EXPECT_EQ(steps_.state().steps.front().name, "0");
  EXPECT_EQ(steps_.state().left_out.steps, 3U);
  EXPECT_EQ(steps_.state().left_out.cpu_seconds, std::nullopt) << "nobody reads them";
  steps_.add("130", reading(5, 1), true);  // unknown: nothing happens
  steps_.removed("130", at(6), true);
}

TEST_F(StepTableTest, AStateFileKeepsIt) {
  for (std::size_t i = 0; i < StepTable::kMostSteps + 1; ++i) {
    steps_.appeared(std::to_string(i), at(1.5));
    steps_.removed(std::to_string(i), at(2), true);
  }
  Reading last = reading(3.25, 2.125, 77);
  last.cpu.allocated = 2;
  last.memory.peak_charged_bytes = 88;
  last.memory.oom_kills = 1;
  steps_.add("128", last, true);
  LifeState life;
  life.job.job_id = "7";
  life.steps = steps_;
  const auto parsed = parse_life(life_record(life));
  ASSERT_TRUE(parsed);
  const auto before = steps_.uses(at(10)), after = parsed->steps.uses(at(10));
  EXPECT_EQ(steps_json(after), steps_json(before));
  EXPECT_THAT(steps_json(after), ::testing::HasSubstr(R"("peak_charged_bytes":88)"));
  EXPECT_EQ(parsed->steps.state().left_out.steps, 1U);
  EXPECT_FALSE(parsed->steps.find("5")->runs);
  StepTable again = parsed->steps;
  again.appeared("0", at(4));
  EXPECT_EQ(again.state().left_out.steps, 1U) << "one that was left out is not counted again";
}

TEST_F(StepTableTest, StepsOfSeveralNodesAreOne) {
  const auto node = [](double started, double ended, double cpu, std::uint64_t bytes,
                       LastRead last) {
    NodeUsage made;
    StepUse step{.name = "0",
                 .started_at = at(started).time,
                 .ended_at = at(ended).time,
                 .elapsed_seconds = ended - started,
                 .last_read = last};
    step.cpu.time_seconds = cpu;
    step.cpu.allocated = 2;
    step.memory.peak_working_set_bytes = bytes;
    step.memory.oom_kills = 1;
    made.steps.steps.push_back(step);
    made.steps.other = StepRest{.steps = 3, .cpu_seconds = 1};
    return made;
  };
  std::vector<NodeUsage> nodes = {node(1, 11, 5, 100, LastRead::kRemoval),
                                  node(2, 22, 15, 50, LastRead::kSample)};
  nodes[1].steps.other->steps = 4;
  nodes[1].steps.steps[0].memory.peak_charged_bytes = 70;
  nodes[0].steps.steps.push_back({.name = "1", .started_at = at(0).time});
  const StepUses all = merge_steps(nodes);
  ASSERT_EQ(all.steps.size(), 2U);
  EXPECT_EQ(all.steps[0].name, "1");
  const StepUse& step = all.steps[1];
  EXPECT_EQ(step.started_at, at(1).time);
  EXPECT_EQ(step.ended_at, at(22).time);
  EXPECT_DOUBLE_EQ(step.elapsed_seconds, 20);
  EXPECT_THAT(step.cpu.time_seconds, Optional(20.0));
  EXPECT_THAT(step.cpu.allocated, Optional(4U));
  EXPECT_THAT(step.cpu.efficiency_ratio, Optional(DoubleNear(20.0 / (20 * 4), 1e-9)));
  EXPECT_THAT(step.memory.peak_working_set_bytes, Optional(150U));
  EXPECT_THAT(step.memory.oom_kills, Optional(2U));
  EXPECT_EQ(step.memory.peak_charged_bytes, std::nullopt) << "one node did not measure it";
  EXPECT_EQ(step.last_read, LastRead::kSample) << "of one node, what came after it is missing";
  ASSERT_TRUE(all.other);
  EXPECT_EQ(all.other->steps, 4U) << "at least: which are the same on both is not known";
  EXPECT_THAT(all.other->cpu_seconds, Optional(2.0));
}

TEST_F(StepTableTest, GpusOfSeveralNodesAreOneMean) {
  const auto node = [](StepGpu gpu) {
    NodeUsage made;
    made.steps.steps = {{.name = "0", .gpu = gpu}};
    return made;
  };
  const auto merged = [&](std::vector<StepGpu> gpus) {
    std::vector<NodeUsage> nodes;
    for (const StepGpu& gpu : gpus) nodes.push_back(node(gpu));
    return merge_steps(nodes).steps.at(0).gpu;
  };
  const StepGpu all = merged({{}, {1, 0.8, 10}, {3, 0.4, 20}, {}});
  EXPECT_EQ(all.count, 4U);
  EXPECT_THAT(all.utilization_ratio, Optional(DoubleNear(0.5, 1e-9)));
  EXPECT_EQ(all.peak_memory_bytes, 30U);
  const StepGpu unknown = merged({{1, std::nullopt, 10}, {3, 0.4, std::nullopt}});
  EXPECT_EQ(unknown.count, 4U);
  EXPECT_EQ(unknown.utilization_ratio, std::nullopt);
  EXPECT_EQ(unknown.peak_memory_bytes, std::nullopt);
}

TEST(StepNameTest, IsWhatFollowsStep) {
  EXPECT_EQ(step_name("step_0"), "0");
  EXPECT_EQ(step_name("step_batch/task_0"), "batch");
  EXPECT_EQ(step_name("step_12/user/task_3"), "12");
}

}  // namespace
}  // namespace scriptorium::usage
