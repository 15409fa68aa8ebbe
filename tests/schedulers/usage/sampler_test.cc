#include "schedulers/usage/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>

#include "tests/schedulers/usage/cgroup_lab.h"
#include "tests/support/recording_logger.h"

namespace scriptorium::usage {
namespace {

using namespace std::chrono_literals;
using scriptorium::test::FakeClock;
using scriptorium::test::RecordingLogger;
using test::CgroupLab;
using test::FailingFiles;
using test::TempDir;
using test::V1Job;
using test::V1Step;
using test::V2Job;
using ::testing::DoubleNear;
using ::testing::Optional;

class SamplerTest : public ::testing::Test {
 protected:
  SamplerTest() {
    lab_.dir().write("proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\n");
    options_.root = lab_.root();
    options_.proc = lab_.proc();
    options_.node = "n1";
    options_.samples = true;
    options_.process_io = false;
    lab_.dir().make_directory("cgroup");
  }

  CgroupLab lab_;
  FakeClock clock_;
  RecordingLogger log_;
  FailingFiles files_;
  GpuMonitor gpus_{std::vector<std::unique_ptr<GpuReader>>{}, clock_};
  SamplerOptions options_;
  std::unique_ptr<Sampler> sampler_;
  std::vector<UsageSample> samples_;
  std::vector<NodeUsage> ended_;

