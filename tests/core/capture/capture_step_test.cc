#include "core/capture/capture.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/core/capture/toy_spool.h"
#include "tests/support/fake_clock.h"
#include "tests/support/recording_logger.h"

namespace scriptorium {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;

// Notes which files and directories are opened.
class WatchedAccess final : public SpoolAccess {
 public:
  WatchedAccess(std::unique_ptr<SpoolAccess> access, std::vector<std::string>& opened)
      : access_(std::move(access)), opened_(opened) {}

  const std::string& root() const override { return access_->root(); }
  Result<FileStat> stat(const std::string& path) override { return access_->stat(path); }
  Result<std::vector<SpoolName>> list(const std::string& path) override {
    return access_->list(path);
  }
  Result<UniqueFd> open(const std::string& path) override {
    opened_.push_back(path);
    return access_->open(path);
  }
  Result<std::vector<OpenedName>> list_open(const std::string& path) override {
    opened_.push_back(path);
    return access_->list_open(path);
  }
  int inotify_fd() const override { return access_->inotify_fd(); }
  int fanotify_fd() const override { return access_->fanotify_fd(); }
  Result<int> watch(const std::string& path, std::uint32_t mask) override {
    return access_->watch(path, mask);
  }
  void unwatch(int number) override { access_->unwatch(number); }
  Result<void> mark() override { return access_->mark(); }
  Result<void> leave_out(const std::string& directory) override {
    return access_->leave_out(directory);
  }
  void leave_nothing_out() override { access_->leave_nothing_out(); }

 private:
  const std::unique_ptr<SpoolAccess> access_;
  std::vector<std::string>& opened_;
};

// A capture without a thread, which goes by steps and by a clock of the test's.
class CaptureStepTest : public testing::Test {
 protected:
  void SetUp() override { start(); }
  void TearDown() override {
    capture_.reset();
    journal_.reset();
  }

  void start() {
    auto journal = Journal::open({.directory = state_.path()}, log_, system_clock());
    ASSERT_TRUE(journal) << journal.error().message();
    journal_ = *std::move(journal);
    SourceConfig common;
    common.plugin = "toy";
    common.capture = "scan";
    common.rescan_seconds = 1;
    auto access = open_direct_access(spool_.root(), {false, false});
    ASSERT_TRUE(access) << access.error().message();
    access->access = std::make_unique<WatchedAccess>(std::move(access->access), opened_);
    capture_ = std::make_unique<SpoolCapture>(
        CaptureOptions{.name = "toy", .common = common, .origin = {"lab", "toy", "ctl1"}}, adapter_,
        *std::move(access), *journal_, log_, clock_);
    capture_->begin();
  }
  void restart() {
    TearDown();
    opened_.clear();
    start();
  }
  // Until there is nothing to do. A scan lists what is there when it begins.
  void settle() {
    while (capture_->step({}).most == milliseconds{0}) {
    }
    ASSERT_TRUE(journal_->flush(std::chrono::steady_clock::now() + seconds{60}));
  }
  void rescan() {
    capture_->rescan();
    settle();
  }
  // As if rules for secrets had made other events of the entries than the present ones would.
  void rename_events(const std::string& event_id) {
    for (CaptureMark mark : journal_->marks("toy")) {
      mark.event_id = event_id;
      journal_->set_mark("toy", std::move(mark));
    }
    ASSERT_TRUE(journal_->flush(std::chrono::steady_clock::now() + seconds{60}));
  }
  // Other inodes, the same bytes and modification times, as `cp -a` leaves them.
  void copy_spool() const {
    namespace fs = std::filesystem;
    const std::string old = spool_.root() + ".old";
    fs::rename(spool_.root(), old);
    fs::copy(old, spool_.root(), fs::copy_options::recursive);
    for (const auto& entry : fs::recursive_directory_iterator(old)) {
      struct stat state{};
      ASSERT_EQ(::stat(entry.path().c_str(), &state), 0);
      const fs::path copy = spool_.root() / fs::relative(entry.path(), old);
      const timespec times[] = {state.st_atim, state.st_mtim};
      ASSERT_EQ(::utimensat(AT_FDCWD, copy.c_str(), times, 0), 0);
    }
  }
  std::string key(int id) const { return spool_.entry(id).substr(spool_.root().size() + 1); }
  const CaptureRecord* record(int id) const { return capture_->table().record(key(id)); }

