#include "core/daemon/state_dir.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

TEST(StateLockTest, SecondOneIsRefusedWithTheOwnersPidUntilTheFirstIsGone) {
  const test::TempDir dir;
  const std::string state = dir.path_to("new/state");
  auto first = lock_state_dir(state);
  ASSERT_TRUE(first) << first.error().message();
  auto second = lock_state_dir(state);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind(), ErrorKind::kExhausted);
  EXPECT_NE(second.error().message().find("process " + std::to_string(::getpid())),
            std::string::npos)
      << second.error().message();
  first->reset();
  EXPECT_TRUE(lock_state_dir(state));
}

TEST(StateLockTest, DirectoryThatCannotBeMadeIsSaid) {
  const test::TempDir dir;
  dir.write("file", "");
  auto lock = lock_state_dir(dir.path_to("file/state"));
  ASSERT_FALSE(lock);
  EXPECT_NE(lock.error().message().find("state_dir"), std::string::npos);
}

}  // namespace
}  // namespace scriptorium
