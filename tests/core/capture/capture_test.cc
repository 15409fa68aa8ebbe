#include "core/capture/capture.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "core/base/file.h"
#include "tests/core/capture/toy_spool.h"
#include "tests/support/capture_fixture.h"
#include "tests/support/event_factory.h"

namespace scriptorium {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::kPatience;
using test::ToySpool;

// The machine's, and as much later as the test says.
class LaterClock final : public Clock {
 public:
  Timestamp now() const override { return system_clock().now(); }
  SteadyTime steady() const override {
    return std::chrono::steady_clock::now() + seconds{passed_.load()};
  }
  void pass(seconds time) { passed_ += time.count(); }

 private:
  std::atomic<seconds::rep> passed_{0};
};

// One capture over a toy spool, with a sink's view of the journal to see what comes out.
class CaptureTest : public test::CaptureFixture {
 protected:
  SourceConfig config() {
    SourceConfig common;
    common.plugin = "toy";
    common.capture = GetParam();
    // One scan after the other, so that no test waits for the next one.
    if (GetParam() == "scan") common.rescan_seconds = 0;
    return common;
  }
  // As config(), and what is not whole is given up an hour after it was first seen.
  SourceConfig impatient() {
    SourceConfig common = config();
    common.incomplete_after_seconds = 3600;
    return common;
  }
  // So many entries have been seen, and then that hour passes.
  void give_up(std::size_t entries) {
    ASSERT_TRUE(eventually([&](const CaptureStatus& s) { return s.pending == entries; }));
    later_.pass(seconds{3600});
    capture_->rescan();  // it sleeps until then
  }

  // False if this machine cannot give the wanted way; the test is then skipped.
  bool start(const SourceConfig& common) {
    auto opened = open_spool(spool_.root(), common);
    if (!opened) return false;
    run(*std::move(opened), common);
    return true;
  }
  void run(OpenedAccess opened, const SourceConfig& common) {
    fanotify_ = opened.access->fanotify_fd();
    adapter_ = std::make_unique<test::ToyAdapter>(spool_.root());
    SpoolCapture::Options options{"toy", common, {"lab", "toy", "ctl1"}, false, false};
    capture_ = std::make_unique<SpoolCapture>(options, *adapter_, std::move(opened), *journal_,
                                              log_, *clock_);
    capture_->start();
  }

  // As a reload does it.
  void change(const SourceConfig& common) {
    capture_->pause();
    auto adapter = std::make_unique<test::ToyAdapter>(spool_.root());
    capture_->change({"toy", common, {"lab", "toy", "ctl1"}, false, false}, *adapter, nullptr);
    adapter_ = std::move(adapter);
    capture_->start();
  }

  // Waits until `count` more events are in the journal; returns them by job id.
  std::multimap<int, std::shared_ptr<const Event>> collect(std::size_t count) {
    std::multimap<int, std::shared_ptr<const Event>> result;
    for (auto& event : collect_events(count)) result.emplace(std::stoi(event->job.id), event);
    return result;
  }

  static void expect_whole(const Event& event, int id) {
    EXPECT_TRUE(event.complete);
    ASSERT_NE(event.file("script"), nullptr);
    EXPECT_EQ(*event.file("script")->bytes, ToySpool::script(id));
    ASSERT_NE(event.file("environment"), nullptr);
    EXPECT_EQ(*event.file("environment")->bytes, std::string("A=1\0", 4));
  }

