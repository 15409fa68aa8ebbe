#include "schedulers/usage/queued_jobs.h"

#include <gtest/gtest.h>

namespace scriptorium::usage {
namespace {

TEST(RequestTest, GpusOfAllTypesAreCountedOnce) {
  const auto gpus = [](std::string_view tres) { return read_request(tres, "1", "4", "").gpus; };
  EXPECT_EQ(gpus("cpu=4,gres/gpu=3,gres/gpu:a100=1,gres/gpu:h100=2"), 3U);
  EXPECT_EQ(gpus("cpu=4,gres/gpu:a100=1,gres/gpu:nvidia_geforce_rtx_2080_ti=2"), 3U);
  EXPECT_EQ(gpus("cpu=4,gres/gpu:a100_1g.5gb=1"), 1U);
  EXPECT_EQ(gpus("cpu=4,gres/gpumem=5G"), std::nullopt);
  EXPECT_EQ(gpus("cpu=4,gres/shard=2"), std::nullopt);
  EXPECT_TRUE(read_request("cpu=4,gres/shard=2", "1", "4", "").shared_gpu);
  EXPECT_TRUE(read_request("cpu=4,gres/mps:a100=50", "1", "4", "").shared_gpu);
  EXPECT_FALSE(read_request("cpu=4,gres/gpu=1,gres/shard=0", "1", "4", "").shared_gpu);
}

// As squeue of Slurm 22.05 printed it, with another guard and without BatchHost.
TEST(QueuedJobsTest, ARecordedAnswerIsRead) {
  const auto jobs = parse_queue(
      "4@0123abc3@0123abc0@0123abc0@0123abc0@0123abc1795292017@0123abc1795292019@0123abc1795292021@"
      "0123abc0:02@0123abcUNLIMITED@"
      "0123abc0"
      "@0123abcCOMPLETED@0123abc0@0123abc1@0123abc1@0123abccpu=1,node=1,billing=1@0123abcN/"
      "A@0123abc(null)@0123abc(null)@0123abcmain"
      "@0123abc/home/alice@0123abcwrap@0123abc\n"
      "1@0123abc1@0123abcN/"
      "A@0123abc0@0123abc0@0123abc1795292016@0123abc1795292019@0123abc1795292024@0123abc0:02@"
      "0123abc5:00@0123abc0"
      "@0123abcFAILED@0123abc768@0123abc1@0123abc2@0123abccpu=2,mem=200M,node=1,billing=2@0123abcN/"
      "A@0123abc(null)@0123abc(null)"
      "@0123abcmain@0123abc/home/alice@0123abca b|c@0123abc\n",
      "@0123abc");
  ASSERT_TRUE(jobs) << jobs.error().message();
  ASSERT_EQ(jobs->size(), 2U);
  const JobFacts& task = (*jobs)[0].facts;
  EXPECT_EQ(task.job.array->job_id, "3");
  EXPECT_EQ(task.job.array->task_id, "0");
  EXPECT_EQ(task.request.time_limit_seconds, std::nullopt);
  EXPECT_EQ(task.request.memory_bytes, std::nullopt) << "this site does not count memory";
  EXPECT_EQ(task.suspended_seconds, 0);
  const JobFacts& failed = (*jobs)[1].facts;
  EXPECT_EQ(failed.exit_code, "3:0");
  EXPECT_EQ(failed.state, "FAILED");
  EXPECT_EQ(failed.request.memory_bytes, 200U << 20U);
  EXPECT_EQ(failed.request.time_limit_seconds, 300);
  EXPECT_EQ(failed.suspended_seconds, 3) << "it ran for 2 s of the 5";
  EXPECT_EQ(failed.job.name, "a b|c");
}

}  // namespace
}  // namespace scriptorium::usage
