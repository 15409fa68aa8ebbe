#include "checkpoint/run/options.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace scriptorium::checkpoint {
namespace {

using Words = std::vector<std::string>;

TEST(RunOptionsTest, TheCommandBeginsAtTheFirstWordThatIsNoOption) {
  for (const Words& words : {Words{"./prog", "--keep-after-success", "-x"},
                             Words{"--", "./prog", "--keep-after-success", "-x"}}) {
    const auto options = parse_run_options(words);
    ASSERT_TRUE(options);
    EXPECT_EQ(options->command, (Words{"./prog", "--keep-after-success", "-x"}));
    EXPECT_FALSE(options->keeps_images);
  }
  EXPECT_EQ(parse_run_options({"--", "--help"})->command, Words{"--help"});
}

TEST(RunOptionsTest, AValueMayFollowOrBeAssigned) {
  for (const Words& words : {Words{"--save-dir", "/x", "--keep-after-success", "a"},
                             Words{"--save-dir=/x", "--keep-after-success", "a"}}) {
    const auto options = parse_run_options(words);
    ASSERT_TRUE(options);
    EXPECT_EQ(options->save_dir, "/x");
    EXPECT_TRUE(options->keeps_images);
    EXPECT_EQ(options->command, Words{"a"});
  }
}

TEST(RunOptionsTest, TheNumberOfImagesIsTheServicesUnlessItIsGiven) {
  EXPECT_EQ(parse_run_options({"a"})->keep, 0);
  EXPECT_EQ(parse_run_options({"--keep", "3", "a"})->keep, 3);
}

TEST(RunOptionsTest, APeriodHasAUnit) {
  EXPECT_EQ(parse_period("90s"), 90);
  EXPECT_EQ(parse_period("30m"), 1800);
  EXPECT_EQ(parse_period("2h"), 7200);
  EXPECT_EQ(parse_period("365d"), 365 * 86400);
  for (const char* text : {"", "30", "m", "0m", "-1m", "1.5h", "30 m", "30min", "9999999999999m"})
    EXPECT_EQ(parse_period(text), 0) << text;
}

TEST(RunOptionsTest, SaysWhatIsWrong) {
  const std::vector<std::pair<Words, std::string>> table{
      {{}, "no command is given"},
      {{"--keep-after-success"}, "no command is given"},
      {{"--"}, "no command is given"},
      {{"--save-dir"}, "--save-dir needs a value"},
      {{"--save-dir=", "a"}, "--save-dir needs a directory"},
      {{"--keep-after-success=1", "a"}, "--keep-after-success takes no value"},
      {{"--engine", "dmtcp", "a"}, "--engine is auto, criu or app, not \"dmtcp\""},
      {{"--keep", "0", "a"}, "--keep is a number of images from 1 to 100, not \"0\""},
      {{"--keep", "2x", "a"}, "--keep is a number of images from 1 to 100, not \"2x\""},
      {{"--every", "5", "a"}, "--every is a time such as 30m or 2h, not \"5\""},
      {{"-n", "a"}, "unknown option \"-n\""}};
  for (const auto& [words, problem] : table) {
    const auto options = parse_run_options(words);
    ASSERT_FALSE(options) << problem;
    EXPECT_EQ(options.error().message(), problem);
  }
}

}  // namespace
}  // namespace scriptorium::checkpoint
