#include "checkpoint/config.h"

#include <gtest/gtest.h>

#include <string>

namespace scriptorium::checkpoint {
namespace {

TEST(CheckpointConfigTest, ReadsEveryKey) {
  Problems problems;
  const Config config = parse_config(
      "spool = \"/s\"\ncriu = \"/c\"\nmax_image_bytes = \"2GiB\"\ntime_limit_seconds = \"5m\"\n"
      "dumps_at_a_time = 3\ngenerations = 4\nrequests_per_minute = 5\n"
      "records = \"\"\nrecords_group = \"archive\"\n",
      "checkpoint.toml", problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(config.spool, "/s");
  EXPECT_EQ(config.criu, "/c");
  EXPECT_EQ(config.max_image_bytes, std::int64_t{2} << 30);
  EXPECT_EQ(config.time_limit_seconds, 300);
  EXPECT_EQ(config.dumps_at_a_time, 3);
  EXPECT_EQ(config.generations, 4);
  EXPECT_EQ(config.requests_per_minute, 5);
  EXPECT_EQ(config.records, "");
  EXPECT_EQ(config.records_group, "archive");
}

TEST(CheckpointConfigTest, ReportsEveryProblemWithItsLine) {
  Problems problems;
  parse_config("spol = \"/s\"\nspool = \"s\"\ngenerations = 0\n", "checkpoint.toml", problems);
  problems.sort();
  ASSERT_EQ(problems.list().size(), 3U);
  EXPECT_EQ(problems.list()[0].text(),
            "checkpoint.toml:1: spol: unknown key; did you mean \"spool\"?");
  EXPECT_EQ(problems.list()[1].text(),
            "checkpoint.toml:2: spool: not an absolute path; allowed: a path that begins with /; "
            "given: \"s\"");
  EXPECT_EQ(problems.list()[2].text(),
            "checkpoint.toml:3: generations: out of range; allowed: 1 .. 9; given: 0");
}

}  // namespace
}  // namespace scriptorium::checkpoint
