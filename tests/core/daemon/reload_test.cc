#include "core/daemon/reload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace scriptorium {
namespace {

using testing::IsEmpty;
using testing::UnorderedElementsAre;

TEST(ReloadTest, NamesTheKeyThatCannotChangeWhileTheDaemonRuns) {
  const CoreConfig running;
  EXPECT_EQ(changed_fixed_key(running, running), std::nullopt);
  CoreConfig wanted = running;
  wanted.user_share_percent = 7;
  EXPECT_EQ(changed_fixed_key(running, wanted), "user_share_percent");
  wanted.cluster = "other";
  EXPECT_EQ(changed_fixed_key(running, wanted), "cluster") << "the first one only";
}

TEST(ReloadTest, LogLevelPluginsAndPatienceMayChange) {
  CoreConfig wanted;
  wanted.log_level = "debug";
  wanted.shutdown_seconds = 1;
  wanted.plugin_dirs = {"/plugins"};
  EXPECT_EQ(changed_fixed_key(CoreConfig{}, wanted), std::nullopt);
}

TEST(ReloadTest, OnlyAnInstanceOfTheSameNameAndConfigurationKeepsRunning) {
  const std::vector<InstanceVersion> running{{"kept", "v1"}, {"changed", "v1"}, {"removed", "v1"}};
  EXPECT_THAT(unchanged_instances(running, {{"kept", "v1"}, {"changed", "v2"}, {"added", "v1"}}),
              UnorderedElementsAre("kept"));
  EXPECT_THAT(unchanged_instances({}, running), IsEmpty());
}

}  // namespace
}  // namespace scriptorium
