#include "checkpoint/run/job.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace scriptorium::checkpoint {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<BatchJob> job_of(const Variables& variables) {
  return find_batch_job([&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string{} : found->second;
  });
}

TEST(BatchJobTest, HasANameForAllOfItsLives) {
  const auto slurm = job_of({{"SLURM_JOB_ID", "17"}});
  ASSERT_TRUE(slurm);
  EXPECT_EQ(slurm->scheduler, Scheduler::kSlurm);
  EXPECT_EQ(slurm->id + " " + slurm->chain, "17 17");
  // The second life of job 34, and of the third task of array 4.
  Variables oar{{"OAR_JOB_ID", "35"}, {"OAR_ARRAY_ID", "34"}, {"OAR_ARRAY_INDEX", "1"}};
  EXPECT_EQ(job_of(oar)->scheduler, Scheduler::kOar);
  EXPECT_EQ(job_of(oar)->id + " " + job_of(oar)->chain, "35 34");
  oar["OAR_ARRAY_ID"] = "4";
  oar["OAR_ARRAY_INDEX"] = "3";
  EXPECT_EQ(job_of(oar)->chain, "4_3");
  oar["OAR_ARRAY_ID"] = "../4";
  EXPECT_EQ(job_of(oar)->chain, "35");
}

TEST(BatchJobTest, IsNoneOutsideOfAJobAndForIdsThatAreNotNumbers) {
  EXPECT_FALSE(job_of({}));
  EXPECT_FALSE(job_of({{"SLURM_JOB_ID", "../17"}}));
}

class ShellsAboveTest : public ::testing::Test {
 protected:
  void add(pid_t pid, pid_t parent, uid_t uid, const std::string& name) {
    Process process;
    process.pid = pid;
    process.parent = parent;
    process.uids = {uid, uid, uid, uid};
    processes_[pid] = process;
    names_[pid] = name;
  }
  std::vector<pid_t> shells(pid_t self, Scheduler scheduler) {
    return shells_above(
        processes_.at(self), scheduler,
        [&](pid_t pid) {
          const auto found = processes_.find(pid);
          return found == processes_.end() ? std::nullopt : std::optional(found->second);
        },
        [&](pid_t pid) { return names_[pid]; });
  }

  std::map<pid_t, Process> processes_;
  std::map<pid_t, std::string> names_;
};

TEST_F(ShellsAboveTest, AreThoseUpToTheOneThatTheSchedulerStarted) {
  add(10, 1, 0, "slurmstepd");
  add(11, 10, 1000, "slurm_script");
  add(12, 11, 1000, "bash");
  add(13, 12, 1000, "scriptorium-run");
  EXPECT_EQ(shells(13, Scheduler::kSlurm), (std::vector<pid_t>{12, 11}));
  EXPECT_EQ(shells(11, Scheduler::kSlurm), std::vector<pid_t>{});  // exec
  // Slurm that runs as the user.
  add(10, 1, 1000, "slurmstepd");
  EXPECT_EQ(shells(13, Scheduler::kSlurm), (std::vector<pid_t>{12, 11}));
  // Under OAR, another user's process is the limit, and a script of OAR's as the user.
  add(10, 1, 108, "oarexec");
  EXPECT_EQ(shells(13, Scheduler::kOar), (std::vector<pid_t>{12, 11}));
  add(12, 11, 1000, "perl");
  EXPECT_EQ(shells(13, Scheduler::kOar), (std::vector<pid_t>{12, 11})) << "one in the job";
  add(9, 1, 108, "oarexec");
  add(10, 9, 1000, "perl");
  EXPECT_EQ(shells(13, Scheduler::kOar), (std::vector<pid_t>{12, 11}));
  EXPECT_EQ(shells(11, Scheduler::kOar), std::vector<pid_t>{});  // exec
}

TEST_F(ShellsAboveTest, AreNoneInALoginSession) {
  add(10, 1, 0, "sshd");
  add(11, 10, 1000, "sshd");
  add(12, 11, 1000, "bash");
  add(13, 12, 1000, "salloc");
  add(14, 13, 1000, "scriptorium-run");
  EXPECT_EQ(shells(14, Scheduler::kSlurm), std::vector<pid_t>{});
  EXPECT_EQ(shells(14, Scheduler::kOar), std::vector<pid_t>{});
  // A desktop: the last of the user's has a parent that is not Slurm's.
  add(11, 10, 1000, "bash");
  add(10, 1, 0, "login");
  EXPECT_EQ(shells(14, Scheduler::kSlurm), std::vector<pid_t>{});
}

}  // namespace
}  // namespace scriptorium::checkpoint
