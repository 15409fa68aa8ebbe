#include "schedulers/usage/program_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>
#include <nlohmann/json.hpp>

#include "schedulers/usage/events.h"
#include "schedulers/usage/sampler.h"
#include "tests/schedulers/usage/cgroup_lab.h"
#include "tests/schedulers/usage/fake_executables.h"
#include "tests/support/recording_logger.h"

namespace scriptorium::usage {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using scriptorium::test::RecordingLogger;
using test::CgroupLab;
using test::FailingFiles;
using test::FakeClock;
using test::V1Job;
using ::testing::ElementsAre;
using ::testing::Pair;
using Json = nlohmann::json;

class ProgramReaderTest : public ::testing::Test {
 protected:
  CgroupLab lab_;
  FailingFiles files_;
  LifeState life_;
  test::FakeExecutables executables_;
  SteadyTime now_{1h};

  ProgramReaderTest() {
    life_.job.scheduler = "slurm";
    life_.job.job_id = "7";
    life_.started_ns = std::chrono::nanoseconds(now_.time_since_epoch()).count();
  }
  void write(int pid, const std::string& file, const std::string& bytes) const {
    lab_.dir().write("proc/" + std::to_string(pid) + "/" + file, bytes);
  }
  void stat(int pid, const std::string& command, int ticks, char state = 'S') const {
    write(pid, "stat",
          std::to_string(pid) + " (" + command + ") " + state + " 1 1 1 0 -1 4194560 0 0 0 0 " +
              std::to_string(ticks) + " 0 900 90 20 0 3 0 777 0 0\n");
  }
  void read(const std::vector<std::uint32_t>& pids, std::chrono::seconds later = 1s) {
    now_ += later;
    read_programs(files_, lab_.proc(), pids, now_, &executables_, life_);
  }
  std::vector<ProgramUse> programs() const { return life_.programs.shares(100).programs; }
};

TEST_F(ProgramReaderTest, ReadsTimesAndNamesOfProcesses) {
  stat(11, "python3", 250);
  write(11, "cmdline", "/usr/bin/python3\0/home/u/train.py\0--token=x\0"s);
  write(11, "cgroup", "4:memory:/slurm/uid_1/job_7/step_0/task_3\n");
  stat(12, "odd) R 1 (name", 100);
  read({11, 12, 13});
  const auto found = programs();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].name, "python3");
  EXPECT_EQ(found[0].script, "train.py");
  EXPECT_DOUBLE_EQ(found[0].cpu_seconds, 2.5) << "without ended children";
  EXPECT_EQ(found[0].threads, 3U);
  EXPECT_EQ(found[0].ranks, 1U);
  EXPECT_EQ(found[1].name, "odd) R 1 (name");
  EXPECT_FALSE(found[1].ranks.has_value());
}

TEST_F(ProgramReaderTest, ProgramsInAContainerAreOfTheirOwn) {
  lab_.dir().write("proc/self/mountinfo", "27 1 254:0 / / rw - ext4 /dev/vda rw\n");
  for (const int pid : {11, 12, 13}) {
    stat(pid, "python3", 100 * pid);
    write(pid, "mountinfo",
          "44 64 254:0 " + (pid == 11 ? "/"s : "/images/pytorch"s) + " / ro - ext4 /dev/vda rw\n");
  }
  read({11, 12, 13});
  const auto found = programs();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].container, "pytorch");
  EXPECT_DOUBLE_EQ(found[0].cpu_seconds, 25);
  EXPECT_EQ(found[1].container, "");
  executables_.answers[12] = {"python3", "/usr/bin/python3.11", ""};
  read({11, 12, 13}, 60s);
  ASSERT_EQ(programs().size(), 3U);
  EXPECT_EQ(programs()[1].container + programs()[1].path, "pytorch/usr/bin/python3.11");
}

TEST_F(ProgramReaderTest, AsksForFilesAndTakesAnswersAtEachLaterCall) {
  stat(11, "python3", 100);
  stat(12, "gmx", 200);
  read({11, 12});
  EXPECT_THAT(executables_.asked, ElementsAre(Pair(11, 777), Pair(12, 777)));
  EXPECT_EQ(programs()[0].path, "") << "nothing waits for the answer";
  executables_.answers[12] = {"gmx", "/opt/gmx", "ab12"};
  now_ += 1ms;
  EXPECT_FALSE(programs_due(life_, now_));
  read_programs(files_, lab_.proc(), {11, 12}, now_, &executables_, life_);
  EXPECT_EQ(programs()[0].path, "/opt/gmx");
  EXPECT_EQ(programs()[0].build_id, "ab12");
  EXPECT_EQ(programs()[1].path, "");
  executables_.answers[11] = {"python3", "/usr/bin/python3.11", ""};
  stat(11, "sh", 150);
  read({11, 12}, 60s);
  std::vector<std::string> paths;
  for (const ProgramUse& one : programs()) paths.push_back(one.name + " " + one.path);
  EXPECT_THAT(paths, ElementsAre("gmx /opt/gmx", "python3 /usr/bin/python3.11", "sh "))
      << "the answer is that of the command at the reading before";
}

