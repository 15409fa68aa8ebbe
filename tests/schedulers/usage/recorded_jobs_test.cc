#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "schedulers/usage/finding_words.h"
#include "schedulers/usage/job_events.h"
#include "schedulers/usage/sampler.h"
#include "tests/schedulers/usage/cgroup_lab.h"
#include "tests/support/recording_logger.h"

namespace scriptorium::usage {
namespace {

using namespace std::chrono_literals;
using scriptorium::test::FakeClock;
using scriptorium::test::RecordingLogger;
using test::CgroupLab;
using test::FailingFiles;
using test::V2Job;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// What a job does for a while.
struct Phase {
  int seconds = 3600;
  double busy = 0;            // CPUs
  double system_part = 0.02;  // of the CPU time
  std::uint64_t anon = 3 * kGiB, file = 0;
  // Parts of the time.
  double cpu_wait = 0, throttled = 0, memory_wait = 0, io_wait = 0;
};

struct Recording {
  std::uint32_t cpus = 8;
  std::uint64_t memory = 4 * kGiB;
  double time_limit = 4500;
  bool has_pressure = true;  // the kernel counts it
  std::vector<Phase> phases;
};

// A job whose counters change as it says, read by the sampler at its times and judged from the
// event.
class RecordedJobsTest : public ::testing::Test {
 protected:
  static constexpr int kTick = 10;

  // The findings of its usage.job.
  std::vector<std::string> findings(const Recording& recording) {
    nlohmann::json usage = usage_of(recording);
    status_ = usage["quality"]["status"];
    samples_ = usage["quality"]["samples"];
    std::vector<std::string> ids;
    for (const auto& found : usage["findings"]) ids.push_back(found["id"]);
    return ids;
  }

  std::string status_;
  int samples_ = 0;

 private:
  struct Counters {
    double cpu = 0, system = 0, cpu_wait = 0, throttled = 0, memory_wait = 0, io_wait = 0;
    std::uint64_t peak = 0;

    void add(const Phase& phase) {
      cpu += phase.busy * kTick;
      system += phase.busy * kTick * phase.system_part;
      cpu_wait += phase.cpu_wait * kTick;
      throttled += phase.throttled * kTick;
      memory_wait += phase.memory_wait * kTick;
      io_wait += phase.io_wait * kTick;
      peak = std::max(peak, phase.anon + phase.file);
    }
  };

  static std::string micros(double seconds) {
    return std::to_string(static_cast<std::uint64_t>(seconds * 1e6));
  }
  static void write(const V2Job& job, const Counters& now, const Phase& phase, bool has_pressure) {
    job.file("cpu.stat", "usage_usec " + micros(now.cpu) + "\nuser_usec " +
                             micros(now.cpu - now.system) + "\nsystem_usec " + micros(now.system) +
                             "\nthrottled_usec " + micros(now.throttled) + "\n");
    job.memory(phase.anon, 0, phase.file);
    job.file("memory.peak", std::to_string(now.peak) + "\n");
    if (!has_pressure) return;
    const auto pressure = [&job](const char* file, double some, double full) {
      job.file(file, "some avg10=0.00 avg60=0.00 avg300=0.00 total=" + micros(some) +
                         "\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=" + micros(full) + "\n");
    };
    pressure("cpu.pressure", now.cpu_wait, 0);
    pressure("memory.pressure", now.memory_wait, now.memory_wait);
    pressure("io.pressure", now.io_wait, now.io_wait);
  }

