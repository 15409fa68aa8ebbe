#include "checkpoint/run/save_dir.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temp_dir.h"

namespace scriptorium::checkpoint {
namespace {

class SaveDirTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = folder_.path_to("save/" + name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  bool is_there(const std::string& name) const {
    return std::filesystem::exists(folder_.path_to("save/" + name));
  }

  test::TempDir folder_;
};

TEST_F(SaveDirTest, AStateIsReadAsItWasWritten) {
  const RunState state{.chain = "4_3", .command = "abc", .tries = 2, .has_succeeded = true};
  const RunState read = parse_run_state(run_state_text(state) + "of a later version\n");
  EXPECT_EQ(run_state_text(read), "chain 4_3\ncommand abc\ntries 2\nsucceeded\n");
  EXPECT_EQ(run_state_text(parse_run_state("")), "chain \ncommand \ntries 0\n");
}

TEST(FaultOfImageTest, AnotherNodeIsTriedFirstWhereItMayHelp) {
  for (const char* reason : {"image_damaged", "file_changed", "no_image"})
    EXPECT_TRUE(is_fault_of_image(reason, 0)) << reason;
  for (const char* reason : {"pid_taken", "other_node", "other_cpu", "not_in_job", "timeout", ""})
    EXPECT_FALSE(is_fault_of_image(reason, 4)) << reason;
  for (const char* reason : {"engine", "file_missing"}) {
    EXPECT_FALSE(is_fault_of_image(reason, 0)) << reason;
    EXPECT_TRUE(is_fault_of_image(reason, 1)) << reason;
  }
}

TEST_F(SaveDirTest, IsOnePlaceForOneProcess) {
  auto first = SaveDir::open(folder_.path_to("a/save"));
  ASSERT_TRUE(first) << first.error().message();
  const auto second = SaveDir::open(folder_.path_to("a/../a/save"));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind(), ErrorKind::kTransient);
  first->lock.reset();
  EXPECT_TRUE(SaveDir::open(folder_.path_to("a/save")));
}

TEST_F(SaveDirTest, TheImageBeforeTakesThePlaceOfTheNewest) {
  write("checkpoint/manifest.json", "new");
  write("checkpoint.old/manifest.json", "old");
  const auto dir = SaveDir::open(folder_.path_to("save"));
  ASSERT_TRUE(dir);
  EXPECT_TRUE(dir->use_older_image());
  EXPECT_EQ(dir->read("checkpoint/manifest.json"), "old");
  EXPECT_EQ(dir->read("checkpoint.unusable/manifest.json"), "new");
  EXPECT_FALSE(dir->use_older_image());
  EXPECT_TRUE(dir->has_image());
}

// The service was killed between its two renames.
TEST_F(SaveDirTest, TheImageBeforeIsUsedWhereTheNewestIsMissing) {
  write("checkpoint.old/manifest.json", "old");
  const auto dir = SaveDir::open(folder_.path_to("save"));
  EXPECT_FALSE(dir->has_image());
  EXPECT_TRUE(dir->use_older_image());
  EXPECT_TRUE(dir->has_image());
}

TEST_F(SaveDirTest, RemovesImagesAndNothingElse) {
  write("checkpoint/pages-1.img", "x");
  write("checkpoint.old/pages-1.img", "x");
  for (const char* name : {"checkpoint_ok", "resume_ok", "output", "state", "results/checkpoint"})
    write(name, "x");
  const auto dir = SaveDir::open(folder_.path_to("save"));
  dir->remove_images();
  for (const char* name : {"checkpoint", "checkpoint.old", "checkpoint_ok", "resume_ok"})
    EXPECT_FALSE(is_there(name)) << name;
  for (const char* name : {"output", "state", "results/checkpoint"})
    EXPECT_TRUE(is_there(name)) << name;
}

}  // namespace
}  // namespace scriptorium::checkpoint
