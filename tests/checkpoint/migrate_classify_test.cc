#include "checkpoint/migrate/classify.h"

#include <gtest/gtest.h>

#include <string>

namespace scriptorium::checkpoint {
namespace {

SlurmJob running_job() {
  SlurmJob job;
  job.id = "7";
  job.state = "RUNNING";
  job.nodes = "n1";
  job.node_count = 1;
  job.is_batch = true;
  job.may_requeue = true;
  return job;
}

void expect_reason(const SlurmJob& job, const std::string& requeue_exit,
                   const std::string& reason) {
  const auto why = why_not_movable(job, requeue_exit);
  ASSERT_TRUE(why) << reason;
  EXPECT_NE(why->find(reason), std::string::npos) << *why;
}

TEST(ClassifyTest, AJobThatCannotBeRunAgainIsNotMovable) {
  EXPECT_FALSE(why_not_movable(running_job(), "1,99"));
  expect_reason(running_job(), "", "RequeueExit in slurm.conf has no 99");
  SlurmJob job = running_job();
  job.is_batch = false;
  expect_reason(job, "99", "not a batch job");
  job = running_job();
  job.may_requeue = false;
  expect_reason(job, "99", "--no-requeue");
  job = running_job();
  job.is_het = true;
  expect_reason(job, "99", "heterogeneous");
  job = running_job();
  job.state = "PENDING";
  expect_reason(job, "99", "not running (PENDING)");
  job = running_job();
  job.node_count = 2;
  expect_reason(job, "99", "runs on 2 nodes");
}

TEST(ClassifyTest, OnlyABatchProcessThatTakesTheSignalMayBeSignalled) {
  using Inspected = Result<std::optional<BatchProcess>>;
  BatchProcess batch;
  batch.name = "bash";
  const auto method = [&] { return classify(Inspected(std::optional(batch))).method; };
  EXPECT_FALSE(method());
  EXPECT_NE(classify(Inspected(std::optional(batch))).reason.find("does not catch SIGUSR2"),
            std::string::npos);
  batch.blocks_signal = true;  // it would get it later
  EXPECT_FALSE(method());
  batch.catches_signal = true;
  EXPECT_EQ(method(), MoveMethod::kTrap);
  batch = {.name = "bash", .tracer = "gdb"};
  EXPECT_FALSE(method());
  batch.tracer = "scriptorium-run";
  EXPECT_EQ(method(), MoveMethod::kRun);
  batch.saves_itself = true;
  EXPECT_EQ(method(), MoveMethod::kRunApp);
  batch = {.name = "scriptorium-run", .tracer = ""};  // it has not got as far
  EXPECT_FALSE(method());
  batch.blocks_signal = true;
  EXPECT_EQ(method(), MoveMethod::kRun);
}

TEST(ClassifyTest, AJobOfWhichNothingCanBeReadIsNotSignalled) {
  const auto refused = classify(Error{ErrorKind::kPermanent, "only root or the owner"});
  EXPECT_FALSE(refused.method);
  EXPECT_NE(refused.reason.find("only root or the owner"), std::string::npos);
  EXPECT_FALSE(classify(std::optional<BatchProcess>{}).method);
}

}  // namespace
}  // namespace scriptorium::checkpoint
