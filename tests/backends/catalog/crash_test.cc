// Kills a child process at each named fault point of the catalog's writer, opens the catalog again
// and compares it with what the child had acknowledged.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "backends/catalog/sink.h"
#include "tests/backends/catalog/catalog_events.h"
#include "tests/support/fake_clock.h"
#include "tests/support/recording_logger.h"
#include "tests/support/scripted_sink.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::catalog {
namespace {

using namespace test_support;

// Delivers the whole workload; calls note(event id) after each acknowledgement.
template <typename Note>
void deliver_workload(const std::string& root, Note note) {
  test::RecordingLogger log;
  test::FakeClock clock;
  CatalogConfig config;
  config.root = root;
  config.segment_jobs = 8;
  CatalogSink sink(config, PluginContext{"catalog", "lab", log, clock});
  const auto started = sink.start();
  ASSERT_TRUE(started) << started.error().message();
  for (const std::vector<Event>& events : workload()) {
    for (const Event& event : events) {
      // One by one within a batch's number of steps, so that every point is reached often.
      test::Outbox outbox;
      sink.deliver(outbox.batch({shared(event)}));
      ASSERT_EQ(outbox.outcome(event.job.id), Outcome::kAcknowledged)
          << outbox.reason(event.job.id);
      note(event.id);
    }
    std::vector<std::shared_ptr<const Event>> again;
    for (const Event& event : events) again.push_back(shared(event));
    test::Outbox outbox;
    sink.deliver(outbox.batch(again));
  }
  sink.stop(SteadyTime::max());
}

TEST(CatalogCrashChild, DISABLED_Delivers) {
  const char* directory = ::getenv("CATALOG_CHILD_DIRECTORY");
  if (directory == nullptr) GTEST_SKIP() << "only run as a child of CatalogCrashTest";
  const int notes = ::open((std::string(directory) + "/notes").c_str(),
                           O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  deliver_workload(std::string(directory) + "/catalog", [&](const std::string& id) {
    const std::string line = id + "\n";
    ASSERT_EQ(::write(notes, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  });
  ::close(notes);
}

TEST(CatalogCrashChild, DISABLED_MovesAllSegments) {
  const char* directory = ::getenv("CATALOG_CHILD_DIRECTORY");
  if (directory == nullptr) GTEST_SKIP() << "only run as a child of CatalogCrashTest";
  ASSERT_EQ(move_all_segments(std::string(directory) + "/catalog"), "");
}

class CatalogCrashTest : public ::testing::TestWithParam<const char*> {
 protected:
  int run_child(const std::string& fault, const std::string& child = "Delivers") {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::setenv("CATALOG_CHILD_DIRECTORY", directory_.path().c_str(), 1);
      ::setenv("SCRIPTORIUM_FAULT", fault.c_str(), 1);
      const int quiet =
          ::open(directory_.path_to("child.log").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      ::dup2(quiet, 1);
      const std::string filter = "--gtest_filter=CatalogCrashChild.DISABLED_" + child;
      ::execl("/proc/self/exe", "child", filter.c_str(), "--gtest_also_run_disabled_tests",
              nullptr);
      ::_exit(127);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return status;
  }

  test::TempDir directory_;
  const std::string root_ = directory_.path_to("catalog");
};

TEST_P(CatalogCrashTest, AKillLosesNothingThatWasAcknowledged) {
  std::set<std::string> superseded;
  std::vector<Event> all;
  for (const std::vector<Event>& batch : workload()) {
    for (const Event& event : batch) {
      all.push_back(event);
      if (event.supersedes) superseded.insert(*event.supersedes);
    }
  }
  for (const int nth : {1, 2, 5, 9}) {
    SCOPED_TRACE(nth);
    const int status = run_child(std::string(GetParam()) + ":" + std::to_string(nth) + ":kill");
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (nth == 1) {
      ASSERT_TRUE(killed) << "the point was not reached: " << directory_.read("child.log");
    }
    std::set<std::string> acknowledged;
    std::ifstream notes(directory_.path_to("notes"));
    for (std::string line; std::getline(notes, line);) acknowledged.insert(line);
    if (directory_.exists("catalog/catalog.db")) {
      // The next start.
      test::RecordingLogger log;
      test::FakeClock clock;
      CatalogConfig config;
      config.root = root_;
      config.segment_jobs = 8;
      CatalogSink sink(config, PluginContext{"catalog", "lab", log, clock});
      const auto started = sink.start();
      ASSERT_TRUE(started) << started.error().message();
      for (const Event& event : all) {
        if (!acknowledged.contains(event.id) || superseded.contains(event.id)) continue;
        const auto fetched = sink.readable()->fetch(test::without_bytes(event));
        ASSERT_TRUE(fetched) << event.job.id << ": " << fetched.error().message();
        EXPECT_EQ(event_json(**fetched, {.exact_times = true}),
                  event_json(event, {.exact_times = true}));
      }
      EXPECT_EQ(problems_of(root_), std::vector<std::string>{});
    }
  }
  // The journal delivers everything again, and then all is there.
  ASSERT_NO_FATAL_FAILURE(deliver_workload(root_, [](const std::string&) {}));
  EXPECT_EQ(problems_of(root_), std::vector<std::string>{});
  std::int64_t jobs = 0;
  for (const std::int64_t id : segment_ids(root_)) {
    auto db = open_segment_reader(root_, id);
    ASSERT_TRUE(db);
    jobs += (*db)->integer("SELECT count(*) FROM jobs").value_or(0);
  }
  EXPECT_EQ(jobs, 22);
}

INSTANTIATE_TEST_SUITE_P(Points, CatalogCrashTest,
                         ::testing::Values("catalog.new_database", "catalog.segment_made",
                                           "catalog.segment_added", "catalog.block_written",
                                           "catalog.replaced", "catalog.families_committed",
                                           "catalog.before_commit", "catalog.committed",
                                           "catalog.before_ack", "catalog.sealed",
                                           "catalog.finish_step"));

class CatalogMoveCrashTest : public CatalogCrashTest {};

TEST_P(CatalogMoveCrashTest, AKillLosesNothingAndTheNextCallContinues) {
  ASSERT_NO_FATAL_FAILURE(deliver_workload(root_, [](const std::string&) {}));
  std::set<std::string> superseded;
  for (const std::vector<Event>& batch : workload()) {
    for (const Event& event : batch) {
      if (event.supersedes) superseded.insert(*event.supersedes);
    }
  }
  const auto expect_all = [&] {
    for (const std::vector<Event>& batch : workload()) {
      for (const Event& event : batch) {
        if (superseded.contains(event.id)) continue;
        const auto fetched = Archive(root_).fetch(test::without_bytes(event));
        ASSERT_TRUE(fetched) << event.job.id << ": " << fetched.error().message();
        EXPECT_EQ(event_json(**fetched, {.exact_times = true}),
                  event_json(event, {.exact_times = true}));
      }
    }
  };
  ASSERT_NO_FATAL_FAILURE(expect_all());
  for (const int nth : {1, 2, 3}) {
    SCOPED_TRACE(nth);
    const int status = run_child(std::string(GetParam()) + ":" + std::to_string(nth) + ":kill",
                                 "MovesAllSegments");
    ASSERT_TRUE(WIFSIGNALED(status)) << "the point was not reached";
    ASSERT_NO_FATAL_FAILURE(expect_all());
    // The daemon starts again, and gets everything once more.
    if (nth == 2) {
      ASSERT_NO_FATAL_FAILURE(deliver_workload(root_, [](const std::string&) {}));
    }
    ASSERT_EQ(rebuild(root_), "");
    ASSERT_NO_FATAL_FAILURE(expect_all());
    EXPECT_EQ(problems_of(root_), std::vector<std::string>{});
    std::int64_t jobs = 0;
    for (const std::int64_t id : segment_ids(root_))
      jobs += (*open_segment_reader(root_, id))->integer("SELECT count(*) FROM jobs").value_or(0);
    EXPECT_EQ(jobs, 22);
    // A database with its -wal and -shm for each segment, and nothing else.
    std::size_t files = 0;
    for (const auto& file : std::filesystem::directory_iterator(root_ + "/segments"))
      files += file.is_regular_file() ? 1 : 0;
    EXPECT_EQ(files, 3 * segment_ids(root_).size());
  }
}

INSTANTIATE_TEST_SUITE_P(Points, CatalogMoveCrashTest,
                         ::testing::Values("catalog.leaving", "catalog.before_commit",
                                           "catalog.committed", "catalog.sealed",
                                           "catalog.move_batch", "catalog.moved",
                                           "catalog.move_file_removed"));

}  // namespace
}  // namespace scriptorium::catalog
