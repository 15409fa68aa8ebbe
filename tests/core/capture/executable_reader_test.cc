#include "core/capture/executable_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/base/ascii.h"
#include "core/base/number.h"
#include "tests/core/capture/readelf.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

using namespace std::chrono_literals;
using testing::EndsWith;
using testing::Field;
using testing::Optional;

std::string proc_file(pid_t pid, const std::string& file) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/" + file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string status_of(pid_t pid, const std::string& key) {
  std::istringstream file(proc_file(pid, "status"));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":"))
      return line.substr(line.find_first_not_of(" \t", key.size() + 1));
  }
  return {};
}

bool in_time(const std::function<bool()>& happened) {
  const auto deadline = std::chrono::steady_clock::now() + test::kPatience;
  while (!happened()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

// A process that runs until the test ends.
class Running {
 public:
  explicit Running(const std::string& program) : pid_(::fork()) {
    if (pid_ == 0) {
      ::execl(program.c_str(), "program", "1000000", nullptr);
      ::_exit(127);
    }
    // It has executed the program once its command is the file's name.
    const std::string name = std::filesystem::path(program).filename().string().substr(0, 15);
    EXPECT_TRUE(in_time([&] { return status_of(pid_, "Name") == name; })) << program;
    std::string text = proc_file(pid_, "stat");
    std::string_view fields = std::string_view(text).substr(text.rfind(')') + 2);
    for (int field = 3; field < 22; ++field) take_until(fields, ' ');
    start_ticks = parse_number<std::uint64_t>(take_until(fields, ' ')).value_or(0);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() { end(); }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  std::uint32_t pid() const { return static_cast<std::uint32_t>(pid_); }
  std::uint64_t start_ticks = 0;

 private:
  pid_t pid_;
};

class ExecutableReaderTest : public testing::Test {
 protected:
  ~ExecutableReaderTest() override { ::unsetenv("SCRIPTORIUM_FAULT"); }

  void start(std::chrono::milliseconds deadline = 10min) {
    const auto rights = effective_capabilities();
    ASSERT_TRUE(rights);
    auto started = ExecutableReader::start(*rights & kExecutableCapabilities, deadline);
    ASSERT_TRUE(started) << started.error().message();
    reader_ = *std::move(started);
  }
  // The reader arms them when it reaches the first one; this process reaches none.
  void start_with_faults(const std::string& faults, std::chrono::milliseconds deadline) {
#ifndef SCRIPTORIUM_FAULTS
    GTEST_SKIP() << "SKIPPED: this build has no fault points";
#endif
    ::setenv("SCRIPTORIUM_FAULT", faults.c_str(), 1);
    start(deadline);
  }
  // Waits for the answer.
  std::optional<Executable> find(std::uint32_t pid, std::uint64_t start_ticks) {
    std::optional<Executable> answer;
    in_time([&] { return (answer = reader_->find(pid, start_ticks)).has_value(); });
    return answer;
  }
  std::optional<Executable> find(const Running& process) {
    return find(process.pid(), process.start_ticks);
  }
  std::string copy(const std::string& from, const std::string& name) const {
    const std::string path = dir_.path_to(name);
    std::filesystem::copy_file(from, path, std::filesystem::copy_options::overwrite_existing);
    return path;
  }
  std::vector<pid_t> children() const {
    const pid_t pid = reader_->process().pid();
    std::istringstream text(proc_file(pid, "task/" + std::to_string(pid) + "/children"));
    return {std::istream_iterator<pid_t>(text), {}};
  }

  test::TempDir dir_;
  std::unique_ptr<ExecutableReader> reader_;
};

TEST_F(ExecutableReaderTest, FindsPathAndBuildIdOfARunningProgram) {
  start();
  const std::string path = copy("/bin/sleep", "my solver");
  const Running first(path);
  const Running second(path);
  const std::string id = test::readelf_build_id(path);
  ASSERT_NE(id, "") << "readelf, or the file, has none";
  for (const Running* process : {&first, &second}) {
    const auto found = find(*process);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->path, path);
    EXPECT_EQ(found->command, "my solver");
    EXPECT_EQ(found->build_id, id);
  }
}

TEST_F(ExecutableReaderTest, AFileThatWasReplacedIsTheOneThatRuns) {
  start();
  const std::string path = copy("/bin/sleep", "solver");
  const std::string id = test::readelf_build_id(path);
  const Running old(path);
  std::filesystem::rename(copy("/bin/cat", "new"), path);
  const auto found = find(old);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->path, path) << "without the kernel's mark of a file that is removed";
  EXPECT_EQ(found->build_id, id);
}

TEST_F(ExecutableReaderTest, ANameThatEndsAsTheKernelMarksRemovedFilesIsKept) {
  start();
  const Running process(copy("/bin/sleep", "a (deleted)"));
  EXPECT_THAT(find(process), Optional(Field(&Executable::path, dir_.path_to("a (deleted)"))));
}

TEST_F(ExecutableReaderTest, AFileThatCannotBeReadHasAPath) {
  start();
  const std::string path = copy("/bin/sleep", "secret");
  ASSERT_EQ(::chmod(path.c_str(), 0111), 0);
  const Running process(path);
  const auto found = find(process);
  ASSERT_TRUE(found);
  // Without the right to trace, an unreadable program is not to be seen at all.
  if ((reader_->process().capabilities() & kExecutableCapabilities) != 0) {
    EXPECT_EQ(found->path, path);
  }
  EXPECT_EQ(found->build_id, "");
}

TEST_F(ExecutableReaderTest, AProcessThatEndedOrThatStartedAtAnotherTimeHasNoFile) {
  start();
  Running process(copy("/bin/sleep", "solver"));
  const std::uint32_t pid = process.pid();
  EXPECT_THAT(find(pid, process.start_ticks + 1), Optional(Field(&Executable::path, "")));
  EXPECT_THAT(find(pid, process.start_ticks),
              Optional(Field(&Executable::path, EndsWith("solver"))));
  process.end();
  EXPECT_THAT(find(pid, process.start_ticks), Optional(Field(&Executable::path, "")));
}

TEST_F(ExecutableReaderTest, AnswersEachOfMoreRequestsThanItTakesAtOnce) {
  start();
  constexpr std::size_t kRequests = 2000;
  std::vector<bool> answered(kRequests);
  const auto ask = [&] {
    for (std::size_t i = 0; i < kRequests; ++i)
      answered[i] = answered[i] || reader_->find(UINT32_MAX, i).has_value();
    return std::ranges::count(answered, true);
  };
  // However slow the machine is, more answers come.
  for (auto known = ask(); known < static_cast<std::ptrdiff_t>(kRequests);) {
    const auto before = known;
    ASSERT_TRUE(in_time([&] { return (known = ask()) > before; })) << known;
  }
}

TEST_F(ExecutableReaderTest, AFileServerThatHangsHoldsUpNoOtherAnswer) {
  start_with_faults("executables.hang:1:error=EIO", 10min);
  if (IsSkipped()) return;
  const Running held(copy("/bin/sleep", "held"));
  const Running other(copy("/bin/sleep", "other"));
  EXPECT_FALSE(reader_->find(held.pid(), held.start_ticks));
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(find(other));
  EXPECT_FALSE(reader_->find(held.pid(), held.start_ticks));
  EXPECT_EQ(children().size(), 1U);
}

TEST_F(ExecutableReaderTest, WhatHangsForTooLongIsKilledAndNotKnown) {
  start_with_faults("executables.hang:error=EIO", 50ms);
  if (IsSkipped()) return;
  const Running process(copy("/bin/sleep", "held"));
  for (std::uint64_t i = 0; i < 10; ++i)
    EXPECT_THAT(find(process.pid(), i), Optional(Field(&Executable::path, "")));
  EXPECT_TRUE(in_time([&] { return children().empty(); }));
}

TEST_F(ExecutableReaderTest, LeavesFourChildrenThatCannotBeKilledBehindAndThenAnswersAtOnce) {
  start_with_faults("executables.hang:error=EIO,executables.kill:error=EIO", 50ms);
  if (IsSkipped()) return;
  const Running process(copy("/bin/sleep", "held"));
  for (std::uint64_t i = 0; i < 10; ++i)
    EXPECT_THAT(find(process.pid(), i), Optional(Field(&Executable::path, "")));
  const std::vector<pid_t> left = children();
  EXPECT_EQ(left.size(), 4U);
  reader_.reset();
  for (const pid_t child : left) {
    EXPECT_TRUE(in_time([&] {
      const std::string state = status_of(child, "State");
      return state.empty() || state.starts_with('Z');
    })) << "it ends with the reader";
  }
}

TEST_F(ExecutableReaderTest, KeepsNothingButItsRight) {
  start();
  ASSERT_TRUE(find(UINT32_MAX, 1)) << "it serves, so it has given up the rest";
  const pid_t pid = reader_->process().pid();
  std::ostringstream kept;
  kept << std::hex << reader_->process().capabilities();
  EXPECT_THAT(status_of(pid, "CapEff"), EndsWith(kept.str()));
  EXPECT_EQ(status_of(pid, "CapPrm"), status_of(pid, "CapEff"));
  for (const char* set : {"CapInh", "CapAmb"})
    EXPECT_EQ(status_of(pid, set), std::string(16, '0')) << set;
  EXPECT_EQ(status_of(pid, "NoNewPrivs"), "1");
  EXPECT_EQ(status_of(pid, "Seccomp"), "2");
  EXPECT_EQ(status_of(pid, "Name"), "exe-reader");
}

TEST_F(ExecutableReaderTest, AfterItsEndNothingIsAnswered) {
  start();
  ASSERT_EQ(::kill(reader_->process().pid(), SIGKILL), 0);
  EXPECT_TRUE(in_time([&] { return reader_->process().has_ended(); }));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(reader_->find(1, 1));
}

}  // namespace
}  // namespace scriptorium
