#include "checkpoint/job_group.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace scriptorium::checkpoint {
namespace {

const JobOwner kAlice{"34", 1000, "alice"};

struct Case {
  const char* text;
  bool is_in_job;
};

TEST(JobGroupTest, FindsTheJobInEachLayoutOfControlGroups) {
  for (const Case& c : {
           Case{"6:freezer:/slurm/uid_1000/job_34/step_batch\n", true},
           Case{"6:freezer:/slurm_node7/uid_1000/job_34/step_batch/task_0\n", true},
           Case{"9:name=systemd:/user.slice\n3:cpuset,cpu:/slurm/uid_1000/job_34/step_batch\n",
                true},
           Case{"3:cpuset:/oar/alice_34\n0::/\n", true},
           Case{"3:cpuset:/oar/alice_34/task\n", true},
           Case{"0::/system.slice/slurmstepd.scope/job_34/step_batch/user/task_0\n", true},
           Case{"0::/system.slice/node7_slurmstepd.scope/job_34/step_batch/user/task_0\n", true},
           Case{"0::/oar.slice/oar-u1000.slice/oar-u1000-j34.slice/oar-u1000-j34-s2.scope\n", true},
           Case{"0::/oar/alice_34\n", true},
       })
    EXPECT_EQ(is_in_job(c.text, kAlice), c.is_in_job) << c.text;
}

TEST(JobGroupTest, RefusesOtherJobsAndForgedPaths) {
  for (const Case& c : {
           Case{"", false},
           Case{"0::/\n", false},
           // Another job, another user.
           Case{"6:freezer:/slurm/uid_1000/job_35/step_batch\n", false},
           Case{"6:freezer:/slurm/uid_1000/job_341/step_batch\n", false},
           Case{"6:freezer:/slurm/uid_1001/job_34/step_batch\n", false},
           Case{"3:cpuset:/oar/bob_34\n", false},
           Case{"3:cpuset:/oar/alice_x_34\n", false},
           Case{"0::/oar.slice/oar-u1001.slice/oar-u1001-j34.slice/x\n", false},
           Case{"0::/oar.slice/oar-u1001.slice/oar-u1000-j34.slice/x\n", false},
           // One hierarchy says so, and another one that it is another job's.
           Case{"6:freezer:/slurm/uid_1000/job_34/step_batch\n"
                "3:cpuset:/slurm/uid_1000/job_35/step_batch\n",
                false},
           Case{"6:freezer:/slurm/uid_1000/job_34/step_batch\n3:cpuset:/oar/bob_7\n", false},
           // Below a group that is delegated to the user, any name can be made.
           Case{"0::/user.slice/user-1000.slice/user@1000.service/system.slice/slurmstepd.scope/"
                "job_34/step_batch/user/task_0\n",
                false},
           Case{"0::/user.slice/user-1000.slice/oar/alice_34\n", false},
           Case{"6:freezer:/x/slurm/uid_1000/job_34/step_batch\n", false},
           Case{"0::/system.slice/evil.slurmstepd.scope/job_34/step_batch/user\n", false},
           // A group of another namespace's root.
           Case{"0::/../system.slice/slurmstepd.scope/job_34/step_batch/user/task_0\n", false},
           Case{"6:freezer:/slurm/../slurm/uid_1000/job_34/step_batch\n", false},
           // systemd's own hierarchy, and controllers that schedulers do not find processes by.
           Case{"9:name=systemd:/slurm/uid_1000/job_34/step_batch\n", false},
           Case{"9:name=freezer:/slurm/uid_1000/job_34/step_batch\n", false},
           Case{"4:memory:/slurm/uid_1000/job_34/step_batch\n", false},
           // Steps that are not the job's script, and the scheduler's own process.
           Case{"6:freezer:/slurm/uid_1000/job_34/step_extern/task_0\n", false},
           Case{"6:freezer:/slurm/uid_1000/job_34\n", false},
           Case{"0::/system.slice/slurmstepd.scope/job_34/step_batch/slurm\n", false},
           // Not the names that schedulers give.
           Case{"6:freezer:/slurmx/uid_1000/job_34/step_batch\n", false},
           Case{"6:freezer:/slurm_/uid_1000/job_34/step_batch\n", false},
           Case{"6:freezer:/slurm/uid_1000/job_34 /step_batch\n", false},
           Case{"3:cpuset:/oar/_34\n", false},
           Case{"3:cpuset:/oar/*\n", false},
       })
    EXPECT_EQ(is_in_job(c.text, kAlice), c.is_in_job) << c.text;
}

TEST(JobGroupTest, NamesTheSchedulerOfTheOwnersJobOnly) {
  EXPECT_EQ(scheduler_of("6:freezer:/slurm/uid_1000/job_34/step_batch\n", kAlice), "slurm");
  EXPECT_EQ(scheduler_of("9:cpu:/x\n3:cpuset:/oar/alice_34\n", kAlice), "oar");
  EXPECT_EQ(scheduler_of("0::/oar.slice/oar-u1000.slice/oar-u1000-j34.slice/s\n", kAlice), "oar");
  EXPECT_EQ(scheduler_of("0::/system.slice/slurmstepd.scope/job_34/step_batch/user\n", kAlice),
            "slurm");
  EXPECT_EQ(scheduler_of("6:freezer:/slurm/uid_1000/job_35/step_batch\n", kAlice), "");
  EXPECT_EQ(scheduler_of("", kAlice), "");
}

TEST(JobGroupTest, NamesTheGroupsThatAProcessIsEnteredInto) {
  const std::string mounts =
      "30 24 0:26 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
      "31 24 0:27 / /sys/fs/cgroup/freezer rw,relatime shared:3 - cgroup cgroup rw,freezer\n"
      "32 24 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
      "33 24 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
      "34 24 0:30 /box /boxed rw - cgroup cgroup rw,memory\n"
      "35 24 8:1 / / rw - ext4 /dev/sda1 rw\n";
  const auto entries = entries_of(
      "7:freezer:/slurm/uid_1000/job_34/step_batch\n6:memory:/slurm/uid_1000/job_34/step_batch\n"
      "3:cpuset:/\n1:name=systemd:/slurmd.service\n0::/\n",
      mounts, kAlice);
  ASSERT_EQ(entries.size(), 5U);
  EXPECT_EQ(entries[0].procs,
            "/sys/fs/cgroup/freezer/slurm/uid_1000/job_34/step_batch/cgroup.procs");
  EXPECT_TRUE(entries[0].required);
  // No mount shows the whole hierarchy: it cannot be entered, so the resume is refused.
  EXPECT_EQ(entries[1].procs, "/slurm/uid_1000/job_34/step_batch/cgroup.procs");
  EXPECT_TRUE(entries[1].required);
  EXPECT_EQ(entries[2].procs, "/sys/fs/cgroup/cpuset/cgroup.procs");
  EXPECT_FALSE(entries[2].required);
  EXPECT_EQ(entries[3].procs, "/sys/fs/cgroup/systemd/slurmd.service/cgroup.procs");
  EXPECT_EQ(entries[4].procs, "/sys/fs/cgroup/unified/cgroup.procs");
}

}  // namespace
}  // namespace scriptorium::checkpoint
