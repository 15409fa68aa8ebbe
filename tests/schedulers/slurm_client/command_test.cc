#include "schedulers/slurm_client/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

namespace scriptorium::slurm_client {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST(FindCommandTest, SaysWhichOneIsMissingAndWhatToDo) {
  const auto found = find_command("/nonexistent/squeue", "squeue");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().kind(), ErrorKind::kInvalidConfig);
  EXPECT_THAT(found.error().message(), HasSubstr("squeue: /nonexistent/squeue cannot be executed"));
  EXPECT_THAT(find_command("", "no-such-command").error().message(),
              HasSubstr("set no-such-command"));
  EXPECT_THAT(find_command("", "sh").value(), ::testing::EndsWith("bin/sh"));
}

class EnvironmentTest : public ::testing::Test {
 protected:
  ~EnvironmentTest() override { unsetenv("SLURM_CONF"); }
};

TEST_F(EnvironmentTest, NamesTheSlurmOfTheDaemonsOwnEnvironmentUnlessTheConfigurationNamesOne) {
  ASSERT_EQ(setenv("SLURM_CONF", "/etc/slurm/ours.conf", 1), 0);
  EXPECT_THAT(environment("/etc/slurm/site.conf", {"A=1"}),
              UnorderedElementsAre("PATH=/usr/bin:/bin", "TZ=UTC",
                                   "SLURM_CONF=/etc/slurm/site.conf", "A=1"));
  EXPECT_THAT(environment(""), UnorderedElementsAre("PATH=/usr/bin:/bin", "TZ=UTC",
                                                    "SLURM_CONF=/etc/slurm/ours.conf"));
  ASSERT_EQ(setenv("SLURM_CONF", "", 1), 0);
  EXPECT_THAT(environment(""), UnorderedElementsAre("PATH=/usr/bin:/bin", "TZ=UTC"));
}

TEST(GuardTest, HasNewRandomDigitsEachTimeAndBeginsWithNone) {
  const std::string one = new_guard().value();
  EXPECT_THAT(one, ::testing::MatchesRegex("@[0-9a-f]{32}"));
  EXPECT_NE(new_guard().value(), one);
}

TEST(StandardErrorTest, SaysThatAJobIsUnknown) {
  EXPECT_TRUE(says_unknown_job("slurm_load_jobs error: Invalid job id specified\n"));
  EXPECT_FALSE(says_unknown_job(
      "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"));
}

TEST(StandardErrorTest, SaysThatThereIsNoAccounting) {
  EXPECT_TRUE(says_no_accounting("Slurm accounting storage is disabled\n"));
  EXPECT_FALSE(
      says_no_accounting("sacct: error: Problem talking to the database: Connection refused\n"));
}

}  // namespace
}  // namespace scriptorium::slurm_client
