#include "schedulers/usage/state.h"

#include <gtest/gtest.h>

namespace scriptorium::usage {
namespace {

class StateTest : public ::testing::Test {
 protected:
  static NodeUsage node(const std::string& id) {
    NodeUsage node;
    node.job.scheduler = "slurm";
    node.job.job_id = id;
    node.job.node = "n1";
    return node;
  }
  static LifeState life(const std::string& id) {
    LifeState life;
    life.job = node(id).job;
    life.readings = 3;
    return life;
  }
};

TEST_F(StateTest, ReadsBackWhatItWrites) {
  const std::string text = state_header("boot-1") + state_line(life("1")) +
                           state_line(node_record(node("2")), false) +
                           state_line(node_record(node("3")), true);
  const auto content = parse_state(text);
  ASSERT_TRUE(content.has_value()) << content.error().message();
  EXPECT_EQ(content->boot_id, "boot-1");
  ASSERT_EQ(content->lives.size(), 1U);
  EXPECT_EQ(content->lives[0].job.job_id, "1");
  EXPECT_EQ(content->lives[0].readings, 3U);
  ASSERT_EQ(content->ended.size(), 2U);
  EXPECT_FALSE(content->ended[0].written);
  EXPECT_TRUE(content->ended[1].written);
  EXPECT_EQ(content->damaged, 0U);
}

TEST_F(StateTest, ADamagedLineCostsThatLineAlone) {
  const auto content = parse_state(state_header("b") + "life {\"job\":\n" + "later-version {}\n" +
                                   state_line(life("1")) + "ended");
  ASSERT_TRUE(content.has_value());
  EXPECT_EQ(content->lives.size(), 1U);
  EXPECT_EQ(content->damaged, 3U);
}

TEST_F(StateTest, AFileOfAnotherVersionIsRefused) {
  for (const char* other : {"", "scriptorium-usage-state 2 b\n", "{}", "life {}"}) {
    const auto content = parse_state(other);
    ASSERT_FALSE(content.has_value()) << other;
    EXPECT_EQ(content.error().kind(), ErrorKind::kCorrupt);
  }
}

}  // namespace
}  // namespace scriptorium::usage
