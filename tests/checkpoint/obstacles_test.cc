#include "checkpoint/obstacles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(ObstaclesTest, FindsTheHoldersOfLocks) {
  EXPECT_THAT(lock_holders("1: FLOCK  ADVISORY  WRITE 101 fd:01:42 0 EOF\n"
                           "1: -> FLOCK  ADVISORY  WRITE 102 fd:01:42 0 EOF\n"
                           "2: POSIX  ADVISORY  READ 103 fd:01:43 0 EOF\n"
                           "3: LEASE  ACTIVE    READ 104 fd:01:44 0 EOF\n"
                           "4: OFDLCK ADVISORY  WRITE -1 fd:01:45 0 EOF\n"),
              ElementsAre(101, 103));
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
