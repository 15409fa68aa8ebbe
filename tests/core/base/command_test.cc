#include "core/base/command.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

using namespace std::literals;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

class CommandRunnerTest : public ::testing::Test {
 protected:
  using Command = CommandRunner::Command;
  static SteadyTime in(std::chrono::milliseconds delay) { return steady_clock::now() + delay; }
  static Command shell(const std::string& text) {
    return {"/bin/sh", {"-c", text}, {"PATH=/usr/bin:/bin"}};
  }
  // True if this process has no child left, dead or alive.
  static bool no_child_left() { return waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD; }
  // Until the process is gone; false after 20 s.
  static bool ends(pid_t pid) {
    for (const auto until = in(test::kPatience); steady_clock::now() < until;) {
      if (kill(pid, 0) != 0 && errno == ESRCH) return true;
      // A killed grandchild may stay as a zombie where the process that adopts it reaps nothing.
      const char state = process_state(pid);
      if (state == 'Z' || state == 'X') return true;
      std::this_thread::yield();
    }
    return false;
  }
  static char process_state(pid_t pid) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(in, text);
    const auto end = text.rfind(") ");
    return end == std::string::npos ? 'X' : text[end + 2];
  }
  test::TempDir directory_;
  CommandRunner runner_;
};

TEST_F(CommandRunnerTest, GivesOutputErrorAndStatus) {
  const auto result =
      runner_.run(shell("printf 'a\\000b\\n'; echo bad >&2; exit 3"), {}, in(test::kPatience));
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(result->output, "a\0b\n"s);
  EXPECT_EQ(result->error, "bad\n");
  EXPECT_EQ(result->status, 3);
  EXPECT_TRUE(no_child_left());
}

TEST_F(CommandRunnerTest, ASignalIsToldAsAShellDoes) {
  const auto result = runner_.run(shell("kill -TERM $$"), {}, in(test::kPatience));
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(result->status, 128 + SIGTERM);
}

TEST_F(CommandRunnerTest, TheChildHasOnlyTheEnvironmentItIsGiven) {
  ASSERT_EQ(setenv("SQUEUE_FORMAT", "forged", 1), 0);
  const auto result = runner_.run({"/usr/bin/env", {}, {"A=1", "B=2"}}, {}, in(test::kPatience));
  ASSERT_EQ(unsetenv("SQUEUE_FORMAT"), 0);
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(result->output, "A=1\nB=2\n");
}

TEST_F(CommandRunnerTest, TheChildReadsNothingAndHoldsNoDescriptorOfOurs) {
  const int leaked = open("/dev/null", O_RDONLY);  // NOLINT: without O_CLOEXEC on purpose
  ASSERT_GE(leaked, 0);
  const auto result = runner_.run(shell("cat; ls /proc/self/fd | wc -l"), {}, in(test::kPatience));
  close(leaked);
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(std::stoi(result->output), 4) << "0, 1, 2 and the folder that ls reads";
}

TEST_F(CommandRunnerTest, TheChildReadsItsInputAsAFileThatItCannotChange) {
  auto command =
      shell("cat; head -c 3 /dev/stdin; echo x 2>/dev/null >>/proc/self/fd/0 || echo no");
  command.input = std::string(300'000, 'i') + "\0end"s;  // more than a pipe holds
  const auto result = runner_.run(command, {}, in(test::kPatience));
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_TRUE(result->output == command.input + "iiino\n") << result->output.substr(300'000);
}

TEST_F(CommandRunnerTest, AChildThatDoesNotReadItsInputIsNotWaitedFor) {
  auto command = shell("exec <&-; echo done");
  command.input = std::string(3'000'000, 'i');
  const auto result = runner_.run(command, {}, in(test::kPatience));
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(result->output, "done\n");
}

TEST_F(CommandRunnerTest, WhatACommandMayLeaveBehindIsNotWaitedFor) {
  auto command = shell("echo all; sleep 1000 & echo $! >&2; exit 7");  // it holds the pipes open
  command.leaves_children = true;
  const auto result = runner_.run(command, {}, in(test::kPatience));
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(result->status, 7);
  EXPECT_EQ(result->output, "all\n");
  kill(std::stoi(result->error), SIGKILL);
}

TEST_F(CommandRunnerTest, AtTheDeadlineWhatMayBeLeftBehindIsKilledAsWell) {
  const std::string pids = directory_.path_to("pids");
  auto command = shell("sleep 1000 & echo $! $$ >" + pids + "; wait");
  command.leaves_children = true;
  EXPECT_FALSE(runner_.run(command, {}, in(400ms)));
  std::istringstream text(directory_.read("pids"));
  pid_t pid = 0;
  while (text >> pid) EXPECT_TRUE(ends(pid)) << pid;
}

TEST_F(CommandRunnerTest, SaysWhetherAFailedRunStartedItsProgram) {
  EXPECT_FALSE(runner_.run(shell("sleep 1000"), {}, in(100ms)));
  EXPECT_TRUE(runner_.started());
  EXPECT_FALSE(runner_.run({directory_.path_to("none"), {}, {}}, {}, in(test::kPatience)));
  EXPECT_FALSE(runner_.started());
  EXPECT_TRUE(runner_.run(shell("true"), {}, in(test::kPatience)));
  EXPECT_TRUE(runner_.started());
  EXPECT_FALSE(runner_.run(shell("true"), {}, in(-1ms)));
  EXPECT_FALSE(runner_.started());
}

TEST_F(CommandRunnerTest, AProgramThatIsNotThereIsSaid) {
  const auto result = runner_.run({directory_.path_to("none"), {}, {}}, {}, in(test::kPatience));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind(), ErrorKind::kTransient);
  EXPECT_THAT(result.error().message(), HasSubstr("start " + directory_.path_to("none")));
  EXPECT_TRUE(no_child_left());
}

TEST_F(CommandRunnerTest, AHangingChildAndItsOwnAreKilledAtTheDeadline) {
  const std::string pids = directory_.path_to("pids");
  const auto begin = steady_clock::now();
  const auto result =
      runner_.run(shell("sleep 1000 & echo $! $$ >" + pids + "; echo half; wait"), {}, in(400ms));
  EXPECT_LT(steady_clock::now() - begin, test::kPatience);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind(), ErrorKind::kTransient);
  EXPECT_EQ(result.error().message(), "sh: no answer in time; killed");
  EXPECT_TRUE(no_child_left());
  EXPECT_EQ(runner_.stuck(), 0U);
  std::istringstream text(directory_.read("pids"));
  pid_t pid = 0;
  while (text >> pid) EXPECT_TRUE(ends(pid)) << pid;
}

