#include "core/api/kit/job_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace scriptorium {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kMiB = 1048576;
constexpr std::uint64_t kGiB = 1024 * kMiB;

std::vector<std::string> memory(const std::string& word, std::uint64_t bytes,
                                std::uint32_t nodes = 1) {
  return request_lines(word, {.memory_bytes = bytes}, nodes);
}
std::vector<std::string> time(const std::string& word, double seconds) {
  return request_lines(word, {.time_limit_seconds = seconds}, 1);
}

TEST(JobRequestTest, IsRoundedUpToWhatAPersonWouldWrite) {
  EXPECT_THAT(memory("#SBATCH", 1), ElementsAre("#SBATCH --mem=10M"));
  EXPECT_THAT(memory("#SBATCH", 123 * kMiB), ElementsAre("#SBATCH --mem=130M"));
  EXPECT_THAT(memory("#SBATCH", 4 * kGiB + 1), ElementsAre("#SBATCH --mem=5G"));
  EXPECT_THAT(time("#SBATCH", 90), ElementsAre("#SBATCH --time=00:01:30"));
  EXPECT_THAT(time("#SBATCH", 89.2), ElementsAre("#SBATCH --time=00:01:30"));
  EXPECT_THAT(time("#SBATCH", 2 * 86400 + 3600), ElementsAre("#SBATCH --time=2-01:00:00"));
}

TEST(JobRequestTest, HasHeadroom) {
  EXPECT_EQ(memory_to_ask_for(1000), 1200U);
  EXPECT_EQ(memory_to_ask_for(1001), 1202U);
  EXPECT_EQ(time_to_ask_for(3600), 5400);
  EXPECT_EQ(time_to_ask_for(3601), 5460);
  EXPECT_EQ(time_to_ask_for(10), 300);
}

TEST(JobRequestTest, SlurmCountsMemoryOfEachNodeAndPbsOfAllOfThem) {
  EXPECT_THAT(memory("#SBATCH", 240 * kMiB, 3), ElementsAre("#SBATCH --mem=240M"));
  EXPECT_THAT(memory("#PBS", 240 * kMiB), ElementsAre("#PBS -l mem=240mb"));
  EXPECT_THAT(memory("#PBS", 240 * kMiB, 3), ElementsAre("#PBS -l mem=720mb"));
  EXPECT_THAT(memory("#PBS", 5 * kGiB), ElementsAre("#PBS -l mem=5gb"));
}

TEST(JobRequestTest, IsInTheWordsOfTheJobsScheduler) {
  const JobRequest all{.cpus = 1, .memory_bytes = kGiB, .time_limit_seconds = 93784, .gpus = 2};
  EXPECT_THAT(request_lines("#SBATCH", all, 1),
              ElementsAre("#SBATCH --cpus-per-task=1", "#SBATCH --ntasks=1", "#SBATCH --mem=1030M",
                          "#SBATCH --time=1-02:03:04", "#SBATCH --gpus=2"));
  EXPECT_THAT(
      request_lines("#PBS", all, 1),
      ElementsAre("#PBS -l nodes=1:ppn=1", "#PBS -l mem=1030mb", "#PBS -l walltime=26:03:04"));
  EXPECT_THAT(request_lines("#$", all, 1), ElementsAre("#$ -l h_rt=26:03:04"));
  EXPECT_THAT(request_lines("#OAR", all, 1),
              ElementsAre("#OAR -l /nodes=1/core=1,walltime=26:03:04"));
  EXPECT_THAT(request_lines("#OAR", {.time_limit_seconds = 600}, 1),
              ElementsAre("#OAR -l walltime=00:10:00"));
  EXPECT_THAT(request_lines("#OAR", {.memory_bytes = kGiB}, 1), IsEmpty());
  EXPECT_THAT(request_lines("#SBATCH", {}, 1), IsEmpty());
  EXPECT_THAT(request_lines("", all, 1), IsEmpty());
}

}  // namespace
}  // namespace scriptorium
