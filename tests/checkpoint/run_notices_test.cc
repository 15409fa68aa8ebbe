#include "checkpoint/run/notices.h"

#include <gtest/gtest.h>

#include <string>

namespace scriptorium::checkpoint {
namespace {

// As Slurm 22.05 writes them.
constexpr const char* kConfig =
    "JobRequeue              = 1\nRequeueExit             = 99\n"
    "RequeueExitHold         = (null)\n";
constexpr const char* kJob =
    "JobId=1 JobName=Requeue=0 UserId=alice(1000) Requeue=1 Restarts=0 RunTime=00:00:01 "
    "TimeLimit=00:02:00 TimeMin=N/A\n";
constexpr const char* kScript = "#!/bin/bash\n#SBATCH --time=2 --signal=B:USR2@60\ntrue\n";

TEST(SlurmNoticesTest, AreNoneWhereANextLifeComesOrNothingIsKnown) {
  EXPECT_TRUE(slurm_notices(kConfig, kJob, kScript).empty());
  EXPECT_TRUE(slurm_notices("", "", "").empty());
  EXPECT_TRUE(slurm_notices("", "JobId=1 TimeLimit=UNLIMITED", "#!/bin/bash\n").empty());
}

TEST(SlurmNoticesTest, SayEachReasonForWhichNoNextLifeComes) {
  const auto said = slurm_notices("RequeueExit             = (null)\nRequeueExitHold = 99\n",
                                  "JobId=1 Requeue=0 TimeLimit=00:02:00",
                                  "#!/bin/bash\necho '#SBATCH --signal=B:USR2@60'\n");
  ASSERT_EQ(said.size(), 3U);
  EXPECT_NE(said[0].find("RequeueExit in slurm.conf has no 99"), std::string::npos);
  EXPECT_NE(said[1].find("without --requeue"), std::string::npos);
  EXPECT_NE(said[2].find("asks for no signal"), std::string::npos);
}

TEST(SlurmNoticesTest, AnExitCodeIsInAListOfNumbersAndRanges) {
  for (const char* list : {"99", "1,99", "90-99", "1-3, 98-100", "1,99,120"})
    EXPECT_TRUE(has_exit_code(list, 99)) << list;
  for (const char* list : {"", "(null)", "9", "199", "1-98", "100-99"})
    EXPECT_FALSE(has_exit_code(list, 99)) << list;
}

// As `oarstat -f -j` of OAR 2.5 writes them.
std::string oar_job(const std::string& types) {
  return "Job_Id: 34\n    name = idempotent\n    owner = alice\n    types = " + types +
         "\n    dependencies = \n    command = ./run types = x\n";
}

TEST(OarNoticesTest, OnlyAnIdempotentJobIsRunAgain) {
  for (const std::string& job : {oar_job("idempotent"), oar_job("besteffort, idempotent"),
                                 std::string("Job_Id: 34\n"), std::string()})
    EXPECT_EQ(oar_notices(job, "/home/alice").again, "") << job;
  for (const char* types : {"", "besteffort", "not-idempotent, timesharing=*,*"})
    EXPECT_NE(oar_notices(oar_job(types), "/home/alice").again.find("without -t idempotent"),
              std::string::npos)
        << types;
}

TEST(OarNoticesTest, ImagesDoNotLastWhereOarRemovesFiles) {
  for (const std::string folder : {"/tmp", "/var/tmp", "/dev/shm"}) {
    EXPECT_NE(oar_notices("", folder + "/alice/x").images.find("is in " + folder + ", where OAR"),
              std::string::npos);
  }
  for (const char* directory : {"/home/alice/tmp/x", "/tmpfs/x", "/var/x", "/scratch", ""})
    EXPECT_EQ(oar_notices("", directory).images, "") << directory;
}

TEST(WhyNotSavedTest, MpiAndContainersAreRefusedByName) {
  for (const char* program : {"mpirun", "/opt/mpi/bin/mpiexec", "srun", "/usr/bin/apptainer"})
    EXPECT_TRUE(why_not_saved(program)) << program;
  for (const char* program : {"./mpirun.sh", "srun-all", "bash", ""})
    EXPECT_FALSE(why_not_saved(program)) << program;
}

}  // namespace
}  // namespace scriptorium::checkpoint
