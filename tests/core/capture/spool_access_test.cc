#include "core/capture/spool_access.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

class SpoolAccessTest : public testing::Test {
 protected:
  SpoolAccessTest() {
    dir_.write("spool/hash.1/job.1/script", "x");
    dir_.write("secret", "outside");
    EXPECT_EQ(::symlink("../secret", dir_.path_to("spool/link").c_str()), 0);
    EXPECT_EQ(::symlink("..", dir_.path_to("spool/up").c_str()), 0);
    auto opened = open_direct_access(dir_.path_to("spool"), {.inotify = true, .fanotify = false});
    EXPECT_TRUE(opened);
    access_ = std::move(opened->access);
  }

  test::TempDir dir_;
  std::unique_ptr<SpoolAccess> access_;
};

TEST_F(SpoolAccessTest, ReachesNothingOutsideTheSpool) {
  EXPECT_TRUE(access_->open("hash.1/job.1/script"));
  for (const char* path :
       {"../secret", "link", "up/secret", "hash.1/../../secret", "/etc/passwd"}) {
    EXPECT_FALSE(access_->open(path)) << path;
  }
  EXPECT_FALSE(access_->list("up"));
}

TEST_F(SpoolAccessTest, OpensNothingButRegularFilesAndNeverBlocks) {
  ASSERT_EQ(::mkfifo(dir_.path_to("spool/fifo").c_str(), 0600), 0);
  auto fifo = access_->open("fifo");
  ASSERT_FALSE(fifo);
  EXPECT_EQ(fifo.error().kind(), ErrorKind::kPermanent);
  EXPECT_EQ(access_->open("hash.1").error().kind(), ErrorKind::kPermanent);
  EXPECT_EQ(access_->open("none").error().kind(), ErrorKind::kVanished);
}

TEST_F(SpoolAccessTest, ListsWithKindsAndInodes) {
  auto names = access_->list("");
  ASSERT_TRUE(names);
  const auto hash = std::find_if(names->begin(), names->end(),
                                 [](const SpoolName& n) { return n.name == "hash.1"; });
  ASSERT_NE(hash, names->end());
  EXPECT_TRUE(hash->is_directory);
  EXPECT_EQ(hash->inode, access_->stat("hash.1")->inode);
  const auto link =
      std::find_if(names->begin(), names->end(), [](const SpoolName& n) { return n.name == "up"; });
  EXPECT_FALSE(link->is_directory) << "a link to a directory is none";
}

TEST_F(SpoolAccessTest, MissingRootIsSaidAtOnce) {
  auto opened = open_direct_access(dir_.path_to("none"), {});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().kind(), ErrorKind::kVanished);
}

}  // namespace
}  // namespace scriptorium
