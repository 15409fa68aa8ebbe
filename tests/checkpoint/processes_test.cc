#include "checkpoint/processes.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

#include "core/base/time.h"

namespace scriptorium::checkpoint {
namespace {

using testing::ElementsAre;

std::string status(const std::string& uids, const std::string& permitted = "0") {
  return "Name:\tx\nUid:\t" + uids +
         "\nVmRSS:\t    1024 kB\nVmSwap:\t  1 "
         "kB\nCapInh:\t0000000000000040\nCapPrm:\t00000000000000" +
         permitted +
         "0\nCapEff:\t0000000000000000\nCapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000000\n";
}

std::string stat(const std::string& name) {
  return "42 (" + name + ") S 7 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 98765 1000 10";
}

TEST(ProcessTest, IsReadFromTheTextsOfProc) {
  const auto process = parse_process(stat("bash"), status("5\t5\t5\t5"));
  ASSERT_TRUE(process);
  EXPECT_EQ(process->pid, 42);
  EXPECT_EQ(process->parent, 7);
  EXPECT_EQ(process->start, 98765U);
  EXPECT_EQ(process->memory_bytes, 1025U << 10);
  EXPECT_FALSE(process->has_capabilities);
  EXPECT_TRUE(belongs_to(*process, 5));
}

TEST(ProcessTest, IsNotDeceivedByAProgramsName) {
  const auto process = parse_process(stat("x) Z 1 1 (y"), status("5\t5\t5\t5"));
  ASSERT_TRUE(process);
  EXPECT_EQ(process->parent, 7);
  EXPECT_FALSE(process->is_zombie);
}

TEST(ProcessTest, BelongsToAUserByAllOfItsIds) {
  for (const char* uids : {"5\t0\t0\t0", "5\t5\t0\t5", "5\t5\t5\t0", "0\t5\t5\t5"})
    EXPECT_FALSE(belongs_to(*parse_process(stat("su"), status(uids)), 5)) << uids;
  EXPECT_TRUE(parse_process(stat("x"), status("5\t5\t5\t5", "4"))->has_capabilities);
}

TEST(ProcessTest, IsAbsentWithoutTheFactsThatAreChecked) {
  EXPECT_FALSE(parse_process("", ""));
  EXPECT_FALSE(parse_process(stat("x"), "Name:\tx\n"));
  EXPECT_FALSE(parse_process(stat("x"), "Uid:\t5\t5\t5\t5\n"));
  EXPECT_FALSE(parse_process("42 (x) S", status("5\t5\t5\t5")));
}

TEST(ProcessTest, TreeHasAllDescendantsAndEndsWhereTheListContradictsItself) {
  std::vector<Process> all(5);
  const std::pair<pid_t, pid_t> pids[] = {{10, 1}, {11, 10}, {12, 11}, {13, 1}, {14, 12}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].pid = pids[i].first;
    all[i].parent = pids[i].second;
  }
  const auto pids_of = [](const std::vector<Process>& tree) {
    std::vector<pid_t> result;
    for (const Process& process : tree) result.push_back(process.pid);
    return result;
  };
  EXPECT_THAT(pids_of(tree_of(10, all)), ElementsAre(10, 11, 12, 14));
  EXPECT_THAT(pids_of(tree_of(99, all)), ElementsAre());
  all[0].parent = 14;
  EXPECT_THAT(pids_of(tree_of(10, all)), ElementsAre(10, 11, 12, 14));
}

TEST(ProcessTest, DescriptorSaysWhenTheProcessHasEnded) {
  const UniqueFd self = open_process(::getpid());
  EXPECT_TRUE(is_running(self));
  EXPECT_FALSE(is_running(open_process(0x7ffffff0)));
}

TEST(ProcessTest, OneThatIsJustEndingHasEndedAndOneThatRunsHasNot) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::close(ends[1]);
    char byte = 0;
    static_cast<void>(::read(ends[0], &byte, 1));  // until the other end is closed
    ::_exit(0);
  }
  const auto process = read_process(child);
  EXPECT_TRUE(process);
  EXPECT_FALSE(process && has_ended(*process));
  ::close(ends[1]);
  EXPECT_TRUE(process && has_ended(*process));  // before it can have come so far
  ::close(ends[0]);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST(ProcessTest, StartTimeIsOfTheSystemsClock) {
  const std::int64_t before = system_clock().now().nanoseconds;
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const std::int64_t started = start_time_ns(*read_process(child));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  // Clock ticks are coarse.
  EXPECT_GT(started, before - kSecond / 10);
  EXPECT_LT(started, system_clock().now().nanoseconds + kSecond / 10);
}

}  // namespace
}  // namespace scriptorium::checkpoint