  void start() { sampler_ = std::make_unique<Sampler>(options_, files_, gpus_, log_, clock_); }
  void step() {
    if (sampler_ == nullptr) start();
    sampler_->step();
    Sampler::Output output = sampler_->take();
    samples_.insert(samples_.end(), output.samples.begin(), output.samples.end());
    ended_.insert(ended_.end(), output.ended.begin(), output.ended.end());
  }
  // Its last process ends, and then its groups go.
  template <typename AnyJob>
  void end(const AnyJob& job) {
    job.end_tasks();
    step();
    job.vanish();
    step();
  }
  // Time passes as it does for the loop: whenever something is due, it is done.
  void pass(std::chrono::seconds time) {
    const SteadyTime until = clock_.steady() + time;
    while (true) {
      const SteadyTime due = sampler_->next_due();
      if (due > until) break;
      clock_.advance(std::max<SteadyTime::duration>(due - clock_.steady(), 0s));
      step();
    }
    clock_.advance(until - clock_.steady());
  }
  // What a daemon knows when it is started again on what another one left.
  void restart(bool same_boot = true) {
    std::vector<LifeState> lives;
    for (const LifeState& life : sampler_->lives()) lives.push_back(*parse_life(life_record(life)));
    sampler_.reset();
    start();
    sampler_->restore(std::move(lives), same_boot);
  }
};

TEST_F(SamplerTest, MeasuresAJobOfTheFirstVersionFromItsFirstSecondToItsEnd) {
  lab_.write("memory/slurm/cgroup.procs", "");
  step();
  const V1Job job(lab_, "7");
  step();
  job.memory(90'000'000, 5'000'000, 1'000'000);
  job.cpu(10);
  pass(10s);
  job.cpu(40);
  pass(20s);
  job.memory(100);
  job.cpu(44);
  job.end_tasks();
  step();
  clock_.advance(20ms);
  job.vanish();
  step();

  ASSERT_EQ(ended_.size(), 1U);
  const NodeUsage& node = ended_[0];
  EXPECT_EQ(node.job.job_id, "7");
  EXPECT_EQ(node.job.node, "n1");
  EXPECT_EQ(node.job.started_at, FakeClock::kStart);
  EXPECT_TRUE(node.job.batch_step);
  EXPECT_FALSE(node.job.other_steps);
  EXPECT_THAT(node.job.uid, Optional(1001U));
  EXPECT_TRUE(node.job.uid_trusted);
  EXPECT_EQ(node.source.cpu, Method::kCgroup1);
  EXPECT_THAT(node.cpu.time_seconds, Optional(DoubleNear(44, 1e-6)));
  EXPECT_THAT(node.cpu.user_seconds, Optional(DoubleNear(33, 0.1)));
  EXPECT_THAT(node.cpu.allocated, Optional(4U));
  EXPECT_THAT(node.cpu.efficiency_ratio, Optional(DoubleNear(44.0 / 120, 1e-6)));
  EXPECT_THAT(node.memory.peak_working_set_bytes, Optional(95'000'000U));
  EXPECT_THAT(node.memory.limit_bytes, Optional(104857600U));
  EXPECT_THAT(node.memory.oom_kills, Optional(0U));
  EXPECT_THAT(node.tasks.peak, Optional(2U));
  EXPECT_THAT(node.node_memory_bytes, Optional(16384U * 1024));
  EXPECT_EQ(node.quality.last_read, LastRead::kRemoval);
  EXPECT_THAT(node.quality.covered_ratio, Optional(DoubleNear(1, 1e-6)));
  EXPECT_DOUBLE_EQ(node.elapsed_seconds, 30)
      << "the directories that outlive the job by 20 ms do not count";
  EXPECT_TRUE(node.complete());

  std::vector<double> seen;
  for (const UsageSample& sample : samples_) seen.push_back(sample.elapsed_seconds);
  EXPECT_THAT(seen, ::testing::Pointwise(::testing::DoubleNear(1e-6), {10.0, 20.0, 30.0}))
      << "early readings; the sweep falls on the last";
  EXPECT_EQ(samples_[2].seq, 3U);
  EXPECT_THAT(samples_[1].interval_seconds, Optional(DoubleNear(10, 1e-9)));
  EXPECT_THAT(samples_[0].memory.working_set_bytes(), Optional(95'000'000U));
  EXPECT_EQ(sampler_->counts().open_files, 0U);
}

TEST_F(SamplerTest, AJobOfTwoSecondsIsMeasuredToItsEnd) {
  lab_.write("memory/slurm/uid_1001/cgroup.procs", "");
  step();
  const V1Job job(lab_, "7");
  step();
  clock_.advance(1990ms);
  job.cpu(2.007666);
  job.end_tasks();
  job.memory(0);
  step();
  job.vanish();
  step();
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_THAT(ended_[0].cpu.time_seconds, Optional(DoubleNear(2.007666, 1e-9)));
  EXPECT_TRUE(ended_[0].complete());
  EXPECT_NEAR(ended_[0].elapsed_seconds, 1.99, 1e-6);
}

TEST_F(SamplerTest, AJobThatIsGoneBeforeItCouldBeReadIsToldWithoutNumbers) {
  lab_.write("memory/slurm/uid_1001/cgroup.procs", "");
  step();
  {
    const V1Job job(lab_, "7");
    job.vanish();
  }
  step();
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_EQ(ended_[0].job.job_id, "7");
  EXPECT_EQ(ended_[0].quality.samples, 0U);
  EXPECT_FALSE(ended_[0].complete());
  EXPECT_EQ(ended_[0].cpu.time_seconds, std::nullopt);
  EXPECT_EQ(sampler_->counts().unread, 1U);
  step();
  EXPECT_EQ(ended_.size(), 1U);
}

TEST_F(SamplerTest, ADirectoryOfAUserThatIsMadeAgainIsWatchedAgain) {
  lab_.write("memory/slurm/uid_1001/cgroup.procs", "");
  step();
  lab_.remove("memory/slurm/uid_1001");
  lab_.write("memory/slurm/uid_1001/cgroup.procs", "");
  step();
  {
    const V1Job job(lab_, "7");
    job.vanish();
  }
  step();
  ASSERT_EQ(ended_.size(), 1U) << "no sweep is due, so only inotify can have told";
  EXPECT_EQ(ended_[0].job.job_id, "7");
}

TEST_F(SamplerTest, AJobThatComesAndGoesWithItsUsersDirectoryWhileTheseAreListedIsTold) {
  lab_.write("memory/slurm/uid_1001/cgroup.procs", "");
  step();
  lab_.write("memory/slurm/uid_1002/cgroup.procs", "");
  files_.before_list = [&](const std::string& path) {
    if (!path.ends_with("/memory/slurm")) return;
    files_.before_list = nullptr;
    {
      const V1Job job(lab_, "7");
      job.vanish();
    }
    lab_.remove("memory/slurm/uid_1001");
  };
  step();  // finds the directory gone before it reads what happened in it
  step();
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_EQ(ended_[0].job.job_id, "7");
  EXPECT_THAT(ended_[0].job.uid, Optional(1001U));
  EXPECT_EQ(sampler_->counts().missed, 0U);
}

TEST_F(SamplerTest, AJobThatWasGoneWithItsUsersDirectoryBeforeItCouldBeSeenIsCountedOnce) {
  for (const char* controller : {"freezer", "cpuset", "memory", "cpuacct"}) {
    lab_.write(std::string(controller) + "/slurm/cgroup.procs", "");
  }
  step();
  const auto come_and_go = [&](const std::string& id) {
    const V1Job job(lab_, id);
    job.vanish();
    for (const char* controller : {"cpuacct", "memory", "cpuset", "freezer"}) {
      lab_.remove(std::string(controller) + "/slurm/uid_1001");
    }
  };
  come_and_go("7");
  come_and_go("8");
  step();
  EXPECT_TRUE(ended_.empty());
  EXPECT_EQ(sampler_->counts().missed, 2U);
  EXPECT_EQ(log_.count("USAGE_JOBS_MISSED"), 1U);

  const V1Job seen(lab_, "9");
  step();
  seen.vanish();
  for (const char* controller : {"cpuacct", "memory", "cpuset", "freezer"}) {
    lab_.remove(std::string(controller) + "/slurm/uid_1001");
  }
  step();
  EXPECT_EQ(ended_.size(), 1U);
  EXPECT_EQ(sampler_->counts().missed, 2U) << "one that was seen is none of them";
}

TEST_F(SamplerTest, AJobThatWasGoneBetweenTwoThatWereSeenIsCountedAlthoughTheirDirectoriesOverlap) {
  const auto make = [&](const char* controller) {
    lab_.write(std::string(controller) + "/slurm/uid_1001/cgroup.procs", "");
  };
  const auto remove = [&](const char* controller) {
    lab_.remove(std::string(controller) + "/slurm/uid_1001");
  };
  for (const char* controller : {"freezer", "memory"})
    lab_.write(std::string(controller) + "/slurm/cgroup.procs", "");
  step();
  make("freezer");
  make("memory");
  step();
  lab_.write("memory/slurm/uid_1001/job_7/cgroup.procs", "");  // seen below one controller only
  step();
  lab_.remove("memory/slurm/uid_1001/job_7");
  // Job 8, which nobody sees, follows so fast that always one of its user's directories stands.
  remove("memory");
  make("memory");
  remove("freezer");
  make("freezer");
  remove("memory");
  make("memory");
  step();
  lab_.write("memory/slurm/uid_1001/job_9/cgroup.procs", "");
  step();
  lab_.remove("memory/slurm/uid_1001/job_9");
  remove("memory");
  remove("freezer");
  step();
  EXPECT_EQ(ended_.size(), 2U);
  EXPECT_EQ(sampler_->counts().missed, 1U);
}

TEST_F(SamplerTest, ASetUidProgramDoesNotMakeTheJobItsOwners) {
  const V2Job job(lab_, "job_9");
  lab_.process(101, 1001, 0, "passwd");
  step();
  pass(30s);
  end(job);
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_THAT(ended_[0].job.uid, Optional(1001U));
  EXPECT_TRUE(ended_[0].job.uid_trusted);
}

TEST_F(SamplerTest, AJobWhoseProcessesRunAsSeveralUsersIsNobodysForSure) {
  const V2Job job(lab_, "job_9");
  job.file("step_batch/user/task_0/cgroup.procs", "101\n102\n");
  lab_.process(101, 1001, 1001);
  lab_.process(102, 1002, 1002);
  step();
  lab_.process(102, 1001, 1001);  // whoever it was: it has been there
  pass(30s);
  end(job);
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_FALSE(ended_[0].job.uid_trusted);
  EXPECT_EQ(ended_[0].job.uid_problem, "the job's processes run as several users: 1001 and 1002");
  EXPECT_EQ(log_.count("USAGE_OWNER_UNCERTAIN"), 1U);
}

TEST_F(SamplerTest, AJobThatBecomesAnothersLaterIsNobodysForSureEitherAlsoAfterARestart) {
  const V2Job job(lab_, "job_9");
  lab_.process(101, 1001, 1001);
  step();
  lab_.process(101, 0, 0, "sudo");
  pass(2s);
  restart();
  lab_.process(101, 0, 0, "sleep");
  pass(30s);
  end(job);
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_THAT(ended_[0].job.uid, Optional(1001U));
  EXPECT_FALSE(ended_[0].job.uid_trusted);
}

TEST_F(SamplerTest, SlurmstepdOnItsWayToTheUserIsNotTakenForTheOwner) {
  const V2Job job(lab_, "job_9");
  lab_.process(101, 0, 0, "slurmstepd");
  step();
  lab_.process(101, 1001, 1001);
  pass(30s);
  end(job);
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_THAT(ended_[0].job.uid, Optional(1001U));
  EXPECT_TRUE(ended_[0].job.uid_trusted);
}

TEST_F(SamplerTest, ARealSetUidProgramRunsWithTheRealUidOfItsCaller) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a set-uid program of another user";
  const TempDir place;
  const std::string program = place.path_to("sleep");
  std::filesystem::copy_file("/bin/sleep", program);
  ASSERT_EQ(::chmod(place.path().c_str(), 0755), 0);
  ASSERT_EQ(::chown(program.c_str(), 0, 0), 0);
  ASSERT_EQ(::chmod(program.c_str(), 04755), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (::setresuid(54321, 54321, 54321) != 0) ::_exit(1);
    ::execl(program.c_str(), "sleep", "600", nullptr);
    ::_exit(1);
  }
  const std::string proc = "/proc/" + std::to_string(child);
  Identity identity;
  std::optional<ProcessOwner> owner;
  // Until it runs: the directory is then the program's owner's. Before exec its name is still ours.
  const auto limit = std::chrono::steady_clock::now() + 10s;
  bool runs = false;
  while (!runs && std::chrono::steady_clock::now() < limit) {
    owner = process_owner(real_files(), "/proc", static_cast<std::uint32_t>(child));
    runs = owner && owner->name == "sleep" && real_files().identify(proc, identity) == 0 &&
           identity.owner == 0;
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  if (!runs) GTEST_SKIP() << "this file system heeds no set-uid bit";
  EXPECT_EQ(owner->uid, 54321U);
}

TEST_F(SamplerTest, SeveralSlurmdsOnOneMachineAreSeveralNodes) {
  const V1Job first(lab_, "7", "slurm_a1");
  const V1Job second(lab_, "7", "slurm_a2");
  step();
  first.cpu(1);
  second.cpu(2);
  first.end_tasks();
  second.end_tasks();
  step();
  first.vanish();
  second.vanish();
  step();
  ASSERT_EQ(ended_.size(), 2U);
  EXPECT_EQ(ended_[0].job.node, "a1");
  EXPECT_EQ(ended_[1].job.node, "a2");
  EXPECT_THAT(ended_[0].cpu.time_seconds, Optional(DoubleNear(1, 1e-9)));
  EXPECT_THAT(ended_[1].cpu.time_seconds, Optional(DoubleNear(2, 1e-9)));
}

TEST_F(SamplerTest, MeasuresAJobOfTheSecondVersion) {
  const V2Job job(lab_, "job_9");
  lab_.process(101, 1001, 1001);
  job.file("pids.current", "1\n");
  for (const char* name : {"cpu.pressure", "memory.pressure", "io.pressure"}) job.file(name, "");
  step();
  job.cpu(25);
  job.memory(60'000'000, 1'000'000, 30'000'000);
  job.file("memory.peak", "95000000\n");
  job.file("memory.swap.current", "4096\n");
  job.file("memory.events", "oom 1\noom_kill 1\n");
  job.file("io.stat", "8:0 rbytes=100 wbytes=200 rios=1\n");
  job.file("pids.current", "5\n");
  job.file("cpu.pressure", "some avg10=0 total=2500000\nfull avg10=0 total=0\n");
  job.file("memory.pressure", "some total=9\nfull avg10=0 total=300000\n");
  job.file("io.pressure", "some total=9\nfull avg10=0 total=700000\n");
  pass(30s);
  end(job);
  ASSERT_EQ(ended_.size(), 1U);
  const NodeUsage& node = ended_[0];
  EXPECT_EQ(node.source.cpu, Method::kCgroup2);
  EXPECT_EQ(node.source.memory, Method::kCgroup2);
  EXPECT_THAT(node.cpu.time_seconds, Optional(DoubleNear(25, 1e-9)));
  EXPECT_THAT(node.cpu.allocated, Optional(2U));
  EXPECT_THAT(node.cpu.pressure_some_seconds, Optional(DoubleNear(2.5, 1e-9)));
  EXPECT_THAT(node.memory.peak_working_set_bytes, Optional(61'004'096U));
  EXPECT_THAT(node.memory.peak_charged_bytes, Optional(95'000'000U));
  EXPECT_THAT(node.memory.oom_kills, Optional(1U));
  EXPECT_THAT(node.memory.pressure_full_seconds, Optional(DoubleNear(0.3, 1e-9)));
  EXPECT_THAT(node.memory.limit_bytes, Optional(104857600U));
  EXPECT_THAT(node.io.written_bytes, Optional(200U));
  EXPECT_THAT(node.io.pressure_full_seconds, Optional(DoubleNear(0.7, 1e-9)));
  EXPECT_THAT(node.tasks.peak, Optional(5U));
  EXPECT_THAT(node.job.uid, Optional(1001U)) << "the real uid of the task's process";
  EXPECT_TRUE(node.job.uid_trusted);
  EXPECT_TRUE(node.complete());
  EXPECT_TRUE(node.job.batch_step);
}

TEST_F(SamplerTest, TheLastReadingOfTheSecondVersionComesWhenNoProcessIsLeft) {
  options_.kept_files = 0;  // a plain file can still be read after its removal, unlike the kernel's
  const V2Job job(lab_, "job_9");
  step();
  job.cpu(3);
  clock_.advance(3s);
  job.file("cgroup.events", "populated 0\nfrozen 0\n");
  step();
  job.vanish();  // all at once: no removal could be read
  step();
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_THAT(ended_[0].cpu.time_seconds, Optional(DoubleNear(3, 1e-9)));
  EXPECT_EQ(ended_[0].quality.last_read, LastRead::kPopulated);
  EXPECT_TRUE(ended_[0].complete());
}

TEST_F(SamplerTest, ASluidIsItsJobWhereTheProcessOrAPrologTellsIt) {
  const V2Job told_by_process(lab_, "s0123456789ABC");
  const V2Job told_by_prolog(lab_, "s0123456789ABD", "system.slice/n2_slurmstepd.scope");
  const V2Job untold(lab_, "s0123456789ABE", "system.slice/n3_slurmstepd.scope");
  told_by_prolog.file("step_batch/user/task_0/cgroup.procs", "");
  untold.file("step_batch/user/task_0/cgroup.procs", "");
  using namespace std::string_literals;
  lab_.dir().write("proc/101/stat", "101 (bash) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 5 0 0 0\n");
  lab_.dir().write("proc/101/environ", "SLURM_JOB_ID=4711\0SLURM_RESTART_COUNT=2\0"s);
  lab_.dir().write("sluid/s0123456789ABD", "4712\n");
  options_.sluid_dir = lab_.path("sluid");
  step();
  std::map<std::string, JobSeen> seen;
  for (const LifeState& life : sampler_->lives()) seen[life.job.job_id] = life.job;
  ASSERT_EQ(seen.count("4711"), 1U);
  EXPECT_THAT(seen["4711"].sluid, Optional(std::string("s0123456789ABC")));
  EXPECT_THAT(seen["4711"].restarts, Optional(2U));
  EXPECT_EQ(seen.count("4712"), 1U);
  EXPECT_EQ(seen["4712"].node, "n2");
  EXPECT_EQ(seen.count("s0123456789ABE"), 1U);
}

TEST_F(SamplerTest, OldKernelsWithoutAPeakGiveTheLargestThatWasSeen) {
  const V2Job job(lab_, "job_9");
  lab_.remove(job.path() + "/memory.peak");
  job.memory(70'000'000);
  step();
  job.memory(10'000'000);
  pass(5s);
  job.vanish();
  step();
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_THAT(ended_[0].memory.peak_charged_bytes, Optional(70'000'000U));
}

TEST_F(SamplerTest, ALimitThatSaysMaxIsTheOneOfAGroupAboveOrNone) {
  const V2Job none(lab_, "job_1");
  none.file("memory.max", "max\n");
  const V2Job above(lab_, "job_2", "system.slice/n2_slurmstepd.scope");
  above.file("memory.max", "max\n");
  lab_.write("system.slice/n2_slurmstepd.scope/memory.max", "5000\n");
  step();
  for (const LifeState& life : sampler_->lives()) {
    EXPECT_EQ(life.memory.limit_bytes,
              life.job.job_id == "1" ? std::nullopt : std::optional<std::uint64_t>(5000));
  }
}

TEST_F(SamplerTest, CpusOfAGroupWithoutASetOfItsOwnAreNotWhatItWasGiven) {
  const V2Job job(lab_, "job_9");
  job.file("cpuset.cpus", "\n");
  job.file("cpuset.cpus.effective", "0-127\n");
  step();
  EXPECT_EQ(sampler_->lives().at(0).cpu.allocated, std::nullopt);
}

TEST_F(SamplerTest, AGroupThatVanishesBetweenOpenAndReadIsJustNotRead) {
  const V1Job job(lab_, "7");
  step();
  job.cpu(5);
  pass(30s);
  const auto before = samples_.size();
  // What the kernel says of an open file of a removed group.
  files_.read_errors = {{"", ENODEV}};
  options_.kept_files = 0;
  restart();
  clock_.advance(30s);
  step();
  EXPECT_EQ(samples_.size(), before) << "nothing was measured, so nothing is told";
  job.vanish();
  step();
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_THAT(ended_[0].cpu.time_seconds, Optional(DoubleNear(5, 1e-9)))
      << "what was read before still stands";
  EXPECT_EQ(ended_[0].quality.last_read, LastRead::kSample);
  EXPECT_FALSE(ended_[0].complete());
}

TEST_F(SamplerTest, AReadingThatFailsAtTheEndIsNotSaidToBeTheLast) {
  options_.kept_files = 0;
  const V1Job job(lab_, "7");
  step();
  job.cpu(7);
  pass(10s);
  clock_.advance(5s);
  // All is gone before we are told of the first removal.
  job.vanish();
  step();
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_EQ(ended_[0].quality.last_read, LastRead::kSample);
  EXPECT_THAT(ended_[0].cpu.time_seconds, Optional(DoubleNear(7, 1e-9)));
  EXPECT_DOUBLE_EQ(ended_[0].elapsed_seconds, 15)
      << "its end was seen, though not what it used until then";
  EXPECT_THAT(ended_[0].quality.gap_seconds, Optional(DoubleNear(5, 1e-6)));
}

TEST_F(SamplerTest, WhatMayNotBeReadIsAbsentAndSaidOnce) {
  const V1Job job(lab_, "7");
  const V1Job other(lab_, "8");
  files_.open_errors = {{"/memory.stat", EACCES}};
  step();
  pass(60s);
  ASSERT_FALSE(samples_.empty());
  EXPECT_EQ(samples_.back().memory.anon_bytes, std::nullopt);
  EXPECT_EQ(samples_.back().source.memory, std::nullopt);
  EXPECT_TRUE(samples_.back().cpu.time_seconds.has_value());
  EXPECT_EQ(log_.count("USAGE_UNREADABLE"), 1U);
  EXPECT_GT(sampler_->counts().unreadable, 2U);
}

TEST_F(SamplerTest, ARestartDoesNotCutAJobInTwo) {
  const V1Job job(lab_, "7");
  step();
  job.memory(80'000'000);
  job.cpu(60);
  pass(60s);
  restart();
  step();
  job.memory(1'000);
  job.cpu(90);
  pass(60s);
  end(job);
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_EQ(ended_[0].job.started_at, FakeClock::kStart);
  EXPECT_DOUBLE_EQ(ended_[0].elapsed_seconds, 120);
  EXPECT_THAT(ended_[0].memory.peak_working_set_bytes, Optional(80'000'000U))
      << "from before the restart";
  EXPECT_THAT(ended_[0].cpu.time_seconds, Optional(DoubleNear(90, 1e-9)));
  std::set<std::uint64_t> numbers;
  for (const UsageSample& sample : samples_)
    EXPECT_TRUE(numbers.insert(sample.seq).second) << sample.seq;
}

TEST_F(SamplerTest, AJobThatEndedWhileTheDaemonWasAwayEndsAtItsLastReading) {
  const V1Job job(lab_, "7");
  step();
  job.cpu(20);
  pass(30s);
  const auto lives = sampler_->lives();
  sampler_.reset();
  job.vanish();
  clock_.advance(600s);
  start();
  sampler_->restore(lives, true);
  step();
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_EQ(ended_[0].quality.last_read, LastRead::kSample);
  EXPECT_DOUBLE_EQ(ended_[0].elapsed_seconds, 30);
  EXPECT_FALSE(ended_[0].complete());
  step();
  EXPECT_EQ(ended_.size(), 1U);
}

TEST_F(SamplerTest, AfterARebootNothingOfBeforeGoesOn) {
  const V1Job job(lab_, "7");
  step();
  pass(30s);
  restart(/*same_boot=*/false);
  step();
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_EQ(ended_[0].quality.last_read, LastRead::kSample);
  ASSERT_EQ(sampler_->lives().size(), 1U) << "the job that stands there now is another life";
  EXPECT_EQ(sampler_->lives()[0].readings, 1U);
}

TEST_F(SamplerTest, TheSameIdInAnotherDirectoryIsAnotherLife) {
  auto job = std::make_unique<V1Job>(lab_, "7");
  step();
  job->cpu(50);
  pass(30s);
  // Removed and made again between two looks, with counters that are already beyond the old ones.
  std::filesystem::rename(lab_.root() + "/memory/slurm", lab_.root() + "/old-memory");
  std::filesystem::rename(lab_.root() + "/cpuacct/slurm", lab_.root() + "/old-cpuacct");
  std::filesystem::rename(lab_.root() + "/cpuset/slurm", lab_.root() + "/old-cpuset");
  std::filesystem::rename(lab_.root() + "/freezer/slurm", lab_.root() + "/old-freezer");
  clock_.advance(20s);
  job = std::make_unique<V1Job>(lab_, "7", "slurm", "1001", clock_.now());
  job->cpu(70);
  pass(30s);
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_THAT(ended_[0].cpu.time_seconds, Optional(DoubleNear(50, 1e-9)));
  ASSERT_EQ(sampler_->lives().size(), 1U);
  EXPECT_NE(sampler_->lives()[0].job.started_at, ended_[0].job.started_at);
  EXPECT_THAT(sampler_->lives()[0].cpu.time_seconds, Optional(DoubleNear(70, 1e-9)));
}

TEST_F(SamplerTest, ADirectoryThatAJobLeftBehindIsNoJob) {
  const V1Job job(lab_, "7");
  for (const char* controller : {"memory", "cpuacct"})
    lab_.remove(job.of(controller) + "/step_batch");
  step();
  pass(300s);
  EXPECT_TRUE(ended_.empty());
  EXPECT_EQ(sampler_->counts().jobs, 0U);
  // Until a process is in it again.
  lab_.write(job.of("memory") + "/step_0/task_0/cgroup.procs", "7\n");
  pass(60s);
  EXPECT_EQ(sampler_->counts().jobs, 1U);
}

TEST_F(SamplerTest, AnEmptyDirectoryThatStaysEndsTheJobAllTheSame) {
  const V1Job job(lab_, "7");
  step();
  job.cpu(5);
  pass(30s);
  job.end_tasks();
  for (const char* controller : {"memory", "cpuacct"})
    lab_.remove(job.of(controller) + "/step_extern");
  pass(300s);
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_TRUE(ended_[0].complete());
  EXPECT_EQ(sampler_->counts().jobs, 0U);
  pass(300s);
  EXPECT_EQ(ended_.size(), 1U);
}

TEST_F(SamplerTest, AControllerThatOutlivesTheOthersDoesNotKeepTheJob) {
  const V1Job job(lab_, "7");
  step();
  job.end_tasks();
  step();
  for (const char* controller : {"cpuacct", "memory", "freezer"}) lab_.remove(job.of(controller));
  pass(6s);
  ASSERT_EQ(ended_.size(), 1U);
  pass(120s);
  EXPECT_EQ(ended_.size(), 1U) << "what stayed behind is no new job";
}

TEST_F(SamplerTest, AKillIsCountedInItsTaskWhenTheLimitWasHit) {
  const V1Job job(lab_, "7");
  step();
  lab_.write(job.of("memory") + "/memory.failcnt", "200\n");
  lab_.write(job.of("memory") + "/step_batch/task_0/memory.oom_control",
             "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  lab_.remove(job.of("cpuacct") + "/step_batch/task_0");
  step();
  end(job);
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_THAT(ended_[0].memory.oom_kills, Optional(1U));
}

TEST_F(SamplerTest, AHitLimitWhoseTaskIsGoneLeavesTheKillsUnknown) {
  const V1Job job(lab_, "7");
  step();
  lab_.write(job.of("memory") + "/memory.failcnt", "200\n");
  end(job);
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_EQ(ended_[0].memory.oom_kills, std::nullopt);
}

// ---- steps

TEST_F(SamplerTest, AStepIsReadWhenItIsNewWhenItEndsAndNowAndThen) {
  const V1Job job(lab_, "7");
  step();
  pass(60s);
  const V1Step first(lab_, job, "0", 1);
  first.memory(70'000'000, 75'000'000);
  step();
  pass(30s);
  first.memory(10'000'000, 75'000'000);
  first.cpu(20);
  pass(30s);
  first.cpu(55);
  job.cpu(60);
  first.memory(0, 90'000'000);
  first.end_task();
  step();
  first.cpu(99);  // nothing of it is read any more
  first.vanish();
  step();
  pass(10s);
  const V1Step second(lab_, job, "1");
  step();
  pass(300s);
  end(job);
  ASSERT_EQ(ended_.size(), 1U);
  const auto& steps = ended_[0].steps.steps;
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps[0].name, "batch");
  EXPECT_DOUBLE_EQ(steps[0].elapsed_seconds, ended_[0].elapsed_seconds);
  EXPECT_EQ(steps[1].name, "0");
  EXPECT_EQ(steps[1].started_at.nanoseconds, FakeClock::kStart.nanoseconds + 60'000'000'000);
  EXPECT_DOUBLE_EQ(steps[1].elapsed_seconds, 60);
  EXPECT_THAT(steps[1].cpu.time_seconds, Optional(DoubleNear(55, 1e-9)));
  EXPECT_THAT(steps[1].cpu.allocated, Optional(2U));
  EXPECT_THAT(steps[1].memory.peak_working_set_bytes, Optional(70'000'000U));
  EXPECT_THAT(steps[1].memory.peak_charged_bytes, Optional(90'000'000U));
  EXPECT_THAT(steps[1].memory.oom_kills, Optional(0U));
  EXPECT_EQ(steps[1].last_read, LastRead::kRemoval);
  EXPECT_EQ(steps[2].name, "1");
  EXPECT_EQ(steps[2].last_read, LastRead::kSample) << "nobody saw it end before its job";
}

TEST_F(SamplerTest, ANewStepIsReadByTheNextSweepAndThenByEveryFourth) {
  const V1Job job(lab_, "7");
  step();
  pass(60s);
  const V1Step first(lab_, job, "0"), second(lab_, job, "1"), third(lab_, job, "2");
  const auto readings = [&](const char* name) {
    return sampler_->lives()[0].steps.find(name)->readings;
  };
  step();
  pass(30s);
  const std::uint64_t before = readings("0");
  EXPECT_EQ(before, 1U);
  for (const std::string name : {"3", "4", "5", "6"}) {
    const V1Step late(lab_, job, name);
    step();
    pass(30s);
    EXPECT_EQ(readings(name.c_str()), 1U) << name;
  }
  EXPECT_EQ(readings("0"), before + 1);
}

TEST_F(SamplerTest, WithoutStepsOfSrunNothingMoreIsRead) {
  const V1Job job(lab_, "7");
  step();
  pass(60s);
  files_.opened = 0;
  pass(240s);
  const int before = files_.opened;
  EXPECT_TRUE(sampler_->lives()[0].steps.uses({}).steps.empty());
  const V1Step extra(lab_, job, "0");
  step();
  pass(30s);
  files_.opened = 0;
  pass(240s);
  // Two steps and the extern one, at every fourth of eight sweeps.
  EXPECT_LE(files_.opened, before + 2 * 3 * 3);
  EXPECT_GE(files_.opened, before + 2 * 3);
}

TEST_F(SamplerTest, OfAStepWhoseCpuTimeIsGoneAlreadyThePeakOfMemoryIsStillRead) {
  const V1Job job(lab_, "7");
  step();
  const V1Step of_srun(lab_, job, "0", 10);
  step();
  pass(30s);
  of_srun.memory(0, 33);
  lab_.remove(of_srun.of("cpuacct"));
  step();
  of_srun.vanish();
  step();
  end(job);
  ASSERT_EQ(ended_.size(), 1U);
  const StepUse& last = ended_[0].steps.steps.back();
  EXPECT_THAT(last.memory.peak_charged_bytes, Optional(33U));
  EXPECT_THAT(last.cpu.time_seconds, Optional(DoubleNear(10, 1e-9)));
  EXPECT_EQ(last.last_read, LastRead::kSample) << "what it computed in the end is not known";
}

TEST_F(SamplerTest, AStepThatCannotBeReadNowHasNotEnded) {
  const V1Job job(lab_, "7");
  step();
  const V1Step of_srun(lab_, job, "0", 10);
  step();
  pass(30s);
  files_.open_errors = {{"step_0/cpuacct.usage", EMFILE}, {"step_0/memory.stat", EMFILE}};
  pass(240s);
  files_.open_errors.clear();
  of_srun.cpu(200);
  pass(130s);
  EXPECT_TRUE(sampler_->lives()[0].steps.find("0")->runs);
  EXPECT_THAT(sampler_->lives()[0].steps.find("0")->cpu_seconds, Optional(DoubleNear(200, 1e-9)));
}

TEST_F(SamplerTest, AStepThatTheKernelKilledHasTheKill) {
  const V1Job job(lab_, "7");
  step();
  const V1Step good(lab_, job, "0"), killed(lab_, job, "1");
  step();
  lab_.write(job.of("memory") + "/memory.failcnt", "200\n");
  killed.kills(1);
  killed.end_task();
  step();
  killed.vanish();
  good.end_task();
  step();
  end(job);
  ASSERT_EQ(ended_.size(), 1U);
  const auto& steps = ended_[0].steps.steps;
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_THAT(steps[1].memory.oom_kills, Optional(0U));
  EXPECT_THAT(steps[2].memory.oom_kills, Optional(1U));
}

TEST_F(SamplerTest, StepsOverARestartAreThoseOfBefore) {
  const V1Job job(lab_, "7");
  step();
  const V1Step stays(lab_, job, "0", 10), ends(lab_, job, "1", 20);
  step();
  pass(60s);
  restart();
  ends.vanish();
  clock_.advance(300s);
  const V1Step began(lab_, job, "2", 5);
  for (const char* controller : {"memory", "cpuacct"})
    lab_.made_at(began.of(controller), Timestamp{clock_.now().nanoseconds - 100'000'000'000});
  step();
  stays.cpu(33);
  pass(130s);
  stays.end_task();
  step();
  job.cpu(70);
  end(job);
  ASSERT_EQ(ended_.size(), 1U);
  const auto& steps = ended_[0].steps.steps;
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_EQ(steps[1].name, "0");
  EXPECT_THAT(steps[1].cpu.time_seconds, Optional(DoubleNear(33, 1e-9)));
  EXPECT_DOUBLE_EQ(steps[1].elapsed_seconds, 490);
  EXPECT_EQ(steps[2].name, "1");
  EXPECT_EQ(steps[2].last_read, LastRead::kSample);
  EXPECT_LE(steps[2].elapsed_seconds, 60) << "it ended after its last reading, nobody knows when";
  EXPECT_EQ(steps[3].name, "2");
  EXPECT_DOUBLE_EQ(steps[3].elapsed_seconds, 230) << "it began before the daemon was back";
}

TEST_F(SamplerTest, StepsThatRanBeforeTheDaemonBeganWithTheirDirectories) {
  const V1Job job(lab_, "7");
  const V1Step of_srun(lab_, job, "0");
  clock_.advance(100s);
  for (const char* controller : {"memory", "cpuacct"}) {
    lab_.made_at(job.of(controller) + "/step_batch", FakeClock::kStart);
    lab_.made_at(of_srun.of(controller), Timestamp{FakeClock::kStart.nanoseconds + 60'000'000'000});
  }
  step();
  end(job);
  ASSERT_EQ(ended_.size(), 1U);
  const auto& steps = ended_[0].steps.steps;
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].name, "batch");
  EXPECT_DOUBLE_EQ(steps[0].elapsed_seconds, 100);
  EXPECT_DOUBLE_EQ(steps[1].elapsed_seconds, 40);
}

TEST_F(SamplerTest, AStepOfTheSecondVersionIsReadWhenItsLastProcessEnds) {
  const V2Job job(lab_, "job_7");
  step();
  job.file("step_0/user/task_0/cgroup.procs", "");
  job.file("step_0/user/cgroup.events", "populated 0\nfrozen 0\n");
  job.file("step_0/cpu.stat", "usage_usec 1000000\n");
  step();
  pass(1s);
  job.file("step_0/user/cgroup.events", "populated 1\nfrozen 0\n");  // it begins
  step();
  EXPECT_EQ(sampler_->lives()[0].steps.find("0")->last_read, LastRead::kSample);
  job.file("step_0/cpu.stat", "usage_usec 5000000\n");
  job.file("step_0/memory.peak", "800\n");
  clock_.advance(500ms);
  job.file("step_0/user/cgroup.events", "populated 0\nfrozen 0\n");
  step();
  lab_.remove(job.path() + "/step_0");  // so quickly that nothing can be read any more
  step();
  end(job);
  ASSERT_EQ(ended_.size(), 1U);
  const auto& steps = ended_[0].steps.steps;
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_THAT(steps[1].cpu.time_seconds, Optional(DoubleNear(5, 1e-9)));
  EXPECT_THAT(steps[1].memory.peak_charged_bytes, Optional(800U));
  EXPECT_EQ(steps[1].last_read, LastRead::kRemoval);
  EXPECT_DOUBLE_EQ(steps[1].elapsed_seconds, 1.5);
}

TEST_F(SamplerTest, StepsOfTheSecondVersion) {
  const V2Job job(lab_, "job_7");
  const auto file = [&](const std::string& name, const std::string& text) {
    job.file("step_0/" + name, text);
  };
  step();
  file("user/task_0/cgroup.procs", "");
  file("cpu.stat", "usage_usec 2000000\nuser_usec 1\nsystem_usec 1\n");
  file("memory.stat", "anon 500\nfile 0\nshmem 30\n");
  job.file("memory.swap.current", "7\n");
  file("memory.swap.current", "7\n");
  file("memory.peak", "900\n");
  file("memory.events", "oom_kill 2\n");
  file("cpuset.cpus", "1\n");
  file("cpuset.cpus.effective", "1\n");
  step();
  pass(10s);
  file("cpu.stat", "usage_usec 8000000\nuser_usec 1\nsystem_usec 1\n");
  lab_.remove(job.path() + "/step_0/user/task_0");
  step();
  lab_.remove(job.path() + "/step_0");
  step();
  end(job);
  ASSERT_EQ(ended_.size(), 1U);
  const auto& steps = ended_[0].steps.steps;
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[1].name, "0");
  EXPECT_THAT(steps[1].cpu.time_seconds, Optional(DoubleNear(8, 1e-9)));
  EXPECT_THAT(steps[1].cpu.allocated, Optional(1U));
  EXPECT_THAT(steps[1].cpu.efficiency_ratio, Optional(DoubleNear(0.8, 1e-9)));
  EXPECT_THAT(steps[1].memory.peak_working_set_bytes, Optional(537U));
  EXPECT_THAT(steps[1].memory.peak_charged_bytes, Optional(900U));
  EXPECT_THAT(steps[1].memory.oom_kills, Optional(2U));
  EXPECT_EQ(steps[1].last_read, LastRead::kRemoval);
}

TEST_F(SamplerTest, AThousandJobsAtOnceAreEachToldOnce) {
  step();
  std::vector<V2Job> jobs;
  jobs.reserve(1000);
  for (int i = 1; i <= 1000; ++i) jobs.emplace_back(lab_, "job_" + std::to_string(i));
  step();
  EXPECT_EQ(sampler_->counts().jobs, 1000U);
  for (const V2Job& job : jobs) job.cpu(1);
  pass(30s);
  for (const V2Job& job : jobs) job.end_tasks();
  step();
  for (const V2Job& job : jobs) job.vanish();
  // The loop turns for as long as there is something to hear.
  for (int i = 0; i < 100 && sampler_->counts().jobs > 0; ++i) step();
  ASSERT_EQ(ended_.size(), 1000U);
  std::set<std::string> ids;
  for (const NodeUsage& node : ended_) {
    EXPECT_TRUE(ids.insert(node.job.job_id).second);
    EXPECT_THAT(node.cpu.time_seconds, Optional(DoubleNear(1, 1e-9)));
  }
  pass(60s);
  EXPECT_EQ(ended_.size(), 1000U);
  EXPECT_EQ(sampler_->counts().jobs, 0U);
  EXPECT_EQ(sampler_->counts().open_files, 0U);
}

// slurmstepd makes one group after the other, and the first process stands in them last.
TEST_F(SamplerTest, AJobThatIsSeenWhileItIsMadeIsNotTakenForAnEmptyDirectory) {
  lab_.write("memory/slurm/uid_1001/cgroup.procs", "");
  step();
  for (const char* controller : {"freezer", "cpuset", "memory", "cpuacct"}) {
    lab_.write(std::string(controller) + "/slurm/uid_1001/job_7/cgroup.procs", "");
    step();
    step();
  }
  const V1Job job(lab_, "7");
  step();
  pass(31s);
  EXPECT_TRUE(ended_.empty());
  job.cpu(9);
  end(job);
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_EQ(ended_[0].quality.last_read, LastRead::kRemoval);
  EXPECT_THAT(ended_[0].cpu.time_seconds, Optional(DoubleNear(9, 1e-6)));
}

TEST_F(SamplerTest, AtMostHalfOfTheDescriptorsThatWeMayHaveStayOpen) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{std::min<rlim_t>(256, before.rlim_max), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  options_.kept_files = 1'000'000;
  start();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  step();
  std::vector<V2Job> jobs;
  for (int i = 1; i <= 40; ++i) jobs.emplace_back(lab_, "job_" + std::to_string(i));
  step();
  pass(30s);
  EXPECT_EQ(sampler_->counts().jobs, 40U);
  EXPECT_EQ(sampler_->counts().open_files, few.rlim_cur / 2);
}

TEST_F(SamplerTest, AfterAnOverflowOfTheWatchTheSweepSetsItRight) {
  const V2Job job(lab_, "job_1");
  step();
  // More events than any queue holds, in a directory that is watched.
  std::string limit;
  ASSERT_EQ(read_text(real_files(), "/proc/sys/fs/inotify/max_queued_events", limit), 0);
  const int enough = std::min(std::stoi(limit) + 100, 70'000);
  for (int i = 0; i < enough / 2 + 1; ++i) {
    const std::string directory =
        lab_.root() + "/system.slice/slurmstepd.scope/x" + std::to_string(i);
    std::filesystem::create_directory(directory);
    std::filesystem::remove(directory);
  }
  job.vanish();
  const V2Job next(lab_, "job_2");
  for (int i = 0; i < 100 && sampler_->counts().overflows == 0; ++i) step();
  EXPECT_EQ(sampler_->counts().overflows, 1U);
  step();
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_EQ(ended_[0].job.job_id, "1");
  ASSERT_EQ(sampler_->lives().size(), 1U);
  EXPECT_EQ(sampler_->lives()[0].job.job_id, "2");
}

TEST_F(SamplerTest, DescriptorsThatAreKeptAreBounded) {
  options_.kept_files = 10;
  std::vector<V1Job> jobs;
  jobs.reserve(20);
  for (int i = 0; i < 20; ++i) jobs.emplace_back(lab_, std::to_string(i));
  step();
  pass(60s);
  EXPECT_EQ(sampler_->counts().open_files, 10U);
  for (const UsageSample& sample : samples_)
    EXPECT_TRUE(sample.memory.peak_charged_bytes.has_value());
}

TEST_F(SamplerTest, KeptDescriptorsMakeASweepCheaper) {
  const V1Job job(lab_, "7");
  step();
  pass(60s);
  const int before = files_.opened;
  sampler_->sweep();
  const int kept = files_.opened - before;
  options_.kept_files = 0;
  sampler_.reset();
  step();
  pass(60s);
  const int then = files_.opened;
  sampler_->sweep();
  EXPECT_GE(files_.opened - then, kept + 4)
      << "a job's six counters, less what is read seldom anyway";
}

TEST_F(SamplerTest, WithoutCountersTheProcessesThemselvesAreAdded) {
  using namespace std::string_literals;
  lab_.write("freezer/slurm/uid_1001/job_5/step_batch/cgroup.procs", "101\n102\n103\n");
  lab_.made_at("freezer/slurm/uid_1001/job_5", FakeClock::kStart);
  const auto ticks = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  const auto process = [&](const char* pid, std::uint64_t user, std::uint64_t system,
                           std::uint64_t waited) {
    lab_.dir().write("proc/"s + pid + "/stat",
                     pid + " (x) S 1 1 1 0 -1 0 0 0 0 0 "s + std::to_string(user * ticks) + " " +
                         std::to_string(system * ticks) + " " + std::to_string(waited * ticks) +
                         " 0 20 0 1 0 1 0 0 0\n");
    lab_.dir().write("proc/"s + pid + "/statm", "9000 3000 1000 1 0 1 0\n");
    lab_.dir().write("proc/"s + pid + "/io", "rchar: 1000\nwchar: 500\nsyscr: 1\n");
  };
  process("101", 3, 1, 6);
  process("102", 2, 0, 0);
  options_.process_io = true;
  step();
  pass(30s);
  ASSERT_FALSE(samples_.empty());
  const UsageSample& sample = samples_.back();
  EXPECT_EQ(sample.source.cpu, Method::kProc);
  EXPECT_THAT(sample.cpu.time_seconds, Optional(DoubleNear(12, 1e-9)))
      << "103 is gone already; children that ended count";
  EXPECT_THAT(sample.memory.anon_bytes,
              Optional(2U * 2000 * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))));
  EXPECT_EQ(sample.source.io, Method::kProc);
  EXPECT_THAT(sample.io.read_bytes, Optional(2000U));

  // One ends: what it read and wrote is kept.
  std::filesystem::remove_all(lab_.proc() + "/102");
  lab_.write("freezer/slurm/uid_1001/job_5/step_batch/cgroup.procs", "101\n");
  pass(30s);
  EXPECT_THAT(samples_.back().io.read_bytes, Optional(2000U));
}

TEST_F(SamplerTest, ProcessesWhoseIoMayNotBeReadLeaveItAbsent) {
  const V1Job job(lab_, "7");
  for (const char* pid : {"101", "102"}) {
    lab_.dir().write(std::string("proc/") + pid + "/io", "rchar: 1000\nwchar: 500\n");
  }
  files_.open_errors = {{"/io", EACCES}};
  options_.process_io = true;
  step();
  pass(60s);
  ASSERT_FALSE(samples_.empty());
  EXPECT_EQ(samples_.back().io.read_bytes, std::nullopt);
  EXPECT_EQ(samples_.back().source.io, std::nullopt);
  EXPECT_EQ(log_.count("USAGE_NO_PROCESS_IO"), 1U);
}

TEST_F(SamplerTest, AJobThatRanBeforeTheDaemonBeganWithItsOldestProcess) {
  const V1Job job(lab_, "7");
  const auto ticks = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  lab_.dir().write("proc/uptime", "1000.00 1.00\n");
  lab_.dir().write("proc/101/stat", "101 (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 " +
                                        std::to_string(400 * ticks) + " 0 0 0\n");
  job.cpu(300);
  step();
  ASSERT_EQ(sampler_->lives().size(), 1U);
  EXPECT_EQ(sampler_->lives()[0].job.started_at.nanoseconds,
            FakeClock::kStart.nanoseconds - 600LL * 1'000'000'000);
  end(job);
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_THAT(ended_[0].cpu.efficiency_ratio, Optional(DoubleNear(300.0 / (600 * 4), 1e-6)));
  EXPECT_THAT(ended_[0].quality.covered_ratio, Optional(DoubleNear(0, 1e-3)));
}

TEST_F(SamplerTest, NothingIsEverWrittenOrMadeBelowTheRoot) {
  const V1Job first(lab_, "7");
  const V2Job second(lab_, "job_9");
  const auto all = [&] {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(lab_.root()))
      found.insert(entry.path());
    return found;
  };
  const auto before = all();
  step();
  pass(300s);
  EXPECT_EQ(all(), before);
}

// ---- GPUs

class ThreeGpus final : public GpuReader {
 public:
  std::array<double, 3> now{};  // utilization
  Method method() const noexcept override { return Method::kNvml; }
  const std::vector<GpuDevice>& devices() const noexcept override { return devices_; }
  GpuReading read(std::size_t device) override {
    return {.utilization_ratio = now.at(device), .memory_used_bytes = 1000};
  }

 private:
  std::vector<GpuDevice> devices_ = {
      {"GPU-a", 0, 0U, "A100"}, {"GPU-b", 1, 1U, "A100"}, {"GPU-c", 2, 2U, "A100"}};
};

class SamplerGpuTest : public SamplerTest {
 protected:
  ThreeGpus* scripted_ = nullptr;  // those that were made last

  std::vector<std::unique_ptr<GpuReader>> readers() {
    std::vector<std::unique_ptr<GpuReader>> all;
    auto gpus = std::make_unique<ThreeGpus>();
    scripted_ = gpus.get();
    all.push_back(std::move(gpus));
    return all;
  }
  GpuMonitor three_{readers(), clock_};

  std::vector<std::string> gpus_of_ended_job(const V1Job& job) {
    sampler_ = std::make_unique<Sampler>(options_, files_, three_, log_, clock_);
    step();
    three_.poll();
    clock_.advance(2s);
    three_.poll();
    end(job);
    std::vector<std::string> ids;
    for (const NodeGpu& gpu : ended_.at(0).gpus) {
      ids.push_back(gpu.id);
      EXPECT_THAT(gpu.zero_ratio, Optional(1.0));
    }
    return ids;
  }
};

TEST_F(SamplerGpuTest, AGpuBelongsToTheJobThatThePrologNames) {
  const V1Job job(lab_, "7");
  lab_.dir().write("gpustat/1", "7 1001\n");
  lab_.dir().write("gpustat/GPU-c", "7 1001\n");
  lab_.dir().write("gpustat/0", "8 1001\n");
  options_.gpu_jobs_dir = lab_.path("gpustat");
  EXPECT_THAT(gpus_of_ended_job(job), ::testing::ElementsAre("GPU-b", "GPU-c"));
  EXPECT_EQ(ended_.at(0).source.gpu, Method::kNvml);
}

TEST_F(SamplerGpuTest, AGpuBelongsToTheJobWhoseDeviceGroupAllowsIt) {
  const V1Job job(lab_, "7");
  lab_.write(job.of("devices") + "/devices.list", "c 1:* rwm\nc 195:2 rw\nc 195:255 rw\n");
  EXPECT_THAT(gpus_of_ended_job(job), ::testing::ElementsAre("GPU-c"));
}

TEST_F(SamplerGpuTest, DevicesThatAreNotConstrainedSayNothing) {
  const V1Job job(lab_, "7");
  lab_.write(job.of("devices") + "/devices.list", "a *:* rwm\n");
  EXPECT_THAT(gpus_of_ended_job(job), ::testing::ElementsAre());
}

TEST_F(SamplerGpuTest, AStepHasWhatItsGpusDidWhileItRan) {
  const V1Job job(lab_, "7");
  lab_.write(job.of("devices") + "/devices.list", "c 195:1 rw\nc 195:2 rw\n");
  sampler_ = std::make_unique<Sampler>(options_, files_, three_, log_, clock_);
  step();
  const auto poll = [&](double first, double second) {
    scripted_->now = {0, first, second};
    three_.poll();
    clock_.advance(2s);
    three_.poll();
  };
  poll(0, 0);
  const V1Step one(lab_, job, "0"), both(lab_, job, "1"), none(lab_, job, "2");
  lab_.write(one.of("devices") + "/devices.list", "c 195:2 rw\nc 195:255 rw\n");
  lab_.write(none.of("devices") + "/devices.list", "c 195:255 rw\n");
  pass(30s);
  poll(0.5, 1);
  one.vanish();
  lab_.remove(one.of("devices"));
  step();
  poll(0.5, 0);
  const V1Step later(lab_, job, "3");
  both.vanish();
  step();
  poll(0, 0);
  EXPECT_THAT(three_.now(sampler_->lives().at(0).job.key() + "/0"), ::testing::IsEmpty())
      << "kept no longer";
  lab_.remove(job.of("devices"));
  job.cpu(1);
  end(job);
  ASSERT_EQ(ended_.size(), 1U);
  std::map<std::string, StepGpu> gpus;
  for (const StepUse& use : ended_[0].steps.steps) gpus[use.name] = use.gpu;
  EXPECT_EQ(gpus["0"].count, 1U);
  EXPECT_THAT(gpus["0"].utilization_ratio, Optional(DoubleNear(1, 1e-9)));
  EXPECT_EQ(gpus["1"].count, 2U) << "without a list of its own it has those of its job";
  EXPECT_THAT(gpus["1"].utilization_ratio, Optional(DoubleNear((0.5 + 0.5) / 2, 1e-9)));
  EXPECT_EQ(gpus["1"].peak_memory_bytes, 2000U);
  EXPECT_EQ(gpus["2"].count, 0U);
  EXPECT_EQ(gpus["3"].count, 0U) << "no reading of the job met it";
  EXPECT_THAT(three_.now(ended_[0].job.key() + "/batch"), ::testing::IsEmpty());
}

TEST_F(SamplerGpuTest, AStepThatRunsWhenItsJobEndsHasItsGpusToo) {
  const V1Job job(lab_, "7");
  lab_.write(job.of("devices") + "/devices.list", "c 195:0 rw\n");
  sampler_ = std::make_unique<Sampler>(options_, files_, three_, log_, clock_);
  const V1Step srun(lab_, job, "0");
  step();
  scripted_->now = {0.25, 0, 0};
  three_.poll();
  end(job);
  ASSERT_EQ(ended_.size(), 1U);
  ASSERT_EQ(ended_[0].steps.steps.size(), 2U);
  for (const StepUse& use : ended_[0].steps.steps) {
    EXPECT_THAT(use.gpu.utilization_ratio, Optional(DoubleNear(0.25, 1e-9))) << use.name;
  }
}

TEST_F(SamplerGpuTest, AStepWhoseRemovalNothingReportsHasItsGpusToo) {
  const V1Job job(lab_, "7");
  lab_.write(job.of("devices") + "/devices.list", "c 195:0 rw\n");
  sampler_ = std::make_unique<Sampler>(options_, files_, three_, log_, clock_);
  const V1Step srun(lab_, job, "0");
  step();
  scripted_->now = {0.25, 0, 0};
  three_.poll();
  // As if inotify had lost its notifications: a directory that is moved away has none.
  for (const char* controller : {"cpuacct", "memory", "cpuset", "freezer", "devices"}) {
    std::filesystem::rename(lab_.root() + "/" + job.of(controller),
                            lab_.path(std::string("gone-") + controller));
  }
  for (int i = 0; i < 5 && ended_.empty(); ++i) pass(30s);
  ASSERT_EQ(ended_.size(), 1U);
  ASSERT_EQ(ended_[0].steps.steps.size(), 2U);
  EXPECT_THAT(ended_[0].steps.steps[1].gpu.utilization_ratio, Optional(DoubleNear(0.25, 1e-9)));
}

TEST_F(SamplerGpuTest, OfAStepThatARestartCutsInTwoNothingIsSaid) {
  const V1Job job(lab_, "7");
  lab_.write(job.of("devices") + "/devices.list", "c 195:0 rw\n");
  sampler_ = std::make_unique<Sampler>(options_, files_, three_, log_, clock_);
  step();
  const V1Step cut(lab_, job, "0"), ended(lab_, job, "1");
  pass(30s);
  scripted_->now = {0.25, 0, 0};
  three_.poll();
  ended.vanish();
  step();
  const auto lives = sampler_->lives();
  GpuMonitor later(readers(), clock_);
  sampler_ = std::make_unique<Sampler>(options_, files_, later, log_, clock_);
  std::vector<LifeState> again;
  for (const LifeState& life : lives) again.push_back(*parse_life(life_record(life)));
  sampler_->restore(std::move(again), true);
  const V1Step began(lab_, job, "2");
  pass(30s);
  scripted_->now = {1, 0, 0};
  later.poll();
  end(job);
  ASSERT_EQ(ended_.size(), 1U);
  std::map<std::string, std::optional<double>> used;
  for (const StepUse& use : ended_[0].steps.steps) used[use.name] = use.gpu.utilization_ratio;
  EXPECT_THAT(used["0"], std::nullopt);
  EXPECT_THAT(used["1"], Optional(0.25));
  EXPECT_THAT(used["2"], Optional(1.0));
}

TEST_F(SamplerGpuTest, AGpuBelongsToTheJobWhoseEnvironmentNamesIt) {
  using namespace std::string_literals;
  const V1Job job(lab_, "7");
  lab_.dir().write("proc/101/stat", "101 (bash) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 5 0 0 0\n");
  lab_.dir().write("proc/101/environ", "SLURM_JOB_ID=7\0SLURM_JOB_GPUS=0\0"s);
  EXPECT_THAT(gpus_of_ended_job(job), ::testing::ElementsAre("GPU-a"));
}

}  // namespace
}  // namespace scriptorium::usage