TEST_F(ProgramReaderTest, CountsTheThreadsThatRan) {
  // ns of each thread's time on a CPU.
  const auto threads = [&](int pid, const std::vector<std::uint64_t>& times) {
    int thread = pid;
    for (const std::uint64_t time : times) {
      write(pid, "task/" + std::to_string(thread++) + "/schedstat",
            std::to_string(time) + " 12345 678\n");
    }
  };
  stat(11, "serial", 100);
  threads(11, {1'000'000'000, 99'999'999, 0});
  stat(12, "parallel", 200);
  threads(12, {1'000'000'000, 100'000'000, 900'000'000});
  stat(13, "young", 1);
  threads(13, {9'999'999, 9'000'000, 1'000});
  stat(14, "waits", 0);
  stat(15, "unknown", 300);
  stat(17, "ended", 300);  // most of it by threads that are gone
  threads(17, {1'000'000'000, 490'000'000});
  stat(16, "odd", 300);
  threads(16, {1'000'000'000});
  write(16, "task/17/schedstat", "x 1 2\n");
  read({11, 12, 13, 14, 15, 16, 17});
  std::map<std::string, std::optional<std::uint64_t>> busy;
  for (const ProgramUse& one : programs()) busy[one.name] = one.busy_threads;
  using Busy = std::pair<const std::string, std::optional<std::uint64_t>>;
  EXPECT_THAT(busy, ElementsAre(Busy("ended", std::nullopt), Busy("odd", std::nullopt),
                                Busy("parallel", 3), Busy("serial", 1),
                                Busy("unknown", std::nullopt), Busy("waits", 0), Busy("young", 0)));
}

TEST_F(ProgramReaderTest, ThreadsBeyondAThousandOfAJobAreNotReadOneByOne) {
  const auto process = [&](int pid, int threads) {
    write(pid, "stat",
          std::to_string(pid) + " (p" + std::to_string(pid) +
              ") S 1 1 1 0 -1 4194560 0 0 0 0 100 0 900 90 20 0 " + std::to_string(threads) +
              " 0 777 0 0\n");
    write(pid, "task/1/schedstat", "1000000000 1 1\n");
  };
  process(11, 1000);
  process(12, 25);
  process(13, 24);
  read({11, 12, 13});
  std::vector<bool> known;
  for (const ProgramUse& one : programs()) known.push_back(one.busy_threads.has_value());
  EXPECT_THAT(known, ElementsAre(true, false, true)) << "by name";
}

TEST_F(ProgramReaderTest, AsksForTheNameOnceAndForTheTimeEachTime) {
  stat(11, "gmx", 100);
  write(11, "cmdline", "gmx\0mdrun\0"s);
  read({11});
  const int first = files_.opened;
  stat(11, "gmx", 300);
  read({11});
  EXPECT_EQ(files_.opened - first, 1);
  EXPECT_DOUBLE_EQ(programs().front().cpu_seconds, 3);
}

TEST_F(ProgramReaderTest, AProcessThatEndsBetweenTwoFilesIsNamedByItsCommand) {
  stat(11, "gmx", 100);
  read({11});
  EXPECT_EQ(programs().front().name, "gmx");
}

TEST_F(ProgramReaderTest, AProcessThatWaitsForADiskIsNotAskedForItsCommandLine) {
  stat(11, "gmx", 100, 'D');
  write(11, "cmdline", "gmx\0"s);
  read({11});
  EXPECT_TRUE(programs().empty());
  EXPECT_EQ(files_.opened, 1);
  stat(11, "gmx", 300, 'R');
  read({11});
  EXPECT_DOUBLE_EQ(programs().front().cpu_seconds, 3);
}

TEST_F(ProgramReaderTest, SlurmstepdOnItsWayIsNotAProgramOfTheJob) {
  stat(11, "slurmstepd", 100);
  read({11});
  EXPECT_TRUE(programs().empty());
}

TEST_F(ProgramReaderTest, AReadingWithoutDescriptorsChangesNothing) {
  stat(11, "gmx", 100);
  stat(12, "gmx", 100);
  read({11, 12});
  files_.open_errors["/12/stat"] = EMFILE;
  stat(11, "gmx", 500);
  read({11, 12});
  EXPECT_DOUBLE_EQ(programs().front().cpu_seconds, 2);
  files_.open_errors.clear();
  read({11, 12});
  EXPECT_DOUBLE_EQ(programs().front().cpu_seconds, 6);
}

TEST_F(ProgramReaderTest, AYoungJobIsReadOftenAndAnOldOneEachTwoMinutes) {
  std::vector<int> read_at;
  const SteadyTime start = now_;
  stat(11, "gmx", 100);
  std::vector<int> sweeps = {1, 2, 5, 10, 20};
  for (int at = 30; at <= 2400; at += 30) sweeps.push_back(at);
  for (const int at : sweeps) {
    now_ = start + std::chrono::seconds(at);
    if (programs_due(life_, now_)) read_at.push_back(at);
    read({11}, 0s);
  }
  EXPECT_EQ(std::vector<int>(read_at.begin(), read_at.begin() + 6),
            (std::vector<int>{1, 2, 5, 10, 20, 30}));
  for (std::size_t i = 6; i < read_at.size(); ++i) {
    const int apart = read_at[i] - read_at[i - 1];
    EXPECT_LE(apart, 120);
    EXPECT_LE(apart, std::max(30, read_at[i] / 8 + 30));
    if (read_at[i - 1] > 960) {
      EXPECT_EQ(apart, 120);
    }
  }
}

TEST_F(ProgramReaderTest, AYoungJobWhoseGroupsAppearOneByOneIsNotReadForEach) {
  stat(11, "gmx", 100);
  read({11}, 0s);
  const int first = files_.opened;
  now_ += 100ms;
  read({11}, 0s);
  EXPECT_EQ(files_.opened, first);
  now_ += 500ms;
  read({11}, 0s);
  EXPECT_GT(files_.opened, first);
}

TEST_F(ProgramReaderTest, HostileNamesStayTextInEventsAndInTheStateFile) {
  const std::string huge(4096, 'x');
  stat(11, "a\nb\x1b[2J", 100);
  stat(12, "\xff\xfe", 100);
  stat(13, "long", 100);
  write(13, "cmdline", "/bin/" + huge);
  stat(14, "python3", 100);
  write(14, "cmdline", "python3\0"s + "/tmp/\x1b]0;title\x07\x80" + "\0"s);
  stat(15, "quote", 100);
  write(15, "cmdline", "\"},{\"\0"s);
  read({11, 12, 13, 14, 15});
  Life life(life_);
  NodeUsage node = life.finish(now_, {}, LastRead::kRemoval);
  node.cpu.time_seconds = 10;
  const Json usage = Json::parse(usage_json(node));
  ASSERT_EQ(usage["programs"].size(), 5U);
  for (const Json& program : usage["programs"]) {
    EXPECT_LE(program["name"].get<std::string>().size(), kLongestProgramName);
    EXPECT_LE(program.value("script", "").size(), kLongestProgramName);
  }
  const std::string record = life_record(life_);
  EXPECT_EQ(record.find('\n'), std::string::npos) << "a line of the state file";
  EXPECT_EQ(life_record(*parse_life(record)), record);
}

// Processes of this test's own as those of a job that a sampler reads.
class RealProcessTest : public ::testing::Test {
 protected:
  std::vector<pid_t> children_;
  CgroupLab lab_;
  FakeClock clock_;
  RecordingLogger log_;
  FailingFiles files_;
  GpuMonitor gpus_{std::vector<std::unique_ptr<GpuReader>>{}, clock_};

  ~RealProcessTest() override {
    for (const pid_t child : children_) ::kill(child, SIGKILL);
    for (const pid_t child : children_) ::waitpid(child, nullptr, 0);
  }
  // Runs a program until it stops itself, so that it uses nothing more.
  pid_t start_until_stopped(const std::vector<std::string>& words) {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      ::execvp(arguments[0], arguments.data());
      ::_exit(127);
    }
    children_.push_back(child);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, WUNTRACED), child);
    EXPECT_TRUE(WIFSTOPPED(status)) << words.front();
    return child;
  }
  static double charged_seconds(pid_t pid) {
    std::string text;
    read_text(real_files(), "/proc/" + std::to_string(pid) + "/stat", text);
    const auto stat = parse_process_stat(text);
    return stat ? static_cast<double>(stat->ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK))
                : -1;
  }
};

TEST_F(RealProcessTest, EachProgramHasTheTimeThatTheKernelCharged) {
  lab_.dir().write("count.sh",
                   "i=0\nwhile [ $i -lt 300000 ]; do i=$((i+1)); done\nkill -STOP $$\n");
  const pid_t busy = start_until_stopped({"sh", lab_.path("count.sh"), "--password=secret"});
  const pid_t idle = start_until_stopped({"perl", "-e", "kill 'STOP', $$", "secret"});
  const V1Job job(lab_, "7");
  lab_.write(job.of("memory") + "/step_batch/task_0/cgroup.procs",
             std::to_string(busy) + "\n" + std::to_string(idle) + "\n");
  job.cpu(60);
  SamplerOptions options;
  options.root = lab_.root();
  options.node = "n1";
  options.process_io = false;
  Sampler sampler(options, files_, gpus_, log_, clock_);
  sampler.step();
  clock_.advance(30s);
  sampler.step();
  job.end_tasks();
  sampler.step();
  job.vanish();
  sampler.step();
  const auto ended = sampler.take().ended;
  ASSERT_EQ(ended.size(), 1U);
  const ProgramShares& shares = ended[0].programs;
  ASSERT_EQ(shares.programs.size(), 2U);
  EXPECT_EQ(shares.programs[0].name, "sh");
  EXPECT_EQ(shares.programs[0].script, "count.sh");
  EXPECT_GT(shares.programs[0].cpu_seconds, 0);
  EXPECT_DOUBLE_EQ(shares.programs[0].cpu_seconds, charged_seconds(busy));
  EXPECT_EQ(shares.programs[1].name, "perl");
  EXPECT_EQ(shares.programs[1].script, "");
  EXPECT_DOUBLE_EQ(shares.programs[1].cpu_seconds, charged_seconds(idle));
  ASSERT_TRUE(shares.unseen.has_value());
  EXPECT_NEAR(shares.unseen->cpu_seconds, 60 - charged_seconds(busy) - charged_seconds(idle), 1e-6);
  const Event event = node_event("lab", ended[0]);
  EXPECT_NE(event.extra_json.find("count.sh"), std::string::npos);
  EXPECT_EQ(event.extra_json.find("secret"), std::string::npos);
}

TEST_F(RealProcessTest, OfManyThreadsThoseThatRanAreCounted) {
  // perl of Debian has no threads; python3 has, and each of these burns CPU time in one that lets
  // others run, one after the other.
  const pid_t child = start_until_stopped(
      {"python3", "-c",
       "import os, signal, threading, time\n"
       "def burn():\n"
       "    while time.thread_time() < 0.1: pass\n"
       "    done.release(); threading.Event().wait()\n"
       "done = threading.Semaphore(0)\n"
       "threads = [threading.Thread(target=burn, daemon=True) for _ in range(2)]\n"
       "threads += [threading.Thread(target=threading.Event().wait, daemon=True) for _ in "
       "range(3)]\n"
       "for thread in threads: thread.start()\n"
       "for _ in range(2): done.acquire()\n"
       "while time.thread_time() < 0.1: pass\n"
       "os.kill(os.getpid(), signal.SIGSTOP)\n"});
  LifeState life;
  read_programs(real_files(), "/proc", {static_cast<std::uint32_t>(child)}, SteadyTime{1h}, nullptr,
                life);
  const auto programs = life.programs.shares(std::nullopt).programs;
  ASSERT_EQ(programs.size(), 1U);
  EXPECT_EQ(programs[0].threads, 6U);
  EXPECT_EQ(programs[0].busy_threads, 3U);
}

TEST_F(RealProcessTest, ProcessesOfTheNextLifeAreNotThoseOfTheLastOne) {
  const auto process = [&](const std::string& command, int ticks) {
    lab_.dir().write("proc/101/stat", "101 (" + command + ") S 1 1 1 0 -1 0 0 0 0 0 " +
                                          std::to_string(ticks) + " 0 0 0 20 0 1 0 " +
                                          std::to_string(ticks) + " 0 0\n");
  };
  const V1Job job(lab_, "7");
  job.cpu(60);
  process("before", 5000);
  SamplerOptions options;
  options.root = lab_.root();
  options.proc = lab_.proc();
  options.node = "n1";
  options.process_io = false;
  Sampler sampler(options, files_, gpus_, log_, clock_);
  sampler.step();
  job.cpu(2);  // the counter of other groups under the same names
  process("after", 100);
  clock_.advance(30s);
  sampler.step();
  const auto ended = sampler.take().ended;
  ASSERT_EQ(ended.size(), 1U);
  ASSERT_EQ(ended[0].programs.programs.size(), 1U);
  EXPECT_EQ(ended[0].programs.programs[0].name, "before");
  clock_.advance(30s);
  sampler.step();
  const ProgramShares next = sampler.lives().at(0).programs.shares(2);
  ASSERT_EQ(next.programs.size(), 1U);
  EXPECT_EQ(next.programs[0].name, "after");
}

}  // namespace
}  // namespace scriptorium::usage
