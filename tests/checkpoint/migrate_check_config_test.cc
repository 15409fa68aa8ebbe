#include "checkpoint/migrate/check_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace scriptorium::checkpoint {
namespace {

using testing::HasSubstr;
using testing::Not;

// As Slurm 22.05 prints them, without what is not read.
std::string config(const std::string& changed = {}) {
  return "Configuration data as of 2026-11-28T23:20:00\n" + changed +  // of two, the first counts
         "JobRequeue              = 1\nKillWait                = 30 sec\n"
         "MinJobAge               = 300 sec\nPreemptMode             = REQUEUE\n"
         "PreemptType             = preempt/partition_prio\n"
         "ProctrackType           = proctrack/cgroup\nRequeueExit             = 99\n"
         "SLURM_VERSION           = 22.05.8\n"
         "SlurmctldParameters     = preempt_send_user_signal\n\n"
         "Slurmctld(primary) at lab is UP\n";
}
constexpr const char* kPartitions =
    "PartitionName=normal AllowGroups=ALL Default=YES GraceTime=300 PriorityTier=1 "
    "PreemptMode=REQUEUE State=UP\n"
    "PartitionName=urgent AllowGroups=ALL Default=NO GraceTime=0 PriorityTier=10 PreemptMode=OFF "
    "State=UP\n";

std::string remarks(const std::string& changed, const std::string& partitions = kPartitions) {
  const std::string text = config(changed);
  return remarks_text(check_config(text, partitions), text);
}

TEST(CheckConfigTest, WhatIsRightIsFine) {
  const std::string text = remarks("");
  EXPECT_THAT(text, Not(HasSubstr("needed")));
  EXPECT_THAT(text, Not(HasSubstr("advice")));
  EXPECT_THAT(text, HasSubstr("fine    RequeueExit=99\n"));
  EXPECT_THAT(text, HasSubstr("fine    PartitionName=normal PreemptMode=REQUEUE GraceTime=300"));
  EXPECT_THAT(text, Not(HasSubstr("urgent")));
  EXPECT_THAT(text, HasSubstr("This is Slurm 22.05.8, with which the tests run.\n"));
}

TEST(CheckConfigTest, WhatIsMissingIsSaidInSlurmsOwnWords) {
  const struct {
    const char* changed;
    const char* remark;
  } kCases[] = {
      {"RequeueExit             = (null)\n", "needed  RequeueExit=99: "},
      {"RequeueExit             = 1-5\n", "needed  RequeueExit=1-5,99: "},
      {"JobRequeue              = 0\n", "advice  JobRequeue=1: "},
      {"KillWait                = 2 sec\n", "advice  KillWait=30: "},
      {"ProctrackType           = proctrack/pgid\n", "needed  ProctrackType=proctrack/cgroup: "},
      {"SlurmctldParameters     = (null)\n",
       "needed  SlurmctldParameters=preempt_send_user_signal: "},
      {"SlurmctldParameters     = enable_configless\n",
       "needed  SlurmctldParameters=enable_configless,preempt_send_user_signal: "},
      {"SLURM_VERSION           = 24.11.1\n", "needed  PreemptParameters=send_user_signal: "},
      {"SLURM_VERSION           = 18.08.9\n", "needed  Slurm 19.05 or later: "},
      {"MinJobAge               = 2 sec\n", "advice  MinJobAge=300: "},
      {"PreemptType             = preempt/none\n", "advice  PreemptType=preempt/partition_prio: "},
      {"PreemptType             = preempt/qos\n", "advice  sacctmgr modify qos NAME set GraceTime"},
  };
  for (const auto& each : kCases) EXPECT_THAT(remarks(each.changed), HasSubstr(each.remark));
  EXPECT_THAT(remarks("SLURM_VERSION           = 24.11.1\n"),
              HasSubstr("is Slurm 24.11.1. The tests run with 22.05; what differs"));
}

TEST(CheckConfigTest, PartitionsWhoseJobsWouldBeKilled) {
  EXPECT_THAT(remarks("", "PartitionName=a GraceTime=0 PreemptMode=REQUEUE\n"),
              HasSubstr("needed  PartitionName=a GraceTime=300: "));
  EXPECT_THAT(remarks("", "PartitionName=a GraceTime=60 PreemptMode=CANCEL\n"),
              HasSubstr("needed  PartitionName=a PreemptMode=REQUEUE: its jobs are preempted by "
                        "CANCEL"));
  EXPECT_THAT(remarks("PreemptType             = preempt/none\n",
                      "PartitionName=a GraceTime=0 PreemptMode=REQUEUE\n"),
              Not(HasSubstr("needed")));
}

TEST(CheckConfigTest, WhatIsNoAnswerOfSlurmIsNoCrash) {
  for (const char* text : {"", "\n\n", "=", "RequeueExit", "PartitionName=\n"})
    EXPECT_NE(remarks_text(check_config(text, text), text), "");
}

}  // namespace
}  // namespace scriptorium::checkpoint
