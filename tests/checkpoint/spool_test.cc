#include "checkpoint/spool.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
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
  std::vector<SpoolRequest> take_at_start() const {
    return Spool::open(folder_.path_to("spool"))->take(begin_);
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

TEST_F(SpoolTest, TakesARequestWhenItIsClosedAndFreesItsName) {
  take(0);
  folder_.write("spool/34.checkpoint", "1980\n/home/alice/ck\n");
  const auto taken = take(1);
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].name.job, "34");
  EXPECT_EQ(taken[0].stat.owner, ::geteuid());
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

// Each is what is left when the service ends at that point.
TEST_F(SpoolTest, KeepsWhatWasTakenForItsNextStartUntilItIsBegun) {
  take(0);
  folder_.write("spool/34.checkpoint", "1980\n/home/alice\n");
  const auto taken = take(1);
  ASSERT_EQ(taken.size(), 1U);
  Spool next = *Spool::open(folder_.path_to("spool"));
  const auto found = next.take(begin_);
  ASSERT_EQ(found.size(), 1U) << "at once, as it was complete";
  EXPECT_EQ(found[0].name.job, "34");
  EXPECT_EQ(found[0].text, taken[0].text);
  EXPECT_EQ(found[0].stat.owner, ::geteuid());
  EXPECT_TRUE(next.take(begin_ + milliseconds(5000)).empty()) << "once";

  EXPECT_FALSE(found[0].is_begun);

  UniqueFd begun = next.begin(found[0].kept);
  ASSERT_TRUE(begun);
  EXPECT_FALSE(spool_.begin(taken[0].kept)) << "only one of two begins it";
  EXPECT_TRUE(take_at_start().empty()) << "its process works on it";
  begun.reset();
  const auto interrupted = take_at_start();
  ASSERT_EQ(interrupted.size(), 1U);
  EXPECT_TRUE(interrupted[0].is_begun);
  EXPECT_EQ(interrupted[0].name.job, "34");
  EXPECT_EQ(interrupted[0].text, taken[0].text);
  begun = next.begin(interrupted[0].kept);
  Spool::mark_done(begun.get());
  EXPECT_TRUE(take_at_start().empty());
  begun.reset();
  EXPECT_TRUE(take_at_start().empty()) << "it has its result";
  EXPECT_EQ(::rmdir(path(".accepted").c_str()), 0) << "nothing is left";
}

TEST_F(SpoolTest, WaitsForTheProcessesOfAnEarlierServiceThatServeRequests) {
  take(0);
  for (const char* job : {"34", "35"})
    folder_.write("spool/" + std::string(job) + ".checkpoint", "1980\n/home/alice\n");
  std::vector<UniqueFd> begun;
  for (const SpoolRequest& request : take(1)) {
    begun.push_back(spool_.begin(request.kept));
    if (request.name.job == "34") Spool::mark_done(begun.back().get());
  }
  ASSERT_EQ(begun.size(), 2U);
  Spool next = *Spool::open(folder_.path_to("spool"));
  EXPECT_TRUE(next.take(begin_).empty());
  EXPECT_LE(next.next_take(), begin_ + std::chrono::seconds(1));
  begun.clear();
  const auto interrupted = next.take(begin_ + std::chrono::seconds(1));
  ASSERT_EQ(interrupted.size(), 1U);
  EXPECT_EQ(interrupted[0].name.job, "35");
  EXPECT_EQ(next.next_take(), SteadyTime::max());
}

TEST_F(SpoolTest, RemovesWhatWasTakenWhetherItIsBegunOrNot) {
  take(0);
  for (const bool begins : {false, true}) {
    folder_.write("spool/34.checkpoint", "1980\n/home/alice\n");
    const auto taken = take(1);
    ASSERT_EQ(taken.size(), 1U);
    EXPECT_TRUE(!begins || spool_.begin(taken[0].kept));
    spool_.remove(taken[0].kept);
    EXPECT_TRUE(take_at_start().empty());
  }
}

