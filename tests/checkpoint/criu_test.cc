#include "checkpoint/criu.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace scriptorium::checkpoint {
namespace {

TEST(CriuTest, FindsTheReasonInTheLog) {
  const std::vector<std::pair<std::string, std::string>> table{
      {"(00.042632)   1758: Error (criu/cr-restore.c:1230): Can't fork for 1765: File exists\n"
       "(00.042720) Error (criu/cr-restore.c:2320): Restoring FAILED.\n",
       "pid_taken"},
      {"(00.01) Error (criu/sk-inet.c:188): inet: Connected TCP socket, consider using "
       "--tcp-established option.\n(00.02) Error (criu/cr-dump.c:2): Dumping FAILED.\n",
       "tcp"},
      {"(00.01) Error (criu/file-lock.c:108): Some file locks are hold by dumping tasks!\n",
       "flock"},
      {"(00.01)  9: Error (criu/files-reg.c:1): File count has bad size 3 (expect 4)\n",
       "file_changed"},
      {"(00.01)  9: Error (criu/files-reg.c:2104): Can't open file home/x: No such file\n",
       "file_missing"},
      {"(00.01) Error (criu/sk-unix.c:1): unix: Peer 99 unresolved\n", "external_socket"},
      {"(00.01) Error (criu/bfd.c:1): bfd: Error flushing image: No space left on device\n",
       "no_space"},
      {"(00.01) Error (criu/page-xfer.c:1): Unable to spice data: File too large\n", "too_large"},
      {"(00.01) Error (criu/rlimit.c:1): Can't setup RLIMIT_NOFILE\n", "engine"},
      {"(00.01) Error (criu/x.c:1): something new\n", "engine"},
      {"", "engine"}};
  for (const auto& [log, reason] : table) EXPECT_EQ(refusal_of_log(log).reason, reason) << log;
}

TEST(CriuTest, DetailIsOnePrintableLine) {
  const Refusal refusal =
      refusal_of_log("(1) Error (a.c:1): Can't open file \x1b[2J/x: y\n(2) Error (b.c:2): z\n");
  EXPECT_EQ(refusal.reason, "file_missing");
  EXPECT_EQ(refusal.detail, "Error (a.c:1): Can't open file \\x1b[2J/x: y");
}

TEST(CriuTest, DetailIsTheFirstErrorWhereNoCauseIsKnown) {
  const Refusal refusal = refusal_of_log("(1) Error (a.c:1): new\n(2) Error (b.c:2): FAILED\n");
  EXPECT_EQ(refusal.reason, "engine");
  EXPECT_EQ(refusal.detail, "Error (a.c:1): new");
}

TEST(CriuTest, ProbeSaysThatTheProgramIsMissing) {
  const auto probed = make_criu("/nonexistent/criu")->probe();
  ASSERT_FALSE(probed);
  EXPECT_EQ(probed.error().detail, "/nonexistent/criu cannot be executed");
}

}  // namespace
}  // namespace scriptorium::checkpoint
