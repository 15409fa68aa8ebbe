#include "schedulers/usage/job_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/support/fake_clock.h"

namespace scriptorium::usage {
namespace {

using namespace std::chrono_literals;
using scriptorium::test::FakeClock;
using Seen = JobTable::Seen;
using ::testing::DoubleNear;
using ::testing::Optional;

constexpr Controller kMemory = Controller::kMemory;
constexpr Controller kCpuacct = Controller::kCpuacct;

// One job of one user below v1's controllers memory and cpuacct.
class JobTableTest : public ::testing::Test {
 protected:
  FakeClock clock_;
  UsageCounts counts_;
  JobTable table_{30s, counts_};
  std::vector<NodeUsage> ended_;
  std::vector<std::string> discarded_;

  Moment now() const { return {clock_.steady(), clock_.now()}; }
  static JobParent parent(Controller controller, const std::string& node = "n1") {
    const std::string path = std::string("/") + to_string(controller) + "/slurm/uid_1001";
    return {path, controller, "slurm", node, 1001U};
  }
  JobTable::Appeared appeared(Controller controller, std::uint64_t inode, Seen seen,
                              const std::string& id = "7") {
    const JobParent below = parent(controller);
    return table_.appeared(below, {id}, inode, seen, now(), below.path + "/job_" + id);
  }
  // With both of its directories.
  TrackedJob& begin(Seen seen) {
    TrackedJob& job = appeared(kMemory, 10, seen).job;
    appeared(kCpuacct, 20, seen);
    return job;
  }
  // Brings it to the stage in the shortest way.
  TrackedJob& begin(Stage stage) {
    const bool listed = stage == Stage::kListed || stage == Stage::kClearing;
    TrackedJob& job = begin(listed ? Seen::kAtStart : Seen::kMade);
    if (stage == Stage::kRunning || stage == Stage::kVanishing) job.count_processes(true, false);
    if (job.stage != stage) job.group_removed(kMemory, now());
    return job;
  }
  void remove_groups(TrackedJob& job) const {
    job.group_removed(kMemory, now());
    job.group_removed(kCpuacct, now());
  }
  bool read(TrackedJob& job, double cpu_seconds) {
    Reading reading;
    reading.at = clock_.steady();
    reading.time = clock_.now();
    reading.source.cpu = Method::kCgroup1;
    reading.cpu.time_seconds = cpu_seconds;
    reading.cpu.allocated = 4;
    return table_.add(job, reading);
  }
  std::vector<std::string> end_due() {
    std::vector<std::string> keys = table_.end_due(now());
    JobTable::Output output = table_.take();
    ended_.insert(ended_.end(), output.ended.begin(), output.ended.end());
    discarded_.insert(discarded_.end(), output.discarded.begin(), output.discarded.end());
    return keys;
  }
  double seconds_to(SteadyTime time) const {
    return std::chrono::duration<double>(time - clock_.steady()).count();
  }
};

// ---- the stage

enum class Fact { kProcess, kNoProcess, kGroupRemoved };

struct StageCase {
  Stage before;
  Fact fact;
  Stage after;
};

class JobStageTest : public JobTableTest, public ::testing::WithParamInterface<StageCase> {};

TEST_P(JobStageTest, FollowsFromTheStageBeforeAndWhatWasSeen) {
  const StageCase& row = GetParam();
  TrackedJob& job = begin(row.before);
  ASSERT_EQ(job.stage, row.before);
  if (row.fact == Fact::kGroupRemoved) {
    job.group_removed(kCpuacct, now());
    EXPECT_FALSE(job.groups.of(kCpuacct).there);
  } else {
    job.count_processes(row.fact == Fact::kProcess, true);
  }
  EXPECT_EQ(job.stage, row.after);
}

INSTANTIATE_TEST_SUITE_P(
    AllStages, JobStageTest,
    ::testing::Values(StageCase{Stage::kListed, Fact::kProcess, Stage::kRunning},
                      StageCase{Stage::kListed, Fact::kNoProcess, Stage::kListed},
                      StageCase{Stage::kListed, Fact::kGroupRemoved, Stage::kClearing},
                      StageCase{Stage::kSettingUp, Fact::kProcess, Stage::kRunning},
                      StageCase{Stage::kSettingUp, Fact::kNoProcess, Stage::kSettingUp},
                      StageCase{Stage::kSettingUp, Fact::kGroupRemoved, Stage::kVanishing},
                      StageCase{Stage::kRunning, Fact::kProcess, Stage::kRunning},
                      StageCase{Stage::kRunning, Fact::kNoProcess, Stage::kRunning},
                      StageCase{Stage::kRunning, Fact::kGroupRemoved, Stage::kVanishing},
                      StageCase{Stage::kVanishing, Fact::kProcess, Stage::kVanishing},
                      StageCase{Stage::kVanishing, Fact::kNoProcess, Stage::kVanishing},
                      StageCase{Stage::kVanishing, Fact::kGroupRemoved, Stage::kVanishing},
                      StageCase{Stage::kClearing, Fact::kProcess, Stage::kVanishing},
                      StageCase{Stage::kClearing, Fact::kNoProcess, Stage::kClearing},
                      StageCase{Stage::kClearing, Fact::kGroupRemoved, Stage::kClearing}));

TEST_F(JobTableTest, BeginsInTheStageThatHowItWasSeenSays) {
  const struct {
    Seen seen;
    Stage stage;
  } rows[] = {{Seen::kAtStart, Stage::kListed},
              {Seen::kListed, Stage::kSettingUp},
              {Seen::kMade, Stage::kSettingUp}};
  for (const auto& row : rows) {
    JobTable table(30s, counts_);
    const JobParent below = parent(kMemory);
    EXPECT_EQ(table.appeared(below, {"7"}, 1, row.seen, now(), "/p/job_7").job.stage, row.stage);
  }
}

TEST_F(JobTableTest, TheFirstRemovalSaysWhenAJobVanished) {
  TrackedJob& job = begin(Stage::kRunning);
  clock_.advance(3s);
  job.group_removed(kMemory, now());
  const SteadyTime first = clock_.steady();
  clock_.advance(1s);
  job.group_removed(kCpuacct, now());
  EXPECT_EQ(job.vanished.at, first);
}

// ---- the last reading

enum class LateEvent {
  kTask,
  kSameTaskAgain,
  kStep,
  kEmptied,
  kTaskMade,
  kOverflow,
};

struct LastReadCase {
  LastRead before;
  LateEvent event;
  bool read;
  LastRead after;
};

class LastReadTest : public JobTableTest, public ::testing::WithParamInterface<LastReadCase> {};

TEST_P(LastReadTest, FollowsFromTheOneBeforeAndTheEvent) {
  const LastReadCase& row = GetParam();
  TrackedJob& job = begin(Stage::kRunning);
  if (row.event == LateEvent::kSameTaskAgain) job.task_removed("/step_0/task_1", true);
  job.last_read = row.before;
  switch (row.event) {
    case LateEvent::kTask:
    case LateEvent::kSameTaskAgain: job.task_removed("/step_0/task_1", row.read); break;
    case LateEvent::kStep: job.task_removed("/step_0", row.read); break;
    case LateEvent::kEmptied: job.emptied(row.read); break;
    case LateEvent::kTaskMade: job.directory_made("task_2"); break;
    case LateEvent::kOverflow: table_.overflowed(); break;
  }
  EXPECT_EQ(job.last_read, row.after);
}

INSTANTIATE_TEST_SUITE_P(
    AllEvents, LastReadTest,
    ::testing::Values(
        LastReadCase{LastRead::kSample, LateEvent::kTask, true, LastRead::kRemoval},
        LastReadCase{LastRead::kSample, LateEvent::kTask, false, LastRead::kSample},
        LastReadCase{LastRead::kSample, LateEvent::kStep, true, LastRead::kRemoval},
        LastReadCase{LastRead::kSample, LateEvent::kStep, false, LastRead::kSample},
        LastReadCase{LastRead::kSample, LateEvent::kEmptied, true, LastRead::kPopulated},
        LastReadCase{LastRead::kSample, LateEvent::kEmptied, false, LastRead::kSample},
        LastReadCase{LastRead::kRemoval, LateEvent::kTask, true, LastRead::kRemoval},
        // What this task did since the other's removal is not known.
        LastReadCase{LastRead::kRemoval, LateEvent::kTask, false, LastRead::kSample},
        // The same removal from the next controller.
        LastReadCase{LastRead::kRemoval, LateEvent::kSameTaskAgain, false, LastRead::kRemoval},
        LastReadCase{LastRead::kRemoval, LateEvent::kStep, false, LastRead::kRemoval},
        LastReadCase{LastRead::kRemoval, LateEvent::kEmptied, true, LastRead::kPopulated},
        LastReadCase{LastRead::kRemoval, LateEvent::kEmptied, false, LastRead::kSample},
        LastReadCase{LastRead::kRemoval, LateEvent::kTaskMade, false, LastRead::kSample},
        LastReadCase{LastRead::kRemoval, LateEvent::kOverflow, false, LastRead::kSample},
        // Read when it had no process, so no task can have done anything since.
        LastReadCase{LastRead::kPopulated, LateEvent::kTask, false, LastRead::kPopulated},
        LastReadCase{LastRead::kPopulated, LateEvent::kTask, true, LastRead::kRemoval},
        LastReadCase{LastRead::kPopulated, LateEvent::kTaskMade, false, LastRead::kSample},
        LastReadCase{LastRead::kPopulated, LateEvent::kOverflow, false, LastRead::kSample}));

TEST_F(JobTableTest, AThirdRemovalOfATaskOfTheSameNameIsOfAnotherTask) {
  TrackedJob& job = begin(Stage::kRunning);
  job.task_removed("/step_0/task_1", true);   // from memory
  job.task_removed("/step_0/task_1", false);  // from cpuacct
  EXPECT_EQ(job.last_read, LastRead::kRemoval);
  job.task_removed("/step_0/task_1", false);
  EXPECT_EQ(job.last_read, LastRead::kSample);
}

// ---- the end

enum class Cause { kAllGone, kOneGoneForFiveSeconds, kNoProcessForThreeReadings };

struct EndCase {
  Stage stage;  // before the cause
  LastRead last_read;
  Cause cause;
  std::optional<LastRead> says;  // what the summary says; nothing: there is none
  double elapsed;                // it was read last after 10 s, and the cause began after 12 s
};

class JobEndTest : public JobTableTest, public ::testing::WithParamInterface<EndCase> {};

TEST_P(JobEndTest, FollowsFromTheStageTheLastReadingAndTheCause) {
  const EndCase& row = GetParam();
  TrackedJob& job = begin(row.stage);
  clock_.advance(10s);
  read(job, 8);
  job.schedule(clock_.steady());
  job.last_read = row.last_read;
  clock_.advance(2s);
  if (row.cause == Cause::kAllGone) remove_groups(job);
  if (row.cause == Cause::kOneGoneForFiveSeconds) {
    job.group_removed(kCpuacct, now());
    clock_.advance(4999ms);
    EXPECT_THAT(end_due(), ::testing::IsEmpty());
    EXPECT_NEAR(seconds_to(table_.next_due()), 0.001, 1e-6);
    clock_.advance(1ms);
  }
  for (int i = 0; row.cause == Cause::kNoProcessForThreeReadings && i < 3; ++i) {
    EXPECT_THAT(end_due(), ::testing::IsEmpty()) << i;
    job.count_processes(false, true);
  }
  EXPECT_THAT(end_due(), ::testing::ElementsAre("slurm/n1/7"));
  EXPECT_TRUE(table_.jobs().empty());
  EXPECT_EQ(table_.is_left_over(10), row.cause != Cause::kAllGone);
  EXPECT_EQ(table_.is_left_over(20), row.cause == Cause::kNoProcessForThreeReadings);
  ASSERT_EQ(ended_.size(), row.says ? 1U : 0U);
  EXPECT_EQ(discarded_.size(), row.says ? 0U : 1U);
  EXPECT_EQ(counts_.started, row.says ? 1U : 0U);
  EXPECT_EQ(counts_.ended, row.says ? 1U : 0U);
  EXPECT_EQ(counts_.at_removal, row.says && row.says != LastRead::kSample ? 1U : 0U);
  EXPECT_EQ(counts_.unread, 0U);
  if (!row.says) return;
  EXPECT_EQ(ended_[0].quality.last_read, *row.says);
  EXPECT_EQ(ended_[0].complete(), row.says != LastRead::kSample);
  EXPECT_NEAR(ended_[0].elapsed_seconds, row.elapsed, 1e-6);
  EXPECT_EQ(ended_[0].ended_at.nanoseconds,
            FakeClock::kStart.nanoseconds + static_cast<std::int64_t>(row.elapsed * 1e9));
  EXPECT_THAT(ended_[0].cpu.time_seconds, Optional(DoubleNear(8, 1e-9)));
}

INSTANTIATE_TEST_SUITE_P(
    AllCauses, JobEndTest,
    ::testing::Values(
        // Seen to end, though what it used after its last reading is not known.
        EndCase{Stage::kRunning, LastRead::kSample, Cause::kAllGone, LastRead::kSample, 12},
        // Directories that outlive the tasks do not count.
        EndCase{Stage::kRunning, LastRead::kRemoval, Cause::kAllGone, LastRead::kRemoval, 10},
        EndCase{Stage::kRunning, LastRead::kPopulated, Cause::kAllGone, LastRead::kPopulated, 10},
        EndCase{Stage::kSettingUp, LastRead::kSample, Cause::kAllGone, LastRead::kSample, 12},
        EndCase{Stage::kSettingUp, LastRead::kRemoval, Cause::kAllGone, LastRead::kRemoval, 10},
        EndCase{Stage::kListed, LastRead::kSample, Cause::kAllGone, std::nullopt, 0},
        EndCase{Stage::kListed, LastRead::kRemoval, Cause::kAllGone, std::nullopt, 0},
        EndCase{Stage::kRunning, LastRead::kSample, Cause::kOneGoneForFiveSeconds,
                LastRead::kSample, 12},
        EndCase{Stage::kRunning, LastRead::kRemoval, Cause::kOneGoneForFiveSeconds,
                LastRead::kRemoval, 10},
        EndCase{Stage::kListed, LastRead::kSample, Cause::kOneGoneForFiveSeconds, std::nullopt, 0},
        // Its directories stay, and its last reading found that it had ended.
        EndCase{Stage::kRunning, LastRead::kSample, Cause::kNoProcessForThreeReadings,
                LastRead::kPopulated, 10},
        EndCase{Stage::kRunning, LastRead::kRemoval, Cause::kNoProcessForThreeReadings,
                LastRead::kPopulated, 10},
        EndCase{Stage::kListed, LastRead::kSample, Cause::kNoProcessForThreeReadings, std::nullopt,
                0}));

TEST_F(JobTableTest, AJobThatWasNeverReadEndsWithoutFigures) {
  remove_groups(begin(Seen::kMade));
  EXPECT_THAT(end_due(), ::testing::ElementsAre("slurm/n1/7"));
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_EQ(ended_[0].quality.samples, 0U);
  EXPECT_EQ(ended_[0].cpu.time_seconds, std::nullopt);
  EXPECT_EQ(counts_.unread, 1U);
  EXPECT_TRUE(end_due().empty());
}

TEST_F(JobTableTest, ADirectoryThatAJobLeftBehindBecomesAJobAgainWhenItAppears) {
  TrackedJob& job = begin(Stage::kRunning);
  for (int i = 0; i < 3; ++i) job.count_processes(false, true);
  end_due();
  ASSERT_TRUE(table_.is_left_over(10));
  EXPECT_EQ(appeared(kMemory, 10, Seen::kListed).job.stage, Stage::kSettingUp);
  EXPECT_FALSE(table_.is_left_over(10));
  EXPECT_TRUE(table_.is_left_over(20));
  table_.keep_left_over({});
  EXPECT_FALSE(table_.is_left_over(20)) << "it was not listed any more";
}

struct EmptyCase {
  Stage stage;
  bool sweep;
  std::uint32_t counted;
};

TEST_F(JobTableTest, CountsReadingsWithoutAProcessExceptEarlyOnesOfAJobThatHadNone) {
  const EmptyCase rows[] = {
      {Stage::kListed, false, 0},   {Stage::kListed, true, 1},    {Stage::kSettingUp, false, 0},
      {Stage::kSettingUp, true, 1}, {Stage::kRunning, false, 1},  {Stage::kRunning, true, 1},
      {Stage::kClearing, false, 0}, {Stage::kVanishing, true, 1}, {Stage::kVanishing, false, 1}};
  for (const EmptyCase& row : rows) {
    TrackedJob job("k", Life::begin({}, clock_.steady()), row.stage);
    job.count_processes(false, row.sweep);
    EXPECT_EQ(job.empty_readings, row.counted) << static_cast<int>(row.stage) << row.sweep;
    job.empty_readings = 2;
    job.count_processes(true, row.sweep);
    EXPECT_EQ(job.empty_readings, 0U);
  }
}

TEST_F(JobTableTest, CountsAsMissedOnlyJobsThatWereSeenBelowNoController) {
  const struct {
    const char* name;
    std::vector<Controller> seen_below;  // of a job in the first of the user's directories
    int second_directories;              // that came and went below memory
    std::uint64_t missed;
  } rows[] = {{"seen below all", {kMemory, kCpuacct}, 0, 0},
              {"seen below one", {kMemory}, 0, 0},
              {"seen below none", {}, 0, 1},
              {"seen, then one that was not", {kMemory}, 1, 1}};
  for (const auto& row : rows) {
    JobTable table(30s, counts_);
    MissedJobs& missed = table.missed();
    for (const char* above : {"/memory/slurm", "/cpuacct/slurm"})
      missed.owner_appeared(above, "uid_1001");
    for (const Controller controller : row.seen_below) {
      const JobParent below = parent(controller);
      missed.job_listed(below.path);
      table.appeared(below, {"7"}, 0, Seen::kMade, now(), below.path + "/job_7");
    }
    for (int i = 0; i < row.second_directories; ++i) {
      missed.owner_removed("/memory/slurm", "uid_1001");
      missed.owner_appeared("/memory/slurm", "uid_1001");
    }
    for (const char* above : {"/memory/slurm", "/cpuacct/slurm"})
      missed.owner_removed(above, "uid_1001");
    EXPECT_EQ(missed.take().jobs, row.missed) << row.name;
  }
}

TEST_F(JobTableTest, CountsNoJobAsMissedAfterAnOverflow) {
  table_.missed().owner_appeared("/memory/slurm", "uid_1001");
  table_.missed().owner_removed("/memory/slurm", "uid_1001");
  table_.overflowed();
  EXPECT_EQ(table_.missed().take().jobs, 0U);
}

TEST_F(JobTableTest, RemembersABoundedNumberOfEndedTasks) {
  TrackedJob& job = begin(Stage::kRunning);
  for (int i = 0; i < 1000; ++i) {
    job.task_removed("/step_0/task_" + std::to_string(i), true);
    ASSERT_LE(job.ended_tasks.size(), 256U);
  }
}

// ---- when it is read

TEST_F(JobTableTest, ReadsAYoungJobAfterOneTwoFiveTenTwentyAndThirtySeconds) {
  const struct {
    std::chrono::milliseconds age;
    std::optional<double> next_age;  // in seconds
    bool sampled;                    // the next one is worth a usage.sample
  } rows[] = {{0ms, 1, false},           {999ms, 1, false},  {1000ms, 2, false},
              {2000ms, 5, false},        {4999ms, 5, false}, {5000ms, 10, true},
              {10s, 20, true},           {20s, 30, true},    {29999ms, 30, true},
              {30s, std::nullopt, false}};
  for (const auto& row : rows) {
    TrackedJob job("k", Life::begin({}, clock_.steady() - row.age), Stage::kRunning);
    job.schedule(clock_.steady());
    EXPECT_EQ(job.sample_due(), row.sampled) << row.age.count();
    if (!row.next_age) {
      EXPECT_EQ(job.next_reading, SteadyTime::max());
    } else {
      EXPECT_NEAR(seconds_to(job.next_reading) + static_cast<double>(row.age.count()) / 1000,
                  *row.next_age, 1e-6)
          << row.age.count();
    }
  }
}

TEST_F(JobTableTest, ReadsAJobAtOnceWhenAGroupAppearsAndNothingWasReadYet) {
  TrackedJob& job = appeared(kMemory, 10, Seen::kMade).job;
  EXPECT_EQ(job.next_reading, SteadyTime::min());
  EXPECT_FALSE(job.sample_due());
  job.schedule(clock_.steady());
  EXPECT_NEAR(seconds_to(table_.next_due()), 1, 1e-6);
  clock_.advance(9s);
  job.schedule(clock_.steady());
  EXPECT_TRUE(job.sample_due());
  EXPECT_TRUE(appeared(kCpuacct, 20, Seen::kMade).new_group);
  EXPECT_EQ(job.next_reading, SteadyTime::min()) << "there may be counters now";
  EXPECT_FALSE(job.sample_due());
  read(job, 1);
  job.schedule(clock_.steady());
  EXPECT_TRUE(appeared(Controller::kCpuset, 30, Seen::kMade).new_group);
  EXPECT_NEAR(seconds_to(table_.next_due()), 1, 1e-6);
}

// ---- which job it is

TEST_F(JobTableTest, ADirectoryBelowAnotherControllerIsOfTheSameJob) {
  const auto first = appeared(kMemory, 10, Seen::kMade);
  EXPECT_TRUE(first.began);
  EXPECT_FALSE(first.restored);
  const auto second = appeared(kCpuacct, 20, Seen::kMade);
  EXPECT_FALSE(second.began);
  EXPECT_TRUE(second.new_group);
  EXPECT_EQ(&first.job, &second.job);
  const auto again = appeared(kCpuacct, 20, Seen::kListed);
  EXPECT_FALSE(again.began || again.new_group);
  EXPECT_EQ(table_.jobs().size(), 1U);
  EXPECT_EQ(counts_.started, 1U);
  EXPECT_THAT(first.job.seen().uid, Optional(1001U));
  EXPECT_TRUE(first.job.seen().uid_trusted);
}

TEST_F(JobTableTest, TheSameIdOfAnotherNodeOrSchedulerIsAnotherJob) {
  const JobParent rows[] = {parent(kMemory, "n1"),
                            parent(kMemory, "n2"),
                            {"/memory/torque", kMemory, "torque", "n1", {}}};
  for (const JobParent& below : rows)
    EXPECT_TRUE(table_.appeared(below, {"7"}, 0, Seen::kMade, now(), below.path + "/7").began);
  EXPECT_EQ(table_.jobs().size(), 3U);
}

TEST_F(JobTableTest, TheSameIdInAnotherDirectoryEndsTheJobAndBeginsOne) {
  TrackedJob& job = begin(Stage::kRunning);
  clock_.advance(10s);
  read(job, 50);
  job.task_removed("/step_0/task_0", true);
  clock_.advance(2s);
  const auto next = appeared(kMemory, 11, Seen::kListed);
  EXPECT_TRUE(next.began);
  EXPECT_EQ(next.job.seen().started_at, clock_.now());
  EXPECT_EQ(next.job.last_read, LastRead::kSample);
  EXPECT_FALSE(next.job.groups.of(kCpuacct).there);
  EXPECT_TRUE(end_due().empty());
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_EQ(ended_[0].quality.last_read, LastRead::kRemoval);
  EXPECT_DOUBLE_EQ(ended_[0].elapsed_seconds, 10);
  EXPECT_EQ(counts_.started, 2U);
}

TEST_F(JobTableTest, ACounterThatGoesBackwardsEndsTheLifeAtItsLastReading) {
  TrackedJob& job = begin(Stage::kRunning);
  job.seen().batch_step = true;
  clock_.advance(30s);
  EXPECT_FALSE(read(job, 50));
  job.task_removed("/step_0/task_0", true);
  clock_.advance(30s);
  EXPECT_TRUE(read(job, 2));
  end_due();
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_THAT(ended_[0].cpu.time_seconds, Optional(DoubleNear(50, 1e-9)));
  EXPECT_EQ(ended_[0].quality.last_read, LastRead::kSample);
  EXPECT_DOUBLE_EQ(ended_[0].elapsed_seconds, 30);
  EXPECT_TRUE(ended_[0].job.batch_step);
  const auto lives = table_.lives();
  ASSERT_EQ(lives.size(), 1U);
  EXPECT_THAT(lives[0].cpu.time_seconds, Optional(DoubleNear(2, 1e-9)));
  EXPECT_EQ(lives[0].job.started_at, clock_.now());
  EXPECT_FALSE(lives[0].job.batch_step) << "its steps are to be seen again";
  EXPECT_EQ(lives[0].inodes.at(static_cast<std::size_t>(kMemory)), 10U);
  EXPECT_EQ(job.last_read, LastRead::kSample);
  EXPECT_EQ(counts_.started, 2U);
}

TEST_F(JobTableTest, AChangeOfTheSystemTimeNeitherEndsNorStretchesAJob) {
  TrackedJob& job = begin(Stage::kRunning);
  clock_.advance(30s);
  read(job, 30);
  clock_.jump_to(Timestamp{FakeClock::kStart.nanoseconds - 86400LL * 1'000'000'000});
  clock_.advance(30s);
  EXPECT_FALSE(read(job, 60));
  job.task_removed("/step_0/task_0", true);
  remove_groups(job);
  end_due();
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_DOUBLE_EQ(ended_[0].elapsed_seconds, 60);
  EXPECT_EQ(ended_[0].job.started_at, FakeClock::kStart);
  EXPECT_THAT(ended_[0].cpu.utilization.avg, Optional(DoubleNear(0.25, 1e-6)));
}

TEST_F(JobTableTest, AJobThatBeganBeforeItWasSeenIsAsOldAsThat) {
  TrackedJob& job = begin(Seen::kAtStart);
  job.began_before(600s, now());
  EXPECT_EQ(job.seen().started_at.nanoseconds, FakeClock::kStart.nanoseconds - 600'000'000'000LL);
  EXPECT_EQ(job.life.started(), clock_.steady() - 600s);
  EXPECT_EQ(job.life.state().inodes.at(static_cast<std::size_t>(kCpuacct)), 20U);
}

// ---- a restart of the daemon

class RestoredJobTest : public JobTableTest {
 protected:
  // As an earlier process left it: read once after 30 s, then not for 600 s.
  std::vector<LifeState> lives_;

  RestoredJobTest() {
    JobTable earlier(30s, earlier_counts_);
    const JobParent below = parent(kMemory);
    auto job = earlier.appeared(below, {"7"}, 10, Seen::kMade, now(), below.path + "/job_7");
    clock_.advance(30s);
    Reading reading{.at = clock_.steady(), .time = clock_.now()};
    reading.source.cpu = Method::kCgroup1;
    reading.cpu.time_seconds = 20;
    earlier.add(job.job, reading);
    lives_ = earlier.lives();
    clock_.advance(600s);
  }

 private:
  UsageCounts earlier_counts_;
};

TEST_F(RestoredJobTest, ContinuesWhenItsDirectoryIsStillThere) {
  table_.restore(lives_, true);
  EXPECT_EQ(table_.lives().size(), 1U);
  const auto found = appeared(kMemory, 10, Seen::kAtStart);
  EXPECT_TRUE(found.began);
  EXPECT_TRUE(found.restored);
  EXPECT_EQ(found.job.stage, Stage::kRunning);
  EXPECT_EQ(found.job.seen().started_at, FakeClock::kStart);
  EXPECT_EQ(found.job.life.state().readings, 1U);
  table_.end_restored();
  end_due();
  EXPECT_TRUE(ended_.empty());
  EXPECT_EQ(table_.lives().size(), 1U);
  EXPECT_EQ(counts_.started, 0U) << "an earlier process counted it";
}

TEST_F(RestoredJobTest, EndsAtItsLastReadingWhenItIsNotListed) {
  table_.restore(lives_, true);
  table_.end_restored();
  end_due();
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_EQ(ended_[0].quality.last_read, LastRead::kSample);
  EXPECT_DOUBLE_EQ(ended_[0].elapsed_seconds, 30);
  EXPECT_FALSE(ended_[0].complete());
  table_.end_restored();
  end_due();
  EXPECT_EQ(ended_.size(), 1U);
  EXPECT_TRUE(table_.lives().empty());
}

TEST_F(RestoredJobTest, EndsAtItsLastReadingAfterARebootWhateverIsThere) {
  table_.restore(lives_, false);
  const auto found = appeared(kMemory, 10, Seen::kAtStart);
  EXPECT_FALSE(found.restored);
  EXPECT_EQ(found.job.life.state().readings, 0U);
  end_due();
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_EQ(ended_[0].quality.last_read, LastRead::kSample);
  EXPECT_EQ(table_.lives().size(), 1U) << "what is there now is another life";
}

TEST_F(RestoredJobTest, EndsAtItsLastReadingWhenItsDirectoryIsAnotherOne) {
  table_.restore(lives_, true);
  const auto found = appeared(kMemory, 11, Seen::kAtStart);
  EXPECT_TRUE(found.restored);
  EXPECT_EQ(found.job.life.state().readings, 0U);
  EXPECT_EQ(found.job.life.state().inodes.at(static_cast<std::size_t>(kMemory)), 11U);
  EXPECT_EQ(found.job.next_reading, SteadyTime::min());
  end_due();
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_THAT(ended_[0].cpu.time_seconds, Optional(DoubleNear(20, 1e-9)));
}

TEST_F(RestoredJobTest, OfASluidIsFoundByTheSluid) {
  lives_[0].job.sluid = "s0123456789ABC";
  table_.restore(lives_, true);
  const JobName name{"s0123456789ABC", true};
  const auto found = table_.appeared(parent(kMemory), name, 10, Seen::kAtStart, now(), "/p/s");
  EXPECT_TRUE(found.restored);
  EXPECT_EQ(found.job.seen().job_id, "7");
}

}  // namespace
}  // namespace scriptorium::usage