  static nlohmann::json usage_of(const Recording& recording) {
    const CgroupLab lab;
    FakeClock clock;
    RecordingLogger log;
    FailingFiles files;
    GpuMonitor gpus{std::vector<std::unique_ptr<GpuReader>>{}, clock};
    lab.dir().write("proc/meminfo", "MemTotal:       268435456 kB\n");
    Sampler sampler({.root = lab.root(), .proc = lab.proc(), .node = "n1", .process_io = false},
                    files, gpus, log, clock);
    const V2Job job(lab, "job_7");
    const std::string set = "0-" + std::to_string(recording.cpus - 1) + "\n";
    job.file("cpuset.cpus", set);
    job.file("cpuset.cpus.effective", set);
    job.file("memory.max", std::to_string(recording.memory) + "\n");
    Counters counters;
    write(job, counters, {.anon = 0}, recording.has_pressure);
    sampler.step();
    for (const Phase& phase : recording.phases) {
      for (int second = 0; second < phase.seconds; second += kTick) {
        counters.add(phase);
        write(job, counters, phase, recording.has_pressure);
        clock.advance(std::chrono::seconds(kTick));
        sampler.step();
      }
    }
    job.end_tasks();
    sampler.step();
    job.vanish();
    sampler.step();
    Sampler::Output output = sampler.take();
    EXPECT_EQ(output.ended.size(), 1U);
    if (output.ended.empty()) return {};
    output.ended[0].node_cpus = 64;  // and not those of the machine that runs this
    JobFacts facts;
    facts.job.id = "7";
    facts.state = "COMPLETED";
    facts.request = {.nodes = 1,
                     .cpus = recording.cpus,
                     .memory_bytes = recording.memory,
                     .time_limit_seconds = recording.time_limit};
    const JobView view = view_of(facts, std::move(output.ended));
    return nlohmann::json::parse(job_event("lab", "slurm", view, {}).extra_json)["usage"];
  }
};

TEST_F(RecordedJobsTest, AHealthyParallelProgramHasNone) {
  EXPECT_THAT(findings({.phases = {{.busy = 7.8}}}), IsEmpty());
  EXPECT_EQ(status_, "ok");
  EXPECT_GT(samples_, 100);
}

TEST_F(RecordedJobsTest, ASerialProgramOnEightCpus) {
  EXPECT_THAT(findings({.phases = {{.busy = 0.99}}}), ElementsAre("cpu_low", "cpu_serial"));
}

// Its mean is that of a serial program.
TEST_F(RecordedJobsTest, AProgramThatComputesInBurstsOnAllOfItsCpusIsNotSerial) {
  Recording bursts;
  for (int i = 0; i < 15; ++i) {
    bursts.phases.push_back({.seconds = 30, .busy = 8});
    bursts.phases.push_back({.seconds = 210});
  }
  EXPECT_THAT(findings(bursts), ElementsAre("cpu_low"));
}

// TuringWatch drops the eight, and has it at 100 %.
TEST_F(RecordedJobsTest, OfTenReadingsEightIdleOnesCount) {
  const Recording idle{.cpus = 4,
                       .time_limit = 400,
                       .phases = {{.seconds = 60}, {.seconds = 60, .busy = 4}, {.seconds = 180}}};
  EXPECT_THAT(findings(idle), ElementsAre("cpu_low"));
  EXPECT_EQ(status_, "ok");
}

TEST_F(RecordedJobsTest, MemoryThatIsHardlyUsedOrNearlyUsedUp) {
  EXPECT_THAT(findings({.phases = {{.busy = 8, .anon = 4 * kGiB / 10 * 3}}}),
              ElementsAre("mem_over"));
  // Also if it needed most of it for a minute only.
  EXPECT_THAT(findings({.phases = {{.seconds = 3000, .busy = 8, .anon = kGiB},
                                   {.seconds = 60, .busy = 8, .anon = 4 * kGiB / 100 * 95},
                                   {.seconds = 540, .busy = 8, .anon = kGiB}}}),
              ElementsAre("mem_near_limit"));
}

// The kernel fills the limit with pages of the file, which the job does not need.
TEST_F(RecordedJobsTest, ThePageCacheOfADdIsNotItsMemory) {
  EXPECT_THAT(
      findings({.cpus = 1,
                .phases = {{.busy = 0.9, .system_part = 0.9, .anon = 3 * kGiB, .file = kGiB}}}),
      ElementsAre("system_time"));
  EXPECT_THAT(findings({.cpus = 1,
                        .memory = kGiB,
                        .phases = {{.busy = 0.9, .anon = kGiB / 4 * 3, .file = kGiB / 4 - 4096}}}),
              IsEmpty());
}

TEST_F(RecordedJobsTest, AProgramThatHangsAtItsEnd) {
  EXPECT_THAT(findings({.phases = {{.seconds = 2600, .busy = 8}, {.seconds = 1000, .busy = 0.01}}}),
              ElementsAre("idle_tail", "cpu_low"));
  // A quarter of an hour is 900 s of 3600 s.
  EXPECT_THAT(findings({.phases = {{.seconds = 2800, .busy = 8}, {.seconds = 800, .busy = 0.01}}}),
              ElementsAre("cpu_low"));
}

TEST_F(RecordedJobsTest, MoreThreadsThanCpusWaitForThem) {
  EXPECT_THAT(findings({.phases = {{.busy = 8, .cpu_wait = 0.6}}}),
              ElementsAre("cpu_oversubscribed"));
  EXPECT_THAT(findings({.has_pressure = false, .phases = {{.busy = 7, .throttled = 0.4}}}),
              ElementsAre("cpu_oversubscribed"));
}

TEST_F(RecordedJobsTest, AProgramThatWaitsForItsFiles) {
  EXPECT_THAT(findings({.phases = {{.busy = 3, .io_wait = 0.5}}}),
              ElementsAre("cpu_low", "io_heavy"));
}

TEST_F(RecordedJobsTest, AProgramWhoseMemoryIsReclaimedAllTheTime) {
  EXPECT_THAT(findings({.phases = {{.busy = 7, .anon = 4 * kGiB / 100 * 95, .memory_wait = 0.2}}}),
              ElementsAre("mem_near_limit", "mem_pressure"));
}

TEST_F(RecordedJobsTest, AShortJobIsCountedAndNotJudged) {
  const Recording brief{.time_limit = 3600, .phases = {{.seconds = 20, .anon = kMiB}}};
  EXPECT_THAT(findings(brief), ElementsAre("short_job"));
  EXPECT_EQ(status_, "short");
  EXPECT_THAT(findings({.time_limit = 3600, .phases = {{.seconds = 290, .anon = kMiB}}}),
              IsEmpty());
}

}  // namespace
}  // namespace scriptorium::usage
