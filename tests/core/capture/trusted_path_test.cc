#include "core/capture/trusted_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

using testing::HasSubstr;

constexpr uid_t kOwner = 54321;
constexpr gid_t kHisGroup = 54322;

// A path that only we may write, asked of somebody who is not root.
class TrustedPathTest : public testing::Test {
 protected:
  TrustedPathTest() { file_ = dir_.write("etc/conf.d/file", "x"); }

  void mode(const std::string& path, mode_t mode) const {
    ASSERT_EQ(::chmod(dir_.path_to(path).c_str(), mode), 0);
  }
  Result<void> check(const std::string& path, bool and_itself = true, uid_t uid = kOwner) const {
    return check_not_writable_by(path, uid, {kHisGroup}, and_itself);
  }

  test::TempDir dir_;
  std::string file_;
};

TEST_F(TrustedPathTest, WhatOnlyOthersMayWriteIsGood) {
  const auto good = check(file_);
  EXPECT_TRUE(good) << good.error().message();
}

TEST_F(TrustedPathTest, NamesThePlaceThatHeMayWrite) {
  mode("etc", 0777);
  const auto bad = check(file_);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().kind(), ErrorKind::kInvalidConfig);
  EXPECT_THAT(bad.error().message(),
              HasSubstr(dir_.path_to("etc") + " can be written by uid 54321"));
}

TEST_F(TrustedPathTest, TheEndCountsOnlyIfAskedFor) {
  mode("etc/conf.d/file", 0666);
  EXPECT_FALSE(check(file_));
  EXPECT_TRUE(check(file_, false));
}

TEST_F(TrustedPathTest, AStickyDirectoryKeepsTheNamesOfOthers) {
  mode("etc", 01777);
  EXPECT_TRUE(check(file_));
}

TEST_F(TrustedPathTest, AnOwnerMayWriteWhateverTheModeSays) {
  mode("etc/conf.d/file", 0400);
  // Who is not root owns the file already.
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(file_.c_str(), kOwner, kHisGroup), 0);
  }
  EXPECT_FALSE(check(file_, true, ::geteuid() == 0 ? kOwner : ::geteuid()));
}

TEST_F(TrustedPathTest, HisGroupCounts) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "SKIPPED: only root can give a file to a group that it is not in";
  mode("etc/conf.d/file", 0660);
  EXPECT_TRUE(check(file_));
  ASSERT_EQ(::chown(file_.c_str(), 0, kHisGroup), 0);
  EXPECT_FALSE(check(file_));
}

TEST_F(TrustedPathTest, EveryDirectoryThatALinkLeadsThroughCounts) {
  dir_.write("open/real/file", "y");
  ASSERT_EQ(::symlink("../open/real", dir_.path_to("etc/link").c_str()), 0);
  ASSERT_EQ(::symlink(dir_.path_to("open/real").c_str(), dir_.path_to("etc/absolute").c_str()), 0);
  EXPECT_TRUE(check(dir_.path_to("etc/link/file")));
  mode("open", 0777);
  EXPECT_FALSE(check(dir_.path_to("etc/link/file")));
  EXPECT_FALSE(check(dir_.path_to("etc/absolute/file")));
  EXPECT_TRUE(check(file_)) << "which does not lead through there";
}

TEST_F(TrustedPathTest, ALoopOfLinksEnds) {
  ASSERT_EQ(::symlink("loop", dir_.path_to("etc/loop").c_str()), 0);
  EXPECT_FALSE(check(dir_.path_to("etc/loop/file")));
}

TEST_F(TrustedPathTest, WhatIsNotThereIsSaid) {
  EXPECT_EQ(check(dir_.path_to("none")).error().kind(), ErrorKind::kVanished);
}

}  // namespace
}  // namespace scriptorium
