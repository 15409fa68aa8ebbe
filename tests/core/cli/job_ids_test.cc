#include "core/cli/job_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace scriptorium::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> names(const std::vector<std::string>& words,
                               const std::string& cluster = "") {
  std::vector<std::string> texts;
  const auto result = job_names(words, cluster);
  EXPECT_TRUE(result);
  for (const JobName& name : result ? *result : std::vector<JobName>{})
    texts.push_back(name_text(name));
  return texts;
}

TEST(JobIdsTest, TakesEachNameOfAJobAsItIs) {
  EXPECT_THAT(names({"4711", "4711_3", "4711+1", "12.server", "4711_[1-3]", "job-7"}),
              ElementsAre("4711", "4711_3", "4711+1", "12.server", "4711_[1-3]", "job-7"));
}

TEST(JobIdsTest, ARangeIsEachOfItsNumbers) {
  EXPECT_THAT(names({"8-11"}), ElementsAre("8", "9", "10", "11"));
  EXPECT_TRUE(job_names({"8-9"}, "")->front().of_range);
  EXPECT_FALSE(job_names({"8"}, "")->front().of_range);
}

TEST(JobIdsTest, AClusterStandsInFrontOrForAll) {
  EXPECT_THAT(names({"lab/4711", "4712"}), ElementsAre("lab/4711", "4712"));
  EXPECT_THAT(names({"lab/4711", "4712"}, "hpc"), ElementsAre("lab/4711", "hpc/4712"));
  EXPECT_THAT(names({"lab/1-2"}), ElementsAre("lab/1", "lab/2"));
}

TEST(JobIdsTest, OneNameTwiceIsOneJob) {
  EXPECT_THAT(names({"1", "2", "1"}), ElementsAre("1", "2"));
}

TEST(JobIdsTest, ARangeThatIsEmptyOrEndlessIsRefused) {
  for (const char* word : {"9-8", "1-99999999"}) {
    const auto result = job_names({word}, "");
    ASSERT_FALSE(result);
    EXPECT_THAT(result.error().message(), HasSubstr(word));
  }
}

}  // namespace
}  // namespace scriptorium::cli