  test::RecordingLogger log_;
  test::FakeClock clock_;
  test::TempDir state_;
  test::ToySpool spool_;
  test::ToyAdapter adapter_{spool_.root()};
  std::vector<std::string> opened_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<SpoolCapture> capture_;
};

TEST_F(CaptureStepTest, AfterARestartAnUnchangedEntryIsKnownWithoutBeingOpened) {
  for (int id = 1; id <= 5; ++id) spool_.submit(id);
  rescan();
  EXPECT_EQ(capture_->status().captured, 5U);
  EXPECT_THAT(opened_, SizeIs(5));

  restart();
  settle();
  EXPECT_THAT(opened_, IsEmpty());
  EXPECT_EQ(capture_->status().captured + capture_->status().duplicates, 0U);
  EXPECT_EQ(capture_->table().entries().records(), 5U);
  EXPECT_EQ(capture_->status().gaps->highest, 5U);
}

TEST_F(CaptureStepTest, AfterARestartAChangedEntryIsOpenedAndNoOther) {
  for (int id = 1; id <= 5; ++id) spool_.submit(id);
  rescan();
  TearDown();
  spool_.remove(3);
  spool_.make_entry(3);
  test::ToySpool::write_file(spool_.entry(3) + "/environment", std::string("A=1\0", 4));
  test::ToySpool::write_file(spool_.entry(3) + "/script", std::string("another job\0", 12));
  opened_.clear();
  start();
  settle();
  EXPECT_THAT(opened_, UnorderedElementsAre(key(3)));
  EXPECT_EQ(capture_->status().captured, 1U);
  EXPECT_THAT(journal_->marks("toy"), SizeIs(5));
}

TEST_F(CaptureStepTest, WhatIsKnownByItsMarkAloneIsStillFollowed) {
  for (int id = 1; id <= 3; ++id) spool_.submit(id);
  rescan();
  restart();
  settle();
  spool_.remove(1);
  test::ToySpool::write_file(spool_.entry(2) + "/script", std::string("a longer script\0", 16));
  rescan();
  rescan();
  EXPECT_EQ(record(1), nullptr);
  EXPECT_THAT(opened_, UnorderedElementsAre(key(2)));
  EXPECT_EQ(capture_->status().captured, 1U);
  EXPECT_EQ(capture_->status().missed.size(), 0U);
  EXPECT_THAT(journal_->marks("toy"), SizeIs(2));
}

TEST_F(CaptureStepTest, AMovedSpoolIsRecognisedWhateverEventsWereMadeOfIt) {
  for (int id = 1; id <= 3; ++id) spool_.submit(id);
  rescan();
  const std::string sent(64, 'e');
  rename_events(sent);
  const auto before = journal_->marks("toy");
  TearDown();
  copy_spool();
  opened_.clear();
  start();
  settle();
  EXPECT_THAT(opened_, SizeIs(3)) << "their files are not those of the marks";
  EXPECT_EQ(capture_->status().captured, 0U);
  EXPECT_EQ(capture_->status().duplicates, 3U);
  const auto marks = journal_->marks("toy");
  ASSERT_THAT(marks, SizeIs(3));
  for (std::size_t i = 0; i < marks.size(); ++i) {
    EXPECT_NE(marks[i].identity.inode, before[i].identity.inode);
    EXPECT_EQ(marks[i].event_id, sent);
    EXPECT_EQ(marks[i].capture_key, before[i].capture_key);
  }
  restart();
  settle();
  EXPECT_THAT(opened_, IsEmpty()) << "by the marks that the copy has now";
}

TEST_F(CaptureStepTest, WhatGrowsAfterARestartSupersedesTheEventThatWasSent) {
  spool_.make_entry(7);
  const std::string half = "#!/bin/sh\nhalf";
  test::ToySpool::write_file(spool_.entry(7) + "/script", half);
  rescan();
  for (int minute = 0; minute < 60 && capture_->status().incomplete == 0; ++minute) {
    clock_.advance(seconds{60});
    settle();
  }
  ASSERT_EQ(capture_->status().incomplete, 1U);
  const std::string sent(64, 'e');
  rename_events(sent);
  const auto sink = journal_->register_sink("sink", {"*"});
  ASSERT_TRUE(sink);
  TearDown();
  test::ToySpool::write_file(spool_.entry(7) + "/environment", std::string("A=1\0", 4));
  test::ToySpool::write_file(spool_.entry(7) + "/script", half + " and whole" + '\0');
  start();
  settle();
  ASSERT_TRUE(journal_->register_sink("sink", {"*"}));
  EXPECT_EQ(capture_->status().captured, 1U);
  const auto items = journal_->read(*sink, 0, 10, 1U << 20);
  ASSERT_TRUE(items);
  ASSERT_THAT(*items, SizeIs(2));
  EXPECT_EQ((*items)[1].event->supersedes, sent);
  EXPECT_TRUE((*items)[1].event->complete);
}

TEST_F(CaptureStepTest, AnIdleSpoolLeavesNothingToDoUntilTheNextScan) {
  settle();
  const auto scans = capture_->status().scans;
  EXPECT_GT(capture_->step({}).most, milliseconds{900});
  EXPECT_EQ(capture_->status().scans, scans);
  clock_.advance(seconds{1});
  capture_->step({});
  EXPECT_EQ(capture_->status().scans, scans + 1);
}

TEST_F(CaptureStepTest, AnEntryThatIsNeverWholeIsTakenWhenItsTimeIsUp) {
  spool_.make_entry(7);
  test::ToySpool::write_file(spool_.entry(7) + "/script", "#!/bin/sh\nhalf");
  rescan();
  for (int minute = 0; minute < 60 && capture_->status().incomplete == 0; ++minute) {
    EXPECT_EQ(capture_->status().pending, 1U);
    clock_.advance(seconds{60});
    settle();
  }
  EXPECT_EQ(capture_->status().incomplete, 1U);
  EXPECT_EQ(capture_->status().pending, 0U);
}

TEST_F(CaptureStepTest, ALostSpoolIsSearchedForLessAndLessOftenAndFound) {
  spool_.submit(1);
  rescan();
  const std::string away = spool_.root() + ".away";
  ASSERT_EQ(::rename(spool_.root().c_str(), away.c_str()), 0);
  rescan();
  EXPECT_FALSE(capture_->status().spool_there);
  const auto first = capture_->step({}).most;
  clock_.advance(seconds{5});
  capture_->step({});
  EXPECT_GE(capture_->step({}).most, first);
  ASSERT_EQ(::rename(away.c_str(), spool_.root().c_str()), 0);
  clock_.advance(seconds{2});
  settle();
  EXPECT_TRUE(capture_->status().spool_there);
  EXPECT_NE(record(1), nullptr);
  EXPECT_EQ(capture_->status().captured, 1U);
}

}  // namespace
}  // namespace scriptorium
