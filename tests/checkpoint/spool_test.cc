#include "checkpoint/spool.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

namespace scriptorium::checkpoint {
namespace {

using std::chrono::milliseconds;

// The folder, and the time as the test sets it.
class SpoolTest : public testing::Test {
 protected:
  SpoolTest() : spool_(Spool::open(folder_.path_to("spool")).value()) {}

  std::vector<SpoolRequest> take(int ms) { return spool_.take(begin_ + milliseconds(ms)); }
  std::string path(const std::string& file) const { return folder_.path_to("spool/" + file); }
  bool is_there(const std::string& file) const {
    struct stat found{};
    return ::lstat(path(file).c_str(), &found) == 0;
  }
  // What a second without a change makes of a file.
  std::optional<SpoolRequest> take_later() {
    take(0);
    auto taken = take(1000);
    return taken.size() == 1 ? std::optional(taken.front()) : std::nullopt;
  }

  test::TempDir folder_;
  SteadyTime begin_{std::chrono::hours(1)};
  Spool spool_;
};

TEST_F(SpoolTest, FolderIsStickyAndForEverybody) {
  struct stat found{};
  ASSERT_EQ(::stat(folder_.path_to("spool").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 01777U);
}

TEST_F(SpoolTest, RefusesAFolderWhoseFilesOthersCanReplace) {
  const std::string open = folder_.make_directory("open");
  ::chmod(open.c_str(), 0777);
  EXPECT_EQ(Spool::open(open).error().kind(), ErrorKind::kInvalidConfig);
  ::chmod(open.c_str(), 01777);
  EXPECT_TRUE(Spool::open(open));
  const std::string link = folder_.path_to("link");
  ASSERT_EQ(::symlink(open.c_str(), link.c_str()), 0);
  EXPECT_FALSE(Spool::open(link));
}

TEST_F(SpoolTest, TakesARequestWhenItIsClosedAndRemovesIt) {
  take(0);
  folder_.write("spool/34.checkpoint", "1980\n/home/alice/ck\n");
  const auto taken = take(1);
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].name.job, "34");
  EXPECT_EQ(taken[0].uid, ::geteuid());
  EXPECT_EQ(taken[0].text, "1980\n/home/alice/ck\n");
  EXPECT_FALSE(is_there("34.checkpoint"));
  EXPECT_TRUE(take(2000).empty());
}

TEST_F(SpoolTest, WaitsForTheRestOfARequest) {
  take(0);
  const UniqueFd file(::open(path("34.checkpoint").c_str(), O_WRONLY | O_CREAT, 0644));
  ASSERT_TRUE(write_fd(file.get(), "1980\n"));
  EXPECT_TRUE(take(1).empty());
  EXPECT_TRUE(take(900).empty());
  ASSERT_TRUE(write_fd(file.get(), "/home/al"));
  EXPECT_TRUE(take(1800).empty()) << "it has changed 900 ms after the last look";
  EXPECT_EQ(spool_.next_take(), begin_ + milliseconds(2800));
  ASSERT_TRUE(write_fd(file.get(), "ice\n"));
  EXPECT_TRUE(take(2700).empty());
  const auto taken = take(3700);
  ASSERT_EQ(taken.size(), 1U) << "unchanged for a second, though never closed";
  EXPECT_EQ(taken[0].text, "1980\n/home/alice\n");
}

TEST_F(SpoolTest, WaitsForTheSecondOfTwoWritesThatEachCloseTheFile) {
  take(0);
  folder_.write("spool/34.checkpoint", "1980\n");
  EXPECT_TRUE(take(1).empty());
  folder_.write("spool/34.checkpoint", "1980\n/home/alice\n");
  EXPECT_EQ(take(2).size(), 1U);
}

TEST_F(SpoolTest, FindsRequestsThatWereThereBeforeIt) {
  folder_.write("spool/34.resume", "/home/alice\n");
  Spool later = *Spool::open(folder_.path_to("spool"));
  EXPECT_TRUE(later.take(begin_).empty());
  EXPECT_EQ(later.take(begin_ + milliseconds(1000)).size(), 1U);
}

TEST_F(SpoolTest, RefusesWhatIsNotAFileOfOneOwner) {
  const std::string secret = folder_.write("secret", "1980\n/home/alice\n");
  ASSERT_EQ(::symlink(secret.c_str(), path("1.checkpoint").c_str()), 0);
  EXPECT_EQ(take_later()->problem, "it is a link");
  ASSERT_EQ(::link(secret.c_str(), path("2.checkpoint").c_str()), 0);
  EXPECT_EQ(take_later()->problem, "it has several names");
  ASSERT_EQ(::mkfifo(path("3.checkpoint").c_str(), 0666), 0);
  EXPECT_EQ(take_later()->problem, "it is not a regular file");
  folder_.write("spool/4.checkpoint", std::string(4097, 'x'));
  EXPECT_EQ(take_later()->problem, "it is larger than 4 KiB");
  folder_.write("spool/*.checkpoint", "1980\n/home/alice\n");
  EXPECT_EQ(take_later()->problem, "its name is not a job's id");
  for (const char* file : {"1.checkpoint", "2.checkpoint", "3.checkpoint", "4.checkpoint"})
    EXPECT_FALSE(is_there(file)) << file;
  EXPECT_EQ(*read_file(secret), "1980\n/home/alice\n");
}

TEST_F(SpoolTest, LeavesFoldersAndOtherFilesWhereTheyAre) {
  folder_.make_directory("spool/5.checkpoint");
  folder_.write("spool/notes.txt", "hello\n");
  take(0);
  EXPECT_EQ(take(1000).size(), 1U) << "the folder is reported once";
  EXPECT_TRUE(take(5000).empty());
  EXPECT_TRUE(is_there("5.checkpoint"));
  EXPECT_TRUE(is_there("notes.txt"));
}

TEST_F(SpoolTest, TakesMoreFilesThanItRemembersAtOnce) {
  constexpr int kFiles = 10'050;
  for (int i = 0; i < kFiles; ++i) {
    const UniqueFd file(
        ::open(path(std::to_string(i) + ".resume").c_str(), O_WRONLY | O_CREAT, 0644));
    ASSERT_TRUE(file);
  }
  std::size_t taken = 0;
  for (int ms = 0; ms <= 10'000; ms += 1000) taken += take(ms).size();
  EXPECT_EQ(taken, static_cast<std::size_t>(kFiles));
}

}  // namespace
}  // namespace scriptorium::checkpoint
