#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/cli/software_table.h"

namespace scriptorium::cli {
namespace {

JobRow job_of(const std::string& user, const std::vector<std::string>& modules,
              std::optional<double> cpu_seconds = std::nullopt) {
  JobRow job;
  job.user = user;
  job.account = user == "alice" ? "chem" : "bio";
  job.modules = modules;
  job.interpreter = "/bin/bash";
  job.cpu_seconds = cpu_seconds;
  return job;
}

TEST(SoftwareTableTest, CountsJobsUsersAndKnownHoursOfEachModule) {
  SoftwareTable table(SoftwareBy::kNothing);
  table.add(job_of("alice", {"GCC/12", "GROMACS/2023", "GCC/12"}, 7200.0));
  table.add(job_of("alice", {"GCC/12"}));
  table.add(job_of("bob", {"GCC/12"}, 3600.0));
  const auto rows = table.rows();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].name, "GCC/12");
  EXPECT_EQ(rows[0].jobs, 3U);
  EXPECT_EQ(rows[0].users, 2U);
  EXPECT_EQ(rows[0].measured_jobs, 2U);
  EXPECT_DOUBLE_EQ(rows[0].cpu_hours, 3.0);
  EXPECT_EQ(rows[1].name, "GROMACS/2023");
  EXPECT_EQ(rows[2].kind, "interpreter");
  EXPECT_EQ(rows[2].jobs, 3U);
  EXPECT_EQ(table.jobs(), 3U);
  EXPECT_EQ(table.measured_jobs(), 2U);
}

TEST(SoftwareTableTest, CountsWhatIsNoModuleBetweenModulesAndInterpreters) {
  SoftwareTable table(SoftwareBy::kNothing);
  JobRow job = job_of("alice", {"GCC/12"});
  job.software = {"spack hdf5 +mpi", "conda torch"};
  table.add(job);
  const auto rows = table.rows();
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0].kind, "module");
  EXPECT_EQ(rows[1].kind + "|" + rows[1].name, "conda|torch");
  EXPECT_EQ(rows[2].kind + "|" + rows[2].name, "spack|hdf5 +mpi");
  EXPECT_EQ(rows[3].kind, "interpreter");
}

TEST(SoftwareTableTest, HasARowForEachUserOrAccountIfAsked) {
  for (const SoftwareBy by : {SoftwareBy::kUser, SoftwareBy::kAccount}) {
    SoftwareTable table(by);
    table.add(job_of("alice", {"GCC/12"}));
    table.add(job_of("bob", {"GCC/12"}));
    table.add(job_of("bob", {"GCC/12"}));
    const auto rows = table.rows();
    ASSERT_EQ(rows.size(), 4U);
    EXPECT_EQ(rows[0].by, by == SoftwareBy::kUser ? "bob" : "bio");
    EXPECT_EQ(rows[0].jobs, 2U);
    EXPECT_EQ(rows[1].by, by == SoftwareBy::kUser ? "alice" : "chem");
  }
}

}  // namespace
}  // namespace scriptorium::cli
