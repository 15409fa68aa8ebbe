#include "schedulers/usage/tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace scriptorium::usage {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class CgroupTreeTest : public ::testing::Test {
 protected:
  test::TempDir root_;

  // "controller scheduler node uid path"
  std::vector<std::string> parents() const {
    std::vector<std::string> found;
    for (const JobParent& parent : CgroupTree(root_.path(), real_files()).find().parents) {
      found.push_back(std::string(to_string(parent.controller)) + " " + parent.scheduler + " " +
                      parent.node + " " + (parent.uid ? std::to_string(*parent.uid) : "-") + " " +
                      parent.path.substr(root_.path().size() + 1));
    }
    return found;
  }
};

TEST_F(CgroupTreeTest, FindsUsersOfAPlainSlurmInEachController) {
  root_.make_directory("memory/slurm/uid_1001/job_7");
  root_.make_directory("cpu,cpuacct/slurm/uid_1001/job_7");
  root_.make_directory("freezer/slurm/system");
  root_.make_directory("memory/slurm/uid_x");
  root_.make_directory("memory/user.slice/slurmstepd.scope");
  EXPECT_THAT(parents(), UnorderedElementsAre("memory slurm  1001 memory/slurm/uid_1001",
                                              "cpuacct slurm  1001 cpu,cpuacct/slurm/uid_1001"));
  EXPECT_EQ(CgroupTree(root_.path(), real_files()).describe(), "v1 memory cpuacct freezer");
}

TEST_F(CgroupTreeTest, TellsTheNodesOfSeveralSlurmdsApart) {
  root_.make_directory("memory/slurm_n1/uid_0");
  root_.make_directory("memory/slurm_n2/uid_0");
  EXPECT_THAT(parents(), UnorderedElementsAre("memory slurm n1 0 memory/slurm_n1/uid_0",
                                              "memory slurm n2 0 memory/slurm_n2/uid_0"));
}

TEST_F(CgroupTreeTest, FindsScopesOfTheSecondVersion) {
  root_.write("cgroup.controllers", "cpu memory\n");
  root_.make_directory("system.slice/slurmstepd.scope");
  root_.make_directory("system.slice/n1_slurmstepd.scope");
  root_.make_directory("system.slice/xslurmstepd.scope");
  root_.make_directory(
      "memory/slurm/uid_1");  // somebody's group, no controller: it has cgroup.controllers
  root_.write("memory/cgroup.controllers", "");
  EXPECT_THAT(parents(),
              UnorderedElementsAre("unified slurm  - system.slice/slurmstepd.scope",
                                   "unified slurm n1 - system.slice/n1_slurmstepd.scope"));
  EXPECT_EQ(CgroupTree(root_.path(), real_files()).describe(), "v2");
}

TEST_F(CgroupTreeTest, LooksIntoBothTreesOfAHybridHost) {
  root_.write("unified/cgroup.controllers", "");
  root_.make_directory("unified/system.slice/slurmstepd.scope");
  root_.make_directory("cpuacct/slurm/uid_5");
  EXPECT_THAT(parents(),
              UnorderedElementsAre("unified slurm  - unified/system.slice/slurmstepd.scope",
                                   "cpuacct slurm  5 cpuacct/slurm/uid_5"));
}

TEST_F(CgroupTreeTest, FindsTorqueAndPbs) {
  root_.make_directory("memory/torque/11.server");
  root_.make_directory("memory/pbs_jobs.service/jobid/12.server");
  EXPECT_THAT(parents(), UnorderedElementsAre("memory torque  - memory/torque",
                                              "memory pbs  - memory/pbs_jobs.service/jobid"));
}

TEST_F(CgroupTreeTest, AnEmptyOrMissingRootHasNoJobs) {
  EXPECT_THAT(parents(), ElementsAre());
  EXPECT_EQ(CgroupTree(root_.path_to("nowhere"), real_files()).describe(), "");
}

TEST(JobNameTest, TakesJobsAndSluidsAndNothingElse) {
  EXPECT_EQ(parse_job_name("slurm", "job_4711")->id, "4711");
  EXPECT_FALSE(parse_job_name("slurm", "job_4711")->sluid);
  EXPECT_TRUE(parse_job_name("slurm", "sA1B2C3D4E5F6G")->sluid);
  for (const char* other : {"job_", "job_x", "job_1/..", "sA1B2C3D4E5F6", "sA1B2C3D4E5F6I",
                            "SA1B2C3D4E5F6G", "step_0", "system", ""}) {
    EXPECT_FALSE(parse_job_name("slurm", other).has_value()) << other;
  }
  EXPECT_EQ(parse_job_name("torque", "4711[3].server")->id, "4711[3].server");
  EXPECT_FALSE(parse_job_name("torque", "cpu").has_value());
}

}  // namespace
}  // namespace scriptorium::usage
