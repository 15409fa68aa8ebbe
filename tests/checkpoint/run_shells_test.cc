#include "checkpoint/run/shells.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "checkpoint/processes.h"
#include "core/base/number.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::checkpoint {
namespace {

// A shell that is not this process's child, as that of a job script: its parent writes to "end" how
// it ended. It has no trap for SIGUSR2, and writes a line to "usr1" for each SIGUSR1.
class ShellsTest : public testing::Test {
 protected:
  ShellsTest() {
    const std::string script =
        "trap 'echo x >> usr1' USR1; trap 'echo trapped > trapped' EXIT\n"
        "echo $$ > pid.new; mv pid.new pid\n"
        "while [ ! -e stop ]; do sleep 0.02; done; echo after > after";
    parent_ = ::fork();
    if (parent_ == 0) {
      if (::chdir(folder_.path().c_str()) == 0)
        ::execl("/bin/bash", "bash", "-c", R"(bash -c "$0"; echo $? > end.new; mv end.new end)",
                script.c_str(), nullptr);
      ::_exit(127);
    }
    wait([this] { return !text("pid").empty(); });
    shell_ = parse_number<pid_t>(text("pid").substr(0, text("pid").find('\n'))).value_or(0);
  }
  ~ShellsTest() override {
    std::ofstream(folder_.path_to("stop")) << "";
    ::kill(shell_, SIGCONT);
    while (::waitpid(parent_, nullptr, WNOHANG) == 0) serve();
  }
  std::string text(const std::string& file) const {
    std::ifstream stream(folder_.path_to(file));
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  // What the loop of scriptorium-run does.
  void serve() {
    int status = 0;
    const pid_t pid = ::waitpid(shell_, &status, WNOHANG | __WALL);
    if (pid > 0 && shells_.handle(pid, status) == Shells::Event::kSave) ++saves_;
    ::poll(nullptr, 0, 1);
  }
  void wait(const std::function<bool()>& condition) {
    const auto last = std::chrono::steady_clock::now() + test::kPatience;
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), last);
      serve();
    }
  }
  char state() const {
    const std::string stat = read_proc("/proc/" + std::to_string(shell_) + "/stat");
    const auto end = stat.rfind(')');
    return end == std::string::npos ? 'X' : stat.at(end + 2);
  }
  void hold() {
    auto held = Shells::hold({shell_});
    ASSERT_TRUE(held) << held.error().message();
    shells_ = *std::move(held);
  }

  test::TempDir folder_;
  pid_t parent_ = 0;
  pid_t shell_ = 0;
  Shells shells_;
  int saves_ = 0;
};

TEST_F(ShellsTest, TheSchedulersSignalDoesNotReachThemAndOthersDo) {
  hold();
  for (int count = 1; count <= 3; ++count) {
    ::kill(shell_, SIGUSR2);
    wait([&] { return saves_ == count; });
    ::kill(shell_, SIGUSR1);
    wait([&] { return text("usr1").size() == 2 * static_cast<std::size_t>(count); });
  }
  std::ofstream(folder_.path_to("stop")) << "";
  wait([this] { return !text("end").empty(); });
  EXPECT_EQ(text("end"), "0\n");
  EXPECT_EQ(text("after"), "after\n");
}

TEST_F(ShellsTest, AreStoppedAndContinuedAsWithoutIt) {
  hold();
  ::kill(shell_, SIGSTOP);
  // A stop for the tracer is one as well: only one that lasts is of job control.
  wait([this] { return state() == 't' || state() == 'T'; });
  for (int i = 0; i < 50; ++i) serve();
  ASSERT_TRUE(state() == 't' || state() == 'T');
  ::kill(shell_, SIGUSR1);
  for (int i = 0; i < 50; ++i) serve();
  EXPECT_EQ(text("usr1"), "");
  ::kill(shell_, SIGCONT);
  wait([this] { return text("usr1") == "x\n"; });
}

TEST_F(ShellsTest, AScriptEndsWhereItIs) {
  hold();
  ::kill(shell_, SIGUSR1);
  const auto ended = shells_.end_with(99);
  ASSERT_TRUE(ended) << ended.error().message();
  wait([this] { return !text("end").empty(); });
  EXPECT_EQ(text("end"), "99\n");
  EXPECT_EQ(text("trapped") + text("after"), "");
}

TEST_F(ShellsTest, NoneIsHeldIfOneIsRefused) {
  EXPECT_FALSE(Shells::hold({shell_, ::getpid()}));
  EXPECT_EQ(read_proc("/proc/" + std::to_string(shell_) + "/status").find("TracerPid:\t0\n") ==
                std::string::npos,
            false);
  std::ofstream(folder_.path_to("stop")) << "";
  wait([this] { return !text("end").empty(); });
  EXPECT_EQ(text("end"), "0\n");
}

}  // namespace
}  // namespace scriptorium::checkpoint