TEST_F(CommandRunnerTest, AChildThatIgnoresSignalsAndClosesItsPipesIsKilledAsWell) {
  const auto result = runner_.run(
      shell("trap '' TERM INT HUP; exec >&- 2>&-; while :; do sleep 0.01; done"), {}, in(300ms));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message(), "sh: no answer in time; killed");
  EXPECT_TRUE(no_child_left());
}

TEST_F(CommandRunnerTest, WhatAChildLeavesBehindDoesNotOutliveTheCall) {
  const auto result =
      runner_.run(shell("sleep 1000 >/dev/null 2>&1 & echo $!"), {}, in(test::kPatience));
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_TRUE(ends(std::stoi(result->output)));
}

TEST_F(CommandRunnerTest, AStopEndsTheCallAtOnce) {
  std::stop_source stop;
  const std::string ready = directory_.path_to("ready");
  ASSERT_EQ(mkfifo(ready.c_str(), 0600), 0);
  std::jthread stopper([&] {
    std::ifstream in(ready);  // opens when the child has opened its end: it runs
    std::string line;
    std::getline(in, line);
    stop.request_stop();
  });
  const auto begin = steady_clock::now();
  const auto result =
      runner_.run(shell("echo up >" + ready + "; sleep 1000"), stop.get_token(), in(900s));
  EXPECT_LT(steady_clock::now() - begin, test::kPatience);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message(), "sh: stopped");
  EXPECT_TRUE(no_child_left());
}

TEST_F(CommandRunnerTest, NothingIsStartedAfterAStopOrTheDeadline) {
  std::stop_source stop;
  stop.request_stop();
  const std::string mark = directory_.path_to("mark");
  EXPECT_FALSE(runner_.run(shell("echo >" + mark), stop.get_token(), in(test::kPatience)));
  EXPECT_FALSE(runner_.run(shell("echo >" + mark), {}, in(-1ms)));
  EXPECT_FALSE(std::filesystem::exists(mark));
}

TEST_F(CommandRunnerTest, AnAnswerWithoutEndIsCutAndTheChildKilled) {
  CommandRunner small(100'000);
  const auto result = small.run(shell("yes"), {}, in(60s));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message(), "sh: its answer is larger than 100000 bytes; killed");
  EXPECT_TRUE(no_child_left());
}

TEST_F(CommandRunnerTest, AnAnswerOfExactlyTheLimitIsTaken) {
  CommandRunner small(100'000);
  const auto result = small.run(shell("head -c 100000 /dev/zero"), {}, in(test::kPatience));
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(result->output.size(), 100'000U);
  EXPECT_FALSE(small.run(shell("head -c 100001 /dev/zero"), {}, in(test::kPatience)));
}

TEST_F(CommandRunnerTest, MuchStandardErrorNeitherBlocksTheChildNorGrowsWithoutEnd) {
  const auto result = runner_.run(shell("head -c 3000000 /dev/zero >&2; echo done"), {}, in(60s));
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(result->output, "done\n");
  EXPECT_EQ(result->error.size(), 16U << 10);
}

TEST(FindProgramTest, TakesWhatIsConfiguredElseTheFirstInTheFolders) {
  const test::TempDir directory;
  const auto make = [&](const std::string& name, mode_t mode) {
    const std::string path = directory.write(name, "#!/bin/sh\n");
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  };
  make("a/tool", 0644);
  const std::string second = make("b/tool", 0755);
  make("c/tool", 0755);
  const std::string own = make("own", 0755);
  const std::string folders = directory.path_to("none") + ":" + directory.path_to("a") + ":" +
                              directory.path_to("b") + ":" + directory.path_to("c");
  EXPECT_EQ(find_program("", "tool", folders), second)
      << "none has no such file, and the one in a may not be executed";
  EXPECT_EQ(find_program(own, "tool", folders), own);
  EXPECT_EQ(find_program(directory.path_to("a/tool"), "tool", folders), std::nullopt)
      << "nothing else in its place";
  EXPECT_EQ(find_program("", "other", folders), std::nullopt);
  EXPECT_EQ(find_program("", "tool", ""), std::nullopt);
}

TEST(FindProgramTest, AsksNoPathOfTheEnvironment) {
  const test::TempDir directory;
  const std::string path = directory.write("tool", "#!/bin/sh\n");
  ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  const std::string before = getenv("PATH") == nullptr ? "" : getenv("PATH");
  ASSERT_EQ(setenv("PATH", directory.path().c_str(), 1), 0);
  const auto found = find_program("", "tool", "/usr/bin:/bin");
  ASSERT_EQ(setenv("PATH", before.c_str(), 1), 0);
  EXPECT_EQ(found, std::nullopt);
}

}  // namespace
}  // namespace scriptorium
