#include "checkpoint/migrate/state_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

#include "tests/support/temp_dir.h"

namespace scriptorium::checkpoint {
namespace {

MoveState full_state() {
  MoveState state;
  state.job = "4712";
  state.display_id = "4711_2";
  state.uid = 1001;
  state.from = "n1";
  state.to = "n2";
  state.drained = "n1";
  state.restarts = 3;
  state.lost_seconds = 60;
  state.method = MoveMethod::kRunApp;
  state.stage = MoveStage::kReleased;
  state.begun = {5 * kSecond};
  state.stage_begun = {6 * kSecond};
  state.excluded_nodes = "n9";
  state.required_nodes = "n[1-2]";
  state.priority = "77";
  state.has_temporary_changes = true;
  return state;
}

class StateFolderTest : public testing::Test {
 protected:
  test::TempDir dir_;
  std::string path_ = dir_.path() + "/a/state";
  Result<StateFolder> folder_ = StateFolder::open(path_);
};

TEST_F(StateFolderTest, KeepsAMoveWithAllThatItHas) {
  ASSERT_TRUE(folder_);
  ASSERT_TRUE(folder_->put(full_state()));
  const auto read = folder_->move("4712");
  ASSERT_TRUE(read && *read);
  EXPECT_EQ(move_state_text(**read), move_state_text(full_state()));
  EXPECT_EQ((*read)->stage, MoveStage::kReleased);
  EXPECT_EQ((*read)->method, MoveMethod::kRunApp);
  EXPECT_EQ(folder_->moves().size(), 1U);
  struct stat file{};
  ASSERT_EQ(::stat((path_ + "/job-4712.json").c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777U, 0600U);
  folder_->remove_move("4712");
  EXPECT_FALSE(*folder_->move("4712"));
  EXPECT_TRUE(folder_->moves().empty());
}

TEST_F(StateFolderTest, KeepsADrain) {
  ASSERT_TRUE(folder_->put(DrainState{"n1", "new fan"}));
  EXPECT_EQ((*folder_->drain("n1"))->reason, "new fan");
  EXPECT_FALSE(*folder_->drain("n2"));
  EXPECT_TRUE(folder_->moves().empty());
  folder_->remove_drain("n1");
  EXPECT_FALSE(*folder_->drain("n1"));
}

TEST_F(StateFolderTest, OneProcessAtATimeWorksOnAJob) {
  auto first = folder_->lock("job-1");
  ASSERT_TRUE(first);
  const auto second = folder_->lock("job-1");
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message().find("another scriptorium-migrate"), std::string::npos);
  EXPECT_TRUE(folder_->lock("job-2"));
  first->reset();
  EXPECT_TRUE(folder_->lock("job-1"));
}

TEST_F(StateFolderTest, SaysWhichFileIsDamaged) {
  std::ofstream(path_ + "/job-1.json") << "{\"format\": 1}";
  std::ofstream(path_ + "/job-2.json") << "{\"format\": 2}";
  std::ofstream(path_ + "/job-3.json") << "not JSON";
  for (const char* job : {"1", "2", "3"}) {
    const auto read = folder_->move(job);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().kind(), ErrorKind::kCorrupt);
    EXPECT_NE(read.error().message().find(path_), std::string::npos);
  }
}

TEST(StateFolderPathTest, IsTheUsersOwn) {
  EXPECT_EQ(state_folder_path("/x", "/home/alice", true), "/x/scriptorium-migrate");
  EXPECT_EQ(state_folder_path("", "/root", true), "/var/lib/scriptorium-migrate");
  EXPECT_EQ(state_folder_path("relative", "/home/alice", false),
            "/home/alice/.local/state/scriptorium-migrate");
  EXPECT_EQ(state_folder_path("", "", false), "");
}

}  // namespace
}  // namespace scriptorium::checkpoint