TEST_F(SpoolTest, ALaterRequestOfTheSameNameDoesNotReplaceOneThatWasTaken) {
  take(0);
  std::vector<std::string> kept;
  for (const char* text : {"1980\n/home/alice\n", "1981\n/home/alice\n"}) {
    folder_.write("spool/34.checkpoint", text);
    const auto taken = take(1);
    ASSERT_EQ(taken.size(), 1U);
    kept.push_back(taken[0].kept);
  }
  EXPECT_TRUE(spool_.begin(kept[1]));
  EXPECT_TRUE(spool_.begin(kept[0]));
}

TEST_F(SpoolTest, FindsTheOldestOfThoseThatWereTakenFirst) {
  take(0);
  for (const char* job : {"3", "1", "2"}) {
    const std::string file = std::string("spool/") + job + ".resume";
    folder_.write(file, "/home/alice\n");
    const timespec written{1000 - std::stoi(job), 0};
    const timespec times[]{written, written};  // NOLINT(modernize-avoid-c-arrays)
    ASSERT_EQ(::utimensat(AT_FDCWD, folder_.path_to(file).c_str(), times, 0), 0);
  }
  ASSERT_EQ(take(1).size(), 3U);
  std::string order;
  for (const SpoolRequest& request : take_at_start()) order += request.name.job;
  EXPECT_EQ(order, "321");
}

TEST_F(SpoolTest, TakesWhatItCannotKeep) {
  take(0);
  ASSERT_EQ(::rmdir(path(".accepted").c_str()), 0);
  folder_.write("spool/34.checkpoint", "1980\n/home/alice\n");
  const auto taken = take(1);
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].problem, "");
  EXPECT_EQ(taken[0].text, "1980\n/home/alice\n");
  EXPECT_EQ(taken[0].kept, "");
  EXPECT_FALSE(is_there("34.checkpoint"));
}

TEST_F(SpoolTest, RefusesToKeepRequestsWhereOthersCouldChangeThem) {
  const std::string folder = folder_.make_directory("planted");
  ::chmod(folder.c_str(), 01777);
  ASSERT_EQ(::mkdir((folder + "/.accepted").c_str(), 0700), 0);
  ::chmod((folder + "/.accepted").c_str(), 0770);
  EXPECT_EQ(Spool::open(folder).error().kind(), ErrorKind::kInvalidConfig);
  ASSERT_EQ(::rmdir((folder + "/.accepted").c_str()), 0);
  ASSERT_EQ(::symlink("/tmp", (folder + "/.accepted").c_str()), 0);
  EXPECT_EQ(Spool::open(folder).error().kind(), ErrorKind::kInvalidConfig);
}

TEST_F(SpoolTest, TriesAgainWhenItHasTooManyFilesOpen) {
  take(0);
  folder_.write("spool/34.checkpoint", "1980\n/home/alice\n");
  struct rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const struct rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool took = !take(1).empty() || !take(1500).empty();
  const auto next = spool_.next_take();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(took);
  EXPECT_EQ(next, begin_ + milliseconds(2500)) << "not at once, and not never";
  EXPECT_EQ(take(2500).size(), 1U);
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
  EXPECT_TRUE(take(1000).empty()) << "a folder is not a request";
  EXPECT_TRUE(take(5000).empty());
  EXPECT_TRUE(is_there("5.checkpoint"));
  EXPECT_TRUE(is_there("notes.txt"));
}

TEST_F(SpoolTest, TakesTenThousandFilesThatWereThereBeforeIt) {
  constexpr int kFiles = 10'000;
  for (int i = 0; i < kFiles; ++i) {
    const UniqueFd file(
        ::open(path(std::to_string(i) + ".resume").c_str(), O_WRONLY | O_CREAT, 0644));
    ASSERT_TRUE(file);
  }
  std::size_t taken = 0;
  std::size_t refused = 0;
  for (const int ms : {0, 1000, 2000}) {
    for (const SpoolRequest& request : take(ms)) {
      ++taken;
      refused += request.problem.empty() ? 0 : 1;
    }
  }
  EXPECT_EQ(taken, static_cast<std::size_t>(kFiles));
  EXPECT_EQ(refused, 9000U) << "of one user who writes half requests";
  EXPECT_EQ(spool_.next_take(), SteadyTime::max());
}

}  // namespace
}  // namespace scriptorium::checkpoint
