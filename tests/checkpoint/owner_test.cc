#include "checkpoint/owner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>

namespace scriptorium::checkpoint {
namespace {

using testing::UnorderedElementsAre;

constexpr int kNumberOfCheckpointRestore = 40;

TEST(OwnerTest, EngineMayTraceOthersOnlyForADumpWhereYamaAsksForIt) {
  for (const char* scope : {"", "0\n"}) {
    EXPECT_THAT(engine_capabilities(EngineUse::kDump, scope),
                UnorderedElementsAre(kNumberOfCheckpointRestore, CAP_SETPCAP));
  }
  EXPECT_THAT(engine_capabilities(EngineUse::kDump, "1\n"),
              UnorderedElementsAre(kNumberOfCheckpointRestore, CAP_SETPCAP, CAP_SYS_PTRACE));
}

// A user can write into an image which capabilities its process keeps.
TEST(OwnerTest, EngineMayNeverTraceOthersForARestore) {
  for (const char* scope : {"", "0\n", "1\n", "2\n"}) {
    EXPECT_THAT(engine_capabilities(EngineUse::kRestore, scope),
                UnorderedElementsAre(kNumberOfCheckpointRestore, CAP_SETPCAP));
  }
}

TEST(OwnerTest, RootIsNotAJobsOwner) {
  const auto became = become_owner({.name = "root"}, EngineUse::kDump);
  ASSERT_FALSE(became);
  EXPECT_EQ(became.error().message(), "root's jobs are not saved");
}

}  // namespace
}  // namespace scriptorium::checkpoint
