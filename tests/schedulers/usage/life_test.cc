#include "schedulers/usage/life.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace scriptorium::usage {
namespace {

using namespace std::chrono_literals;
using ::testing::DoubleNear;
using ::testing::Optional;

constexpr Timestamp kBegin{1795219200LL * 1'000'000'000};

class LifeTest : public ::testing::Test {
 protected:
  Life life_ = Life::begin(seen(), SteadyTime(1h));

  static JobSeen seen() {
    JobSeen job;
    job.scheduler = "slurm";
    job.job_id = "4711";
    job.node = "n1";
    job.uid = 1001;
    job.uid_trusted = true;
    job.started_at = kBegin;
    return job;
  }
  static Reading reading(double at, double cpu_seconds, std::uint64_t anon = 100,
                         std::uint32_t cpus = 4) {
    Reading reading;
    reading.at = SteadyTime(1h) + std::chrono::duration_cast<SteadyTime::duration>(
                                      std::chrono::duration<double>(at));
    reading.time = Timestamp{kBegin.nanoseconds + static_cast<std::int64_t>(at * 1e9)};
    reading.source.cpu = Method::kCgroup1;
    reading.source.memory = Method::kCgroup1;
    reading.cpu.time_seconds = cpu_seconds;
    reading.cpu.allocated = cpus;
    reading.memory.anon_bytes = anon;
    return reading;
  }
  void add(double at, double cpu_seconds, std::uint64_t anon = 100) {
    life_.add(reading(at, cpu_seconds, anon), 30);
  }
  NodeUsage finish(double at, LastRead last = LastRead::kRemoval) const {
    const Reading end = reading(at, 0);
    return life_.finish(end.at, end.time, last);
  }
};

TEST_F(LifeTest, EfficiencyIsCpuTimeOverAllocatedTime) {
  for (int i = 0; i <= 10; ++i) add(i * 30, i * 60);  // two of four CPUs
  const NodeUsage node = finish(300);
  EXPECT_THAT(node.cpu.efficiency_ratio, Optional(DoubleNear(0.5, 1e-9)));
  EXPECT_THAT(node.cpu.utilization.avg, Optional(DoubleNear(0.5, 1e-9)));
  EXPECT_THAT(node.cpu.utilization.min, Optional(DoubleNear(0.5, 1e-9)));
  EXPECT_THAT(node.cpu.utilization.max, Optional(DoubleNear(0.5, 1e-9)));
  EXPECT_THAT(node.cpu.utilization.p50, Optional(DoubleNear(0.5, 1e-9)));
  EXPECT_THAT(node.cpu.idle_tail_seconds, Optional(DoubleNear(0, 1e-9)));
  EXPECT_THAT(node.quality.covered_ratio, Optional(DoubleNear(1, 1e-9)));
  EXPECT_EQ(node.quality.samples, 11U);
  EXPECT_EQ(node.quality.gap_seconds, std::nullopt);
  EXPECT_TRUE(node.complete());
}

// Others drop readings whose CPU time equals an earlier one, so that a job that is busy a fifth of
// its time reads "100 %".
TEST_F(LifeTest, IdleReadingsCountAsMuchAsBusyOnes) {
  double cpu = 0;
  for (int i = 0; i <= 10; ++i) {
    if (i == 4 || i == 8) cpu += 4 * 30;  // all four CPUs in two of ten intervals
    add(i * 30, cpu);
  }
  const NodeUsage node = finish(300);
  EXPECT_EQ(node.quality.samples, 11U);
  EXPECT_THAT(node.cpu.utilization.avg, Optional(DoubleNear(0.2, 1e-9)));
  EXPECT_THAT(node.cpu.utilization.min, Optional(DoubleNear(0, 1e-9)));
  EXPECT_THAT(node.cpu.utilization.max, Optional(DoubleNear(1, 1e-9)));
  EXPECT_THAT(node.cpu.utilization.p50, Optional(DoubleNear(0, 1e-9)));
  EXPECT_THAT(node.cpu.efficiency_ratio, Optional(DoubleNear(0.2, 1e-9)));
  EXPECT_THAT(node.cpu.idle_tail_seconds, Optional(DoubleNear(60, 1e-9)));
}

TEST_F(LifeTest, AnIdleTailBeginsWhereTheLastBusyIntervalEnds) {
  add(0, 0);
  add(30, 100);
  add(60, 101.1);  // 1.1 s of 120 s: less than 1 %
  add(90, 101.2);
  EXPECT_THAT(finish(100).cpu.idle_tail_seconds, Optional(DoubleNear(70, 1e-9)));
}

TEST_F(LifeTest, WhatItTakesToEndAJobDoesNotEndAnIdleTail) {
  add(0, 0);
  add(30, 100);
  add(60, 100.9);
  Life computed = life_;
  add(62, 101);  // 0.1 s of 8 s: more than 1 %
  EXPECT_THAT(finish(62).cpu.idle_tail_seconds, Optional(DoubleNear(32, 1e-9)));
  computed.add(reading(62, 101.3), 30);  // 1.3 s of 128 s as well
  life_ = computed;
  EXPECT_THAT(finish(62).cpu.idle_tail_seconds, Optional(DoubleNear(0, 1e-9)));
  add(92, 101.3);
  add(93, 101.4);  // 0.1 s of 4 s
  add(94, 101.5);  // as long as the one before, so it is not the end
  EXPECT_THAT(finish(94).cpu.idle_tail_seconds, Optional(DoubleNear(0, 1e-9)));
}

TEST_F(LifeTest, WorkingMemoryIsAnonymousSharedAndSwappedTogether) {
  Reading first = reading(0, 0, 1000);
  first.memory.shmem_bytes = 500;
  first.memory.swap_bytes = 20;
  first.memory.file_bytes = 1'000'000;
  first.memory.charged_bytes = 1'001'500;
  first.memory.peak_charged_bytes = 2'000'000;
  life_.add(first, 30);
  add(30, 1, 100);
  const NodeUsage node = finish(60);
  EXPECT_THAT(node.memory.peak_working_set_bytes, Optional(1520U))
      << "page cache is not what a job needs";
  EXPECT_THAT(node.memory.avg_working_set_bytes, Optional(1520U))
      << "what the last reading found was not there before it";
  EXPECT_THAT(node.memory.peak_charged_bytes, Optional(2'000'000U));
  EXPECT_THAT(node.memory.peak_swap_bytes, Optional(20U));
}

TEST_F(LifeTest, WithoutACounterOfThePeakTheLargestThatWasSeenStandsForIt) {
  Reading one = reading(0, 0);
  one.memory.charged_bytes = 700;
  life_.add(one, 30);
  EXPECT_THAT(finish(10).memory.peak_charged_bytes, Optional(700U));
}

TEST_F(LifeTest, WhatWasNotMeasuredIsAbsentNotZero) {
  Reading only_memory = reading(0, 0);
  only_memory.source.cpu.reset();
  only_memory.cpu = {};
  life_.add(only_memory, 30);
  const NodeUsage node = finish(60);
  EXPECT_EQ(node.cpu.time_seconds, std::nullopt);
  EXPECT_EQ(node.cpu.efficiency_ratio, std::nullopt);
  EXPECT_EQ(node.cpu.utilization.avg, std::nullopt);
  EXPECT_EQ(node.cpu.idle_tail_seconds, std::nullopt);
  EXPECT_EQ(node.memory.oom_kills, std::nullopt);
  EXPECT_EQ(node.io.read_bytes, std::nullopt);
  EXPECT_EQ(usage_json(node).find("\"cpu\":{"), std::string::npos) << usage_json(node);
}

TEST_F(LifeTest, AJobThatNobodyReadHasNoNumbersAtAll) {
  const NodeUsage node = finish(0.01, LastRead::kSample);
  EXPECT_EQ(node.quality.samples, 0U);
  EXPECT_THAT(node.quality.covered_ratio, Optional(0.0));
  EXPECT_FALSE(node.complete());
  EXPECT_EQ(node.memory.peak_working_set_bytes, std::nullopt);
  EXPECT_EQ(node.cpu.time_seconds, std::nullopt);
}

TEST_F(LifeTest, ATimeWithoutReadingsIsAGapInMemoryButNotInCpuTime) {
  add(0, 0);
  add(30, 60);
  add(330, 660);  // the daemon was away
  const NodeUsage node = finish(360, LastRead::kSample);
  EXPECT_THAT(node.cpu.time_seconds, Optional(DoubleNear(660, 1e-9)));
  EXPECT_THAT(node.quality.gap_seconds, Optional(DoubleNear(270, 1e-9)));
  EXPECT_THAT(node.quality.covered_ratio, Optional(DoubleNear(60.0 / 360, 1e-9)));
}

TEST_F(LifeTest, ACounterThatGoesBackIsNotOursAnyMore) {
  add(0, 0);
  add(30, 60);
  EXPECT_FALSE(life_.is_reset(reading(60, 60)));
  EXPECT_TRUE(life_.is_reset(reading(60, 3)));
  Reading from_processes = reading(60, 3);
  from_processes.source.cpu = Method::kProc;
  EXPECT_FALSE(life_.is_reset(from_processes)) << "what ended processes used falls out of that sum";
}

TEST_F(LifeTest, AStepOfTheClockLeavesIntervalsAsTheyAre) {
  add(0, 0);
  Reading jumped = reading(30, 60);
  jumped.time.nanoseconds -= 7200LL * 1'000'000'000;
  life_.add(jumped, 30);
  const UsageSample sample = life_.sample(jumped);
  EXPECT_DOUBLE_EQ(sample.elapsed_seconds, 30);
  EXPECT_THAT(sample.cpu.utilization_ratio, Optional(DoubleNear(0.5, 1e-9)));
  const NodeUsage node = life_.finish(jumped.at, jumped.time, LastRead::kRemoval);
  EXPECT_DOUBLE_EQ(node.elapsed_seconds, 30);
  EXPECT_THAT(node.cpu.efficiency_ratio, Optional(DoubleNear(0.5, 1e-9)));
}

TEST_F(LifeTest, TheIntervalOfASampleIsMeasuredNotAssumed) {
  add(0, 0);
  life_.sample(reading(0, 0));
  const Reading late = reading(41.5, 41.5);
  life_.add(late, 30);
  const UsageSample sample = life_.sample(late);
  EXPECT_EQ(sample.seq, 2U);
  EXPECT_THAT(sample.interval_seconds, Optional(DoubleNear(41.5, 1e-9)));
  EXPECT_THAT(sample.cpu.utilization_ratio, Optional(DoubleNear(0.25, 1e-9)));
}

TEST_F(LifeTest, KillsThatCouldNotBeCountedAreNotZero) {
  Reading before = reading(0, 0);
  before.memory.oom_kills = 0;
  life_.add(before, 30);
  EXPECT_THAT(finish(1).memory.oom_kills, Optional(0U));
  Reading end = reading(2, 1);
  end.oom_kills_unknown = true;
  life_.add(end, 30);
  EXPECT_EQ(finish(3).memory.oom_kills, std::nullopt);
}

TEST_F(LifeTest, AVeryShortJobStillHasItsMean) {
  add(0.001, 0);
  add(0.2, 0.4);
  const NodeUsage node = finish(0.2);
  EXPECT_THAT(node.cpu.utilization.avg, Optional(DoubleNear(0.5, 1e-9)));
  EXPECT_THAT(node.cpu.efficiency_ratio, Optional(DoubleNear(0.5, 1e-9)));
}

TEST_F(LifeTest, AStatesRecordGoesOnWhereItWas) {
  double cpu = 0;
  for (int i = 0; i <= 5; ++i) {
    Reading one = reading(i * 30, cpu, 1000U + static_cast<std::uint64_t>(i));
    one.memory.oom_kills = 0;
    one.memory.limit_bytes = 4000;
    one.memory.peak_charged_bytes = 3000;
    one.io.read_bytes = 17;
    one.tasks.current = 3;
    life_.add(one, 30);
    cpu += i % 2 == 0 ? 100 : 0;
  }
  life_.state().inodes[2] = 987654321;
  life_.state().gpus.push_back({.gpu = {.id = "GPU-1", .index = 0, .model = "A100", .samples = 3},
                                .seconds = 4,
                                .clock_seconds = 4,
                                .throttled_seconds = 2,
                                .energy_joules = 7});
  const auto back = parse_life(life_record(life_.state()));
  ASSERT_TRUE(back.has_value()) << back.error().message();
  EXPECT_EQ(life_record(*back), life_record(life_.state()));

  Life restored(*back);
  const Reading next = reading(180, cpu);
  restored.add(next, 30);
  life_.add(next, 30);
  EXPECT_EQ(usage_json(restored.finish(next.at, next.time, LastRead::kRemoval)),
            usage_json(life_.finish(next.at, next.time, LastRead::kRemoval)));
  EXPECT_EQ(restored.state().job.key(), life_.state().job.key());
}

TEST_F(LifeTest, ANodesRecordComesBackWhole) {
  add(0, 0);
  add(30, 60);
  NodeUsage node = finish(60);
  node.job.restarts = 2;
  node.job.sluid = "s0123456789ABC";
  node.node_cpus = 64;
  node.gpus.push_back({.id = "GPU-1",
                       .model = "A100",
                       .utilization = {.avg = 0.5, .max = 1},
                       .zero_ratio = 0.5,
                       .samples = 9});
  const auto back = parse_node(node_record(node));
  ASSERT_TRUE(back.has_value()) << back.error().message();
  EXPECT_EQ(node_record(*back), node_record(node));
  EXPECT_EQ(back->job.key(), node.job.key());
}

TEST_F(LifeTest, ADamagedRecordIsRefusedNotGuessed) {
  for (const char* odd :
       {"", "{", "[]", "{}", R"({"job":{}})", R"({"job":7,"started_ns":1})", "null"}) {
    EXPECT_EQ(parse_life(odd).error().kind(), ErrorKind::kCorrupt) << odd;
    EXPECT_EQ(parse_node(odd).error().kind(), ErrorKind::kCorrupt) << odd;
  }
}

TEST(UtilizationHistogramTest, ReadsBackWhatItWritesAndLeavesOutWhatIsOdd) {
  UtilizationHistogram histogram;
  histogram.add(0.25, 30);
  histogram.add(1.7, 10.5);  // more than was allocated
  histogram.add(-1, 1);
  EXPECT_EQ(histogram.text(), "0:1 25:30 100:10.5");
  EXPECT_EQ(UtilizationHistogram::from(histogram.text()).text(), histogram.text());
  EXPECT_EQ(UtilizationHistogram::from("x 25:30 999:1 7:-1 8:inf 9 :").text(), "25:30");
}

}  // namespace
}  // namespace scriptorium::usage
