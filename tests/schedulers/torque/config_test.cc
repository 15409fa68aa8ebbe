#include "schedulers/torque/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace scriptorium::torque {
namespace {

using ::testing::HasSubstr;

Table table(std::string spool) {
  Table made;
  made.path = "source.torque";
  made.entries.push_back({"spool", Value{.data = std::move(spool), .position = {}}});
  return made;
}

TEST(TorqueConfigTest, TheJobsAreFoundFromEachOfTheThreeFolders) {
  for (const char* given : {"/var/spool/torque", "/var/spool/torque/server_priv",
                            "/var/spool/torque/server_priv/jobs"}) {
    EXPECT_EQ(jobs_folder(given), "/var/spool/torque/server_priv/jobs") << given;
    EXPECT_EQ(home_folder(given), "/var/spool/torque") << given;
  }
}

TEST(TorqueConfigTest, FinalSlashesDoNotCount) {
  Problems problems;
  EXPECT_EQ(read_config(table("/var/spool/torque//"), problems).spool, "/var/spool/torque");
  EXPECT_TRUE(problems.empty());
}

TEST(TorqueConfigTest, ARelativePathIsRefused) {
  for (const char* given : {"", "spool", "./x"}) {
    Problems problems;
    read_config(table(given), problems);
    ASSERT_EQ(problems.list().size(), 1U) << given;
    EXPECT_THAT(problems.list()[0].text(), HasSubstr("source.torque.spool: not an absolute path"))
        << given;
  }
}

}  // namespace
}  // namespace scriptorium::torque
