#include "schedulers/usage/slurm_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedulers/usage/job_config.h"

namespace scriptorium::usage {
namespace {

using namespace std::literals;
using ::testing::HasSubstr;

TEST(SlurmTextTest, DurationsAreReadInEveryShapeThatSlurmPrints) {
  EXPECT_EQ(read_duration("0:05"), 5);
  EXPECT_EQ(read_duration("5:00"), 300);
  EXPECT_EQ(read_duration("1:00:00"), 3600);
  EXPECT_EQ(read_duration("1-02:00:00"), 93600);
  EXPECT_DOUBLE_EQ(*read_duration("00:02.992"), 2.992);
  for (const char* word :
       {"UNLIMITED", "Partition_Limit", "", "5", "1:2:3:4", "1-", ":", "x:1", "1:.5x", "-1:00"}) {
    EXPECT_EQ(read_duration(word), std::nullopt) << word;
  }
}

TEST(SlurmTextTest, SizesAreReadWithTheirUnits) {
  EXPECT_EQ(read_size("200M"), 200U << 20U);
  EXPECT_EQ(read_size("1.50G"), 1536U << 20U);
  EXPECT_EQ(read_size("76853248"), 76853248U);
  for (const char* word : {"", "M", "12X", "12MB", "-1", "1e99", "nan", "inf"})
    EXPECT_EQ(read_size(word), std::nullopt) << word;
}

TEST(SlurmTextTest, AMemberOfAListIsFoundByItsWholeName) {
  const auto list = "billing=2,cpu=2,mem=200M,gres/gpu=3,gres/gpu:a100=3,node=1"sv;
  EXPECT_EQ(tres(list, "cpu"), "2");
  EXPECT_EQ(tres(list, "gres/gpu"), "3");
  EXPECT_EQ(tres(list, "bill"), std::nullopt);
  EXPECT_EQ(tres("", "cpu"), std::nullopt);
}

TEST(SlurmTextTest, NumbersThatSlurmDoesNotMeanAreAbsent) {
  EXPECT_EQ(read_count("4294967292"), 4294967292U);
  for (const char* text :
       {"4294967293", "4294967294", "4294967295", "18446744073709551614", "", "x"})
    EXPECT_EQ(read_count(text), std::nullopt) << text;
  EXPECT_EQ(read_size("18446744073709551614"), std::nullopt) << "NO_VAL64";
}

TEST(SlurmTextTest, GpusOfAllTypesAreCountedOnce) {
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

TEST(SlurmTextTest, ListsOfHostsAreReadAsSlurmShortensThem) {
  using ::testing::ElementsAre;
  EXPECT_THAT(read_hosts("n1"), ElementsAre("n1"));
  EXPECT_THAT(read_hosts("n[08-10,1],login"), ElementsAre("n08", "n09", "n10", "n1", "login"));
  EXPECT_THAT(read_hosts("r[1-2]n[3,5]-ib"),
              ElementsAre("r1n3-ib", "r1n5-ib", "r2n3-ib", "r2n5-ib"));
  EXPECT_EQ(read_hosts("n[1-65536]").size(), 65536U);
  for (const char* text :
       {"", ",", "n[1-", "n[2-1]", "n[a-b]", "n[1-4294967295]", "n[1-300]x[1-300]"})
    EXPECT_TRUE(read_hosts(text).empty()) << text;
}

TEST(SlurmTextTest, RowsThatAreCutOrTooLongAreRefused) {
  EXPECT_EQ(split_rows("a@b@\nc@d@\n", "@", 2, "x").value().size(), 2U);
  EXPECT_EQ(split_rows("a@b\nc@\n", "@", 2, "x").value().front()[1], "b\nc");
  for (const char* text : {"a@b@", "a@", "a@b@c@\n", "\n"})
    EXPECT_FALSE(split_rows(text, "@", 2, "x")) << text;
  EXPECT_FALSE(split_rows("a\n", "", 1, "x"));
  EXPECT_TRUE(split_rows("", "@", 2, "x").value().empty());
}

// As squeue of Slurm 22.05 printed it, with another guard.
TEST(SlurmTextTest, ARecordedAnswerIsRead) {
  const auto jobs = parse_queue(
      "4@0123abc3@0123abc0@0123abc0@0123abc0@0123abc1795292017@0123abc1795292019@0123abc1795292021@"
      "0123abc0:02@0123abcUNLIMITED@"
      "0123abc0"
      "@0123abcCOMPLETED@0123abc0@0123abc1@0123abc1@0123abccpu=1,node=1,billing=1@0123abcN/"
      "A@0123abc(null)@0123abc(null)@0123abcmain"
      "@0123abc/home/alice@0123abcn1@0123abcwrap@0123abc\n"
      "1@0123abc1@0123abcN/"
      "A@0123abc0@0123abc0@0123abc1795292016@0123abc1795292019@0123abc1795292024@0123abc0:02@"
      "0123abc5:00@0123abc0"
      "@0123abcFAILED@0123abc768@0123abc1@0123abc2@0123abccpu=2,mem=200M,node=1,billing=2@0123abcN/"
      "A@0123abc(null)@0123abc(null)"
      "@0123abcmain@0123abc/home/alice@0123abcn1@0123abca b|c@0123abc\n",
      "0123abc");
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

TEST(FindCommandTest, OneThatIsNotThereIsSaid) {
  const auto found = find_command("/nonexistent/squeue", "squeue", "squeue");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().kind(), ErrorKind::kInvalidConfig);
  EXPECT_THAT(found.error().message(), HasSubstr("/nonexistent/squeue cannot be executed"));
  EXPECT_THAT(find_command("", "no-such-command", "squeue").error().message(),
              HasSubstr("set squeue"));
  EXPECT_THAT(find_command("", "sh", "x").value(), ::testing::EndsWith("bin/sh"));
}

}  // namespace
}  // namespace scriptorium::usage
