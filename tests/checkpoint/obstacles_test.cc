#include "checkpoint/obstacles.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "core/base/file.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::checkpoint {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ObstaclesTest, CountsTcpSocketsThatDoNotListen) {
  EXPECT_THAT(
      connected_tcp("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt"
                    "   uid  timeout inode\n"
                    "   0: 0100007F:0277 00000000:0000 0A 00000000:00000000 00:00000000 00000000"
                    "     0        0 31337 1 0000000000000000 100 0 0 10 0\n"
                    "   1: 0100007F:D2F6 0100007F:0277 01 00000000:00000000 00:00000000 00000000"
                    "  1000        0 31338 1 0000000000000000 20 4 30 10 -1\n"
                    "   2: short\n"),
      ElementsAre(31338));
  EXPECT_THAT(connected_tcp(""), IsEmpty());
}

TEST(ObstaclesTest, FindsLocksOfADescriptor) {
  const std::string begin = "pos:\t0\nflags:\t0100001\nmnt_id:\t29\nino:\t42\n";
  EXPECT_FALSE(holds_lock(begin));
  EXPECT_FALSE(holds_lock(begin + "lock:\t1: LEASE  ACTIVE    READ 104 fd:01:42 0 EOF\n"));
  for (const char* const kind : {"FLOCK ", "POSIX ", "OFDLCK"}) {
    EXPECT_TRUE(holds_lock(begin + "lock:\t1: " + kind + " ADVISORY  WRITE 7 fd:01:42 0 EOF\n"))
        << kind;
  }
}

TEST(ObstaclesTest, ALockIsFoundWhoeverHasTakenIt) {
  const test::TempDir directory;
  const UniqueFd file(::open(directory.path_to("lock").c_str(), O_RDWR | O_CREAT, 0600));
  const std::string self = "/proc/self/fdinfo/" + std::to_string(file.get());
  EXPECT_FALSE(holds_lock(read_proc(self)));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::flock(file.get(), LOCK_EX));
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_TRUE(holds_lock(read_proc(self))) << "the child that took it has ended";
}

TEST(ObstaclesTest, FindsAPeerOutsideTheTree) {
  EXPECT_FALSE(outside_peer({1, 2, 3}, {{1, 2}, {2, 1}, {8, 9}})) << "3 has none";
  EXPECT_EQ(outside_peer({1, 2, 3}, {{1, 2}, {2, 1}, {3, 9}}), 3U);
  EXPECT_FALSE(outside_peer({}, {{1, 2}}));
}

TEST(ObstaclesTest, KnowsFileSystemsThatOtherNodesHave) {
  EXPECT_TRUE(is_shared_file_system(0x6969));
  EXPECT_TRUE(is_shared_file_system(0xFFFFFFFFFE534D42U)) << "as a negative number of 32 bits";
  for (const std::uint64_t local : {0xEF53U, 0x58465342U, 0x01021994U, 0x9123683EU})
    EXPECT_FALSE(is_shared_file_system(local));
}

}  // namespace
}  // namespace scriptorium::checkpoint