  ToySpool spool_;
  std::unique_ptr<test::ToyAdapter> adapter_;
  int fanotify_ = -1;  // the capture's; -1 without
  LaterClock later_;
  const Clock* clock_ = &later_;
};

#define START_OR_SKIP(common) \
  if (!start(common)) GTEST_SKIP() << "SKIPPED: " << skip_

TEST_P(CaptureTest, TakesWhatStandsAtTheStart) {
  for (int id = 1; id <= 100; ++id) spool_.submit(id);
  START_OR_SKIP(config());
  const auto events = collect(100);
  for (const auto& [id, event] : events) expect_whole(*event, id);
  EXPECT_EQ(capture_->status().capture_method, GetParam());
}

TEST_P(CaptureTest, ThousandsOfWaitingJobsAreNoCountThatWrapped) {
  constexpr int kWaiting = 1500;
  for (int id = 1; id <= kWaiting; ++id) spool_.submit(id);
  START_OR_SKIP(config());
  collect(kWaiting);
  for (int id = kWaiting + 1; id <= kWaiting + 20; ++id) spool_.submit(id);
  collect(20);
  capture_->rescan();
  ASSERT_TRUE(eventually([](const CaptureStatus& s) { return s.scans >= 2 && s.pending == 0; }));
  const auto gaps = capture_->status().gaps;
  ASSERT_TRUE(gaps);
  EXPECT_EQ(gaps->highest, kWaiting + 20U);
  EXPECT_EQ(gaps->count_changes, 0U);
  EXPECT_EQ(gaps->suspected + gaps->waiting + gaps->confirmed, 0U);
}

TEST_P(CaptureTest, WaitingJobsWhoseFilesCannotBeTakenAreNoCountThatWrappedEither) {
  // They stay pending, and every scan finds them again.
  for (int id = 1; id <= 50; ++id) spool_.make_entry(id);
  spool_.submit(5000);
  START_OR_SKIP(config());
  collect(1);
  for (int scan = 2; scan <= 4; ++scan) {
    capture_->rescan();
    ASSERT_TRUE(eventually(
        [&](const CaptureStatus& s) { return s.scans >= static_cast<std::uint64_t>(scan); }));
  }
  spool_.submit(5001);
  collect(1);
  EXPECT_EQ(capture_->status().gaps->count_changes, 0U);
  EXPECT_EQ(capture_->status().gaps->suspected + capture_->status().gaps->waiting, 0U);
}

// A journal that is filled to its limit by a job of another source.
class FullJournalTest : public CaptureTest {
 protected:
  void fill_journal() {
    TearDown();
    open_journal(1U << 20);
    std::string noise(2U << 20, ' ');
    std::uint64_t state = 1;
    for (char& c : noise)
      c = static_cast<char>((state = state * 6364136223846793005U + 1442695040888963407U) >> 56);
    Journal::Append item{.source = "other", .event = test::make_event("999999", noise)};
    ASSERT_TRUE(journal_->append(std::move(item), {}));
    ASSERT_TRUE(log_.wait_for("JOURNAL_FULL", 1, kPatience));
  }
  // Jobs that wait for room then. True with fanotify, which holds files that are gone: the first
  // half of them are removed.
  bool submit_while_full(int jobs) {
    for (int id = 1; id <= jobs; ++id) spool_.submit(id);
    EXPECT_TRUE(eventually([&](const CaptureStatus& s) {
      return s.waiting_for_room == static_cast<std::uint64_t>(jobs);
    }));
    const bool content = GetParam() == "fanotify";
    for (int id = 1; content && id <= jobs / 2; ++id) spool_.remove(id);
    return content;
  }
  void empty_journal() {
    collect(1);
    journal_->settle(sink_, {{.sequence = after_, .outcome = Outcome::kAcknowledged}}, after_);
    ASSERT_TRUE(journal_->flush(std::chrono::steady_clock::now() + kPatience));
  }
};

TEST_P(FullJournalTest, NotificationsAreReadAndWhatIsOursIsTakenOnceThereIsRoom) {
  constexpr int kJobs = 40;
  fill_journal();
  START_OR_SKIP(config());
  if (submit_while_full(kJobs)) {
    // What is gone by now is held; and nothing is left in the kernel's queue, where it would keep
    // files from being freed.
    int queued = 1;
    ASSERT_TRUE(eventually([&](const CaptureStatus&) {
      return ::ioctl(fanotify_, FIONREAD, &queued) == 0 && queued == 0;
    }));
  }
  EXPECT_EQ(capture_->status().captured, 0U);
  empty_journal();
  for (const auto& [id, event] : collect(kJobs)) expect_whole(*event, id);
  ASSERT_TRUE(eventually([](const CaptureStatus& s) {
    return s.waiting_for_room == 0 && s.pending == 0 && s.captured == kJobs;
  }));
  EXPECT_EQ(missed(), 0U);
  EXPECT_EQ(capture_->status().gaps->suspected + capture_->status().gaps->count_changes, 0U);
}

TEST_P(FullJournalTest, AReloadKeepsWhatWaitsForRoomAndIsStillCalled) {
  constexpr int kJobs = 40;
  fill_journal();
  START_OR_SKIP(config());
  submit_while_full(kJobs);
  change(config());
  EXPECT_EQ(capture_->status().waiting_for_room, std::uint64_t{kJobs});
  empty_journal();
  for (const auto& [id, event] : collect(kJobs)) expect_whole(*event, id);
  EXPECT_EQ(missed(), 0U);
}

TEST_P(FullJournalTest, WhatIsTooMuchToBeHeldIsReadAgainFromTheSpoolOrCountedAsMissed) {
  constexpr int kJobs = 12;
  const std::string big(7U << 19, 'x');  // so all of them are more than is held
  fill_journal();
  START_OR_SKIP(config());
  for (int id = 1; id <= kJobs; ++id) {
    spool_.make_entry(id);
    ToySpool::write_file(spool_.entry(id) + "/environment", std::string("A=1\0", 4));
    ToySpool::write_file(spool_.entry(id) + "/script", big + '\0');
  }
  ASSERT_TRUE(eventually([](const CaptureStatus& s) { return s.waiting_for_room == kJobs; }));
  EXPECT_LE(capture_->status().pending_bytes, 36U << 20);
  // Which of them are not held changes with every offer, so all of them go.
  const bool content = GetParam() == "fanotify";
  for (int id = 1; content && id <= kJobs; ++id) spool_.remove(id);
  empty_journal();
  ASSERT_TRUE(eventually([&](const CaptureStatus& s) {
    return s.pending == 0 && s.captured + missed() == std::uint64_t{kJobs};
  }));
  for (const auto& [id, event] : collect(capture_->status().captured))
    EXPECT_EQ(*event->file("script")->bytes, big) << id;
  if (!content) {
    EXPECT_EQ(missed(), 0U);
    return;
  }
  EXPECT_GE(missed(), 1U) << "not all of them can be held";
  EXPECT_THAT(capture_->status().missed, testing::ElementsAre(testing::Key("journal full")));
}

INSTANTIATE_TEST_SUITE_P(Ways, FullJournalTest, testing::Values("fanotify", "inotify", "scan"),
                         [](const auto& info) { return info.param; });

TEST_P(CaptureTest, ALeaseThatMakesTheKernelDropNotificationsIsNoWantOfDescriptors) {
  if (GetParam() != "fanotify") GTEST_SKIP() << "only fanotify opens files";
  constexpr int kFiles = 20;
  auto opened = open_direct_access(spool_.root(), SpoolCapture::wanted(config()));
  ASSERT_TRUE(opened);
  if (!opened->fanotify_problem.empty()) GTEST_SKIP() << "SKIPPED: " << opened->fanotify_problem;
  // Notifications of a user's files, each of which then has a lease of his: the kernel cannot open
  // them any more.
  std::vector<UniqueFd> leased;
  for (int i = 0; i < kFiles; ++i) {
    const std::string file = spool_.root() + "/../leased" + std::to_string(i);
    ToySpool::write_file(file, "x");
    leased.emplace_back(::open(file.c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(::fcntl(leased.back().get(), F_SETSIG, SIGURG), 0);  // which nobody heeds
    // A daemon of another test on this file system may have it open at the moment.
    const SteadyTime deadline = std::chrono::steady_clock::now() + kPatience;
    int answer = -1;
    while ((answer = ::fcntl(leased.back().get(), F_SETLEASE, F_WRLCK)) != 0 && errno == EAGAIN &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    ASSERT_EQ(answer, 0) << std::strerror(errno);
    spool_.submit(i + 1);
  }
  run(*std::move(opened), config());
  collect(kFiles);
  ASSERT_TRUE(
      eventually([](const CaptureStatus& s) { return s.captured == kFiles && s.pending == 0; }));
  EXPECT_EQ(capture_->status().overflows, 0U);
  EXPECT_EQ(capture_->status().scans, 1U);
  EXPECT_FALSE(log_.has("CAPTURE_DESCRIPTORS_USED_UP"));
}

TEST_P(CaptureTest, DescriptorsThatRunOutAgainAndAgainBringOneScanAMinute) {
  if (GetParam() != "fanotify") GTEST_SKIP() << "only fanotify opens files";
  constexpr int kRounds = 3;
  constexpr int kFiles = 5;
  START_OR_SKIP(config());
  spool_.submit(1);
  collect(1);
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  std::vector<UniqueFd> files;
  for (int i = 0; i < kRounds * kFiles; ++i)
    files.emplace_back(::open((spool_.root() + "/file" + std::to_string(i)).c_str(),
                              O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_TRUE(files.back());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const auto drained = [&] {
    int queued = 1;
    return eventually([&](const CaptureStatus&) {
      return ::ioctl(fanotify_, FIONREAD, &queued) == 0 && queued == 0;
    });
  };
  ASSERT_TRUE(drained());
  const UniqueFd lowest_free(::dup(null.get()));
  const rlimit none{static_cast<rlim_t>(lowest_free.get()) + 1, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  for (int i = 0; i < kRounds * kFiles; ++i) {
    // Closes the file and leaves its number in use.
    ::dup2(null.get(), files[static_cast<std::size_t>(i)].get());
    if (i % kFiles == kFiles - 1) {
      EXPECT_TRUE(drained());
    }
  }
  const bool noticed =
      static_cast<bool>(eventually([](const CaptureStatus& s) { return s.overflows > 0; }));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(noticed);
  EXPECT_EQ(capture_->status().overflows, 1U);
  EXPECT_EQ(log_.count("CAPTURE_DESCRIPTORS_USED_UP"), 1U);
  spool_.submit(2);
  EXPECT_EQ(collect(1).begin()->first, 2);
}

TEST_P(CaptureTest, TakesEntriesThatComeLaterInHashDirectoriesThatDidNotExist) {
  SourceConfig common = config();
  if (GetParam() == "scan") common.rescan_seconds = 1;  // it sleeps in between
  START_OR_SKIP(common);
  ASSERT_TRUE(eventually([](const CaptureStatus& s) { return s.scans >= 1; }));
  for (int id = 1; id <= 50; ++id) spool_.submit(id);
  for (const auto& [id, event] : collect(50)) expect_whole(*event, id);
  EXPECT_EQ(missed(), 0U);
}

TEST_P(CaptureTest, EachEntryIsOneEventAlsoAfterARestartAndARescan) {
  for (int id = 1; id <= 20; ++id) spool_.submit(id);
  START_OR_SKIP(config());
  collect(20);
  capture_->rescan();
  ASSERT_TRUE(eventually([](const CaptureStatus& s) { return s.scans >= 2 && s.pending == 0; }));
  capture_.reset();
  journal_.reset();
  open_journal();
  start(config());
  spool_.submit(21);
  collect(1);
  ASSERT_TRUE(journal_->flush(std::chrono::steady_clock::now() + kPatience));
  EXPECT_EQ(journal_->usage().events, 21U);
}

TEST_P(CaptureTest, AReloadLosesNoEntryThatComesMeanwhileAndKeepsTheCounters) {
  constexpr int kChanges = 30;
  constexpr int kJobsAChange = 40;
  START_OR_SKIP(config());
  const bool content = GetParam() == "fanotify";
  SourceConfig changed = config();
  for (int n = 0; n < kChanges; ++n) {
    std::jthread storm([&] {
      for (int id = n * kJobsAChange + 1; id <= (n + 1) * kJobsAChange; ++id) {
        spool_.submit(id);
        if (content) spool_.remove(id);
      }
    });
    changed.max_file_bytes += 1;
    change(changed);
  }
  constexpr auto kJobs = std::size_t{kChanges} * kJobsAChange;
  const auto events = collect(kJobs);
  for (int id = 1; id <= static_cast<int>(kJobs); ++id) ASSERT_EQ(events.count(id), 1U) << id;
  ASSERT_TRUE(eventually([&](const CaptureStatus& s) { return s.captured == kJobs; }));
  EXPECT_EQ(missed(), 0U);
  EXPECT_EQ(capture_->status().gaps->highest, kJobs);
}

TEST_P(CaptureTest, AReloadPutsTheNewLimitsInForce) {
  SourceConfig common = config();
  common.incomplete_after_seconds = 24 * 3600;
  START_OR_SKIP(common);
  SourceConfig changed = impatient();
  changed.max_file_bytes = 5;
  change(changed);
  spool_.submit(1);
  spool_.make_entry(2);
  ToySpool::write_file(spool_.entry(2) + "/script", "half");
  give_up(2);
  const auto events = collect(2);
  EXPECT_EQ(events.find(1)->second->file("script")->bytes->size(), 5U);
  EXPECT_FALSE(events.find(2)->second->complete);
}

TEST_P(CaptureTest, HashDirectoryMadeAnewAndRenamedAwayIsWatchedAgain) {
  spool_.submit(3);
  START_OR_SKIP(config());
  collect(1);
  spool_.remove(3);
  ASSERT_EQ(::rmdir((spool_.root() + "/hash.3").c_str()), 0);
  spool_.submit(13);
  EXPECT_EQ(collect(1).begin()->first, 13);
  ASSERT_EQ(::rename((spool_.root() + "/hash.3").c_str(), (spool_.root() + "/old").c_str()), 0);
  spool_.submit(23);
  EXPECT_EQ(collect(1).begin()->first, 23);
}

TEST_P(CaptureTest, EntryThatCannotBeLookedAtForAWhileIsNotForgotten) {
  START_OR_SKIP(config());
  spool_.submit(3);
  collect(1);
  const std::string hash = spool_.root() + "/hash.3";
  const std::string away = spool_.root() + "/away";
  ASSERT_EQ(::symlink("away", away.c_str()), 0);
  // A link is not followed: what is behind it is out of reach, and not known to be gone. At no
  // moment is nothing there.
  const auto exchange = [&] {
    return ::renameat2(AT_FDCWD, hash.c_str(), AT_FDCWD, away.c_str(), RENAME_EXCHANGE);
  };
  ASSERT_EQ(exchange(), 0);
  const std::uint64_t scans = capture_->status().scans;
  capture_->rescan();
  ASSERT_TRUE(eventually([&](const CaptureStatus& s) { return s.scans > scans; }));
  ASSERT_EQ(exchange(), 0);
  const std::uint64_t looks = capture_->status().scans;
  capture_->rescan();
  ASSERT_TRUE(eventually([&](const CaptureStatus& s) { return s.scans > looks; }));
  spool_.submit(13);
  collect(1);
  ASSERT_TRUE(eventually([](const CaptureStatus& s) { return s.captured >= 2; }));
  EXPECT_EQ(capture_->status().captured, 2U) << "the first was captured twice";
}

TEST_P(CaptureTest, SpoolMadeAnewIsFoundAgain) {
  spool_.submit(1);
  START_OR_SKIP(config());
  collect(1);
  ASSERT_EQ(::rename(spool_.root().c_str(), (spool_.root() + ".old").c_str()), 0);
  ASSERT_EQ(::mkdir(spool_.root().c_str(), 0700), 0);
  spool_.submit(2);
  EXPECT_EQ(collect(1).begin()->first, 2);
}

TEST_P(CaptureTest, SlowWriterIsWaitedForAndNeverTakenHalf) {
  START_OR_SKIP(config());
  spool_.make_entry(5);
  ToySpool::write_file(spool_.entry(5) + "/environment", std::string("A=1\0", 4));
  const std::string whole = ToySpool::script(5) + '\0';
  const int fd =
      ::open((spool_.entry(5) + "/script").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  for (const char c : whole) {
    ASSERT_EQ(::write(fd, &c, 1), 1);
    capture_->rescan();  // a look at every length
  }
  ::close(fd);
  const auto events = collect(1);
  expect_whole(*events.begin()->second, 5);
}

TEST_P(CaptureTest, EntryThatIsNeverFinishedIsArchivedAndMarkedAndThenSuperseded) {
  START_OR_SKIP(impatient());
  spool_.make_entry(6);
  ToySpool::write_file(spool_.entry(6) + "/script", "#!/bin/sh\nhalf");
  give_up(1);
  const auto first = collect(1);
  EXPECT_FALSE(first.begin()->second->complete);
  EXPECT_EQ(*first.begin()->second->file("script")->bytes, "#!/bin/sh\nhalf");
  // The same file grows after all.
  const int fd = ::open((spool_.entry(6) + "/script").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  const std::string rest(" and whole\n\0", 12);
  ASSERT_EQ(::write(fd, rest.data(), rest.size()), static_cast<ssize_t>(rest.size()));
  ToySpool::write_file(spool_.entry(6) + "/environment", std::string("A=1\0", 4));
  ::close(fd);
  const auto second = collect(1);
  EXPECT_TRUE(second.begin()->second->complete);
  EXPECT_EQ(second.begin()->second->supersedes, first.begin()->second->id);
  EXPECT_NE(second.begin()->second->id, first.begin()->second->id);
}

TEST_P(CaptureTest, JobIdThatIsUsedAgainIsAnotherEvent) {
  spool_.submit(7);
  START_OR_SKIP(config());
  const std::string first = collect(1).begin()->second->id;
  spool_.remove(7);
  spool_.make_entry(7);
  ToySpool::write_file(spool_.entry(7) + "/environment", std::string("A=1\0", 4));
  ToySpool::write_file(spool_.entry(7) + "/script", std::string("another job\0", 12));
  const auto second = collect(1);
  EXPECT_NE(second.begin()->second->id, first);
  EXPECT_EQ(second.begin()->second->supersedes, std::nullopt);
}

TEST_P(CaptureTest, ScriptThatIsClosedOnceMoreBeforeItsEntryGoesIsNoSecondEvent) {
  constexpr int kJobs = 30;
  START_OR_SKIP(config());
  for (int id = 1; id <= kJobs; ++id) spool_.submit(id);
  collect(kJobs);
  // Delivered and removed: the journal knows the events no more, and would take an incomplete one
  // of the same id.
  std::vector<Journal::Settle> settlements;
  for (std::uint64_t i = 1; i <= after_; ++i)
    settlements.push_back({.sequence = i, .outcome = Outcome::kAcknowledged});
  journal_->settle(sink_, std::move(settlements), after_);
  ASSERT_TRUE(journal_->flush(std::chrono::steady_clock::now() + kPatience));
  for (int id = 1; id <= kJobs; ++id) {
    const UniqueFd again(::open((spool_.entry(id) + "/script").c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_TRUE(again);
  }
  for (int id = 1; id <= kJobs; ++id) spool_.remove(id);
  spool_.submit(1000);
  EXPECT_EQ(collect(1).begin()->first, 1000);
  ASSERT_TRUE(
      eventually([](const CaptureStatus& s) { return s.pending == 0 && s.captured > kJobs; }));
  EXPECT_EQ(capture_->status().captured, kJobs + 1U);
  EXPECT_EQ(capture_->status().incomplete, 0U);
  EXPECT_EQ(missed(), 0U);
}

TEST_P(CaptureTest, ScriptThatGrewWithinOneTickOfTheClockIsFollowedByAnEvent) {
  if (GetParam() != "fanotify")
    GTEST_SKIP() << "nothing tells of a script that grows later, and a scan goes by its time";
  START_OR_SKIP(config());
  spool_.submit(7);
  const std::string first = collect(1).begin()->second->id;
  const std::string file = spool_.entry(7) + "/script";
  struct stat before{};
  ASSERT_EQ(::stat(file.c_str(), &before), 0);
  {
    const UniqueFd more(::open(file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
    ASSERT_EQ(::write(more.get(), "more\0", 5), 5);
    const timespec times[] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(::futimens(more.get(), times), 0);
  }
  const auto second = collect(1).begin()->second;
  EXPECT_NE(second->id, first);
  EXPECT_THAT(*second->file("script")->bytes, testing::EndsWith("more"));
}

TEST_P(CaptureTest, HardLinkedScriptIsNoSecondEventUnlessItsEntryWasNeverSeen) {
  spool_.submit(8);
  START_OR_SKIP(config());
  collect(1);
  spool_.make_entry(18);
  ASSERT_EQ(::link((spool_.entry(8) + "/script").c_str(), (spool_.entry(18) + "/script").c_str()),
            0);
  ASSERT_TRUE(eventually([](const CaptureStatus& s) {
    return s.ignored.contains("hard link to another entry's script");
  }));
  spool_.make_entry(28);
  ToySpool::write_file(spool_.root() + "/elsewhere", std::string("linked\0", 7));
  ASSERT_EQ(::link((spool_.root() + "/elsewhere").c_str(), (spool_.entry(28) + "/script").c_str()),
            0);
  EXPECT_EQ(*collect(1).begin()->second->file("script")->bytes, "linked");
}

TEST_P(CaptureTest, ForeignThingsInTheSpoolStopNothing) {
  spool_.submit(1);
  const std::string hash = spool_.root() + "/hash.1/";
  ASSERT_EQ(::mkdir((hash + "job.abc").c_str(), 0700), 0);
  ASSERT_EQ(::mkdir((hash + "lost+found").c_str(), 0700), 0);
  ASSERT_EQ(::mkdir((spool_.root() + "/deep").c_str(), 0700), 0);
  ToySpool::write_file(spool_.root() + "/jwt_hs256.key", "secret");
  ToySpool::write_file(hash + "job.31", "a file where a directory should be");
  spool_.make_entry(41);  // a FIFO for a script would block a naive open()
  ASSERT_EQ(::mkfifo((spool_.entry(41) + "/script").c_str(), 0600), 0);
  spool_.make_entry(51);  // a link out of the spool
  ASSERT_EQ(::symlink("/etc/hostname", (spool_.entry(51) + "/script").c_str()), 0);
  ASSERT_EQ(::symlink("/etc", (hash + "job.61").c_str()), 0);
  ASSERT_EQ(::symlink(hash.c_str(), (spool_.root() + "/hash.2").c_str()), 0);
  spool_.make_entry(71);
  ASSERT_EQ(::mkdir((spool_.entry(71) + "/script").c_str(), 0700), 0);
  START_OR_SKIP(config());
  spool_.submit(81);
  const auto events = collect(2);
  EXPECT_TRUE(events.contains(1));
  EXPECT_TRUE(events.contains(81));
  const auto ignored = capture_->status().ignored;
  EXPECT_TRUE(ignored.contains("not a regular file"));
  EXPECT_TRUE(ignored.contains("a symbolic link stands in the way"));
}

TEST_P(CaptureTest, AdapterThatThrowsCostsItsEntryAndNoOther) {
  spool_.submit(66600);
  spool_.submit(1);
  START_OR_SKIP(config());
  EXPECT_EQ(collect(1).begin()->first, 1);
  ASSERT_TRUE(eventually([](const CaptureStatus& s) { return s.missed.contains("unparsable"); }));
  EXPECT_TRUE(log_.has("ADAPTER_THREW"));
}

TEST_P(CaptureTest, FileOverTheLimitIsCutAndSaysSo) {
  SourceConfig common = impatient();
  common.max_file_bytes = 1000;
  spool_.make_entry(9);
  ToySpool::write_file(spool_.entry(9) + "/environment", std::string("A=1\0", 4));
  ToySpool::write_file(spool_.entry(9) + "/script", std::string(5000, 'x') + '\0');
  START_OR_SKIP(common);
  give_up(1);
  const auto events = collect(1);
  const Event& event = *events.begin()->second;
  EXPECT_FALSE(event.complete);
  EXPECT_EQ(event.file("script")->size, 1000U);
  EXPECT_THAT(event.problems, testing::Contains(testing::HasSubstr("larger than max_file_bytes")));
}

TEST_P(CaptureTest, CapturedAndMissedTogetherAreAllThatAppeared) {
  START_OR_SKIP(config());
  ASSERT_TRUE(eventually([](const CaptureStatus& s) { return s.scans >= 1; }));
  for (int d = 0; d < 10; ++d)
    ::mkdir((spool_.root() + "/hash." + std::to_string(d)).c_str(), 0700);
  spool_.submit(100);  // once this is there, the directories are watched
  collect(1);
  constexpr int kJobs = 2000;
  for (int id = 1000; id < 1000 + kJobs; ++id) {
    spool_.submit(id);
    spool_.remove(id);
  }
  spool_.submit(200);
  if (GetParam() == "scan") {
    // Only what stands at a scan is seen; there is nothing that tells of the rest, and nothing is
    // claimed.
    ASSERT_TRUE(eventually([](const CaptureStatus& s) { return s.captured >= 2; }));
    return;
  }
  ASSERT_TRUE(eventually([&](const CaptureStatus& s) {
    const auto vanished = s.missed.find("vanished");
    return s.captured + (vanished == s.missed.end() ? 0 : vanished->second) >= kJobs + 2;
  }));
  const CaptureStatus status = capture_->status();
  EXPECT_EQ(status.captured + missed(), std::uint64_t{kJobs + 2});
  if (GetParam() == "fanotify") {
    EXPECT_EQ(missed(), 0U) << "an event carries the file itself: nothing is too short-lived";
  }
}

// Every look at it takes time, as if thousands of entries were looked at in between.
class SlowClock final : public Clock {
 public:
  Timestamp now() const override { return system_clock().now(); }
  SteadyTime steady() const override {
    return std::chrono::steady_clock::now() + milliseconds{2} * ++looks_;
  }

 private:
  mutable std::atomic<int> looks_{0};
};

TEST_P(CaptureTest, ALookThatIsDueAgainByTheTimeItEndsDoesNotHoldUpTheRest) {
  if (GetParam() == "scan") GTEST_SKIP() << "nothing is looked at again";
  const SlowClock slow;
  clock_ = &slow;
  // It exists before, so it is watched: fanotify captures 12 before a new folder has its watch, and
  // then nobody would have seen 22.
  ::mkdir((spool_.root() + "/hash.2").c_str(), 0700);
  START_OR_SKIP(config());
  ASSERT_TRUE(eventually([](const CaptureStatus& s) { return s.scans >= 1; }));
  spool_.submit(12);
  collect(1);
  // With fanotify, what is missing is only called so after what was queued has been read once more.
  spool_.make_entry(22);
  spool_.remove(22);
  spool_.submit(32);
  EXPECT_EQ(collect(1).begin()->first, 32);
  EXPECT_TRUE(eventually([this](const CaptureStatus&) { return missed() == 1; }));
  capture_.reset();  // before its clock
}

// The other ways do miss entries that live so short.
class ShortLifeTest : public CaptureTest {};

TEST_P(ShortLifeTest, ScansInAStormCallNothingMissedThatWasCaptured) {
  START_OR_SKIP(config());
  for (int d = 0; d < 10; ++d)
    ::mkdir((spool_.root() + "/hash." + std::to_string(d)).c_str(), 0700);
  spool_.submit(100);
  collect(1);
  constexpr int kJobs = 3000;
  {
    std::jthread scans([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        capture_->rescan();
        std::this_thread::yield();
      }
    });
    for (int id = 1000; id < 1000 + kJobs; ++id) {
      spool_.submit(id);
      spool_.remove(id);
    }
  }
  spool_.submit(200);
  ASSERT_TRUE(eventually([&](const CaptureStatus& s) {
    return s.captured + missed() >= kJobs + 2 && s.pending == 0;
  }));
  EXPECT_EQ(capture_->status().captured, std::uint64_t{kJobs + 2});
  EXPECT_EQ(missed(), 0U);
}

TEST_P(CaptureTest, FilesOfAnotherOwnerAreNotBelieved) {
  if (::geteuid() != 0) GTEST_SKIP() << "SKIPPED: only root can give a file to another owner";
  START_OR_SKIP(config());
  spool_.make_entry(11);
  for (const char* name : {"/environment", "/script"}) {
    const std::string path = spool_.entry(11) + name;
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_EQ(::fchown(fd, 12345, 12345), 0);
    ASSERT_EQ(::write(fd, "forged\0", 7), 7);
    ::close(fd);
  }
  spool_.submit(21);
  EXPECT_EQ(collect(1).begin()->first, 21);
  ASSERT_TRUE(
      eventually([](const CaptureStatus& s) { return s.ignored.contains("another owner"); }));
}

TEST_P(CaptureTest, StopWhileTheJournalIsFullLosesNothing) {
  journal_.reset();
  open_journal(200'000);
  for (int id = 1; id <= 2000; ++id) spool_.submit(id);
  START_OR_SKIP(config());
  ASSERT_TRUE(eventually([&](const CaptureStatus&) { return journal_->full(); }));
  capture_.reset();
  journal_.reset();
  open_journal();
  start(config());
  const auto events = collect(2000);
  for (int id = 1; id <= 2000; ++id) EXPECT_EQ(events.count(id), 1U) << id;
}

INSTANTIATE_TEST_SUITE_P(Ways, ShortLifeTest, testing::Values("fanotify"),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Ways, CaptureTest, testing::Values("fanotify", "inotify", "scan"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace scriptorium
