// Kills a child process at each named fault point of the journal, opens the journal again and
// compares it with what the child was promised. The child notes each promise when it gets it
// ("durable", "committed") with one write(), which a kill cannot undo.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/journal/journal.h"
#include "tests/core/journal/journal_workload.h"
#include "tests/support/child_test.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

using namespace std::chrono_literals;
using test::workload_job;

class Notes {
 public:
  explicit Notes(const std::string& file)
      : fd_(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {}
  ~Notes() { ::close(fd_); }
  Notes(const Notes&) = delete;
  Notes& operator=(const Notes&) = delete;
  void write(const std::string& line) {
    const std::string text = line + "\n";
    ASSERT_EQ(::write(fd_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

 private:
  int fd_;
};

// The child: it works, and notes what it is promised.
void work(const std::string& directory, unsigned seed, int rounds, bool big) {
  Notes notes(directory + "/notes");
  test::RecordingLogger log;
  test::StoredEvents stored;
  auto opened = Journal::open(
      {.directory = directory + "/journal", .cache_bytes = seed % 2 == 0 ? 0U : 1U << 20}, log,
      system_clock());
  ASSERT_TRUE(opened) << opened.error().message();
  notes.write("S");
  const auto patience = ::getenv("JOURNAL_CHILD_IMPATIENT") != nullptr ? 500ms : 30'000ms;
  test::WorkloadRun(
      **opened,
      {.seed = seed,
       .rounds = rounds,
       .script_bytes = [big](auto&) { return big ? 200'000U : 0U; },
       .retries = true,
       .patience = patience},
      [&notes](const std::string& line) { notes.write(line); }, stored)
      .run();
}

// The child: an event that no sink may get.
TEST(JournalCrashChild, DISABLED_Buries) {
  const char* directory = ::getenv("JOURNAL_CHILD_DIRECTORY");
  if (directory == nullptr) GTEST_SKIP() << "only run as a child of JournalCrashTest";
  test::RecordingLogger log;
  auto journal =
      Journal::open({.directory = std::string(directory) + "/journal"}, log, system_clock());
  ASSERT_TRUE(journal);
  ASSERT_TRUE((*journal)->register_sink("archive", {"*"}));
  const auto event = workload_job("1", 0);
  ASSERT_TRUE((*journal)->append({.source = "slurm",
                                  .event = event,
                                  .mark = CaptureMark{.entry = "job.1", .event_id = event->id},
                                  .dead = "redaction failed"},
                                 {}));
}

TEST(JournalCrashChild, DISABLED_Works) {
  const char* directory = ::getenv("JOURNAL_CHILD_DIRECTORY");
  if (directory == nullptr) GTEST_SKIP() << "only run as a child of JournalCrashTest";
  work(directory, static_cast<unsigned>(std::atoi(::getenv("JOURNAL_CHILD_SEED"))),
       std::atoi(::getenv("JOURNAL_CHILD_ROUNDS")), ::getenv("JOURNAL_CHILD_BIG") != nullptr);
}

class JournalCrashTest : public testing::Test {
 protected:
  // Runs the child; returns its wait status.
  int run_child(const std::string& fault, unsigned seed, int rounds = 40, bool big = false,
                const char* test = "JournalCrashChild.DISABLED_Works") {
    std::map<std::string, std::string> variables{
        {"JOURNAL_CHILD_DIRECTORY", dir_.path()},
        {"JOURNAL_CHILD_SEED", std::to_string(seed)},
        {"JOURNAL_CHILD_ROUNDS", std::to_string(rounds)},
        {"SCRIPTORIUM_FAULT", fault},
        {"SCRIPTORIUM_FAULT_LOG", dir_.path_to("reached")}};
    if (big) variables["JOURNAL_CHILD_BIG"] = "1";
    return test::run_child_test(test, variables, dir_.path_to("child.log"));
  }
  bool reached() const { return dir_.exists("reached"); }

  test::Promises promises() const {
    std::vector<std::string> lines;
    std::ifstream in(dir_.path_to("notes"));
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return test::Promises(lines);
  }

  // Opens what the child left and compares it with its notes.
  void expect_promises_kept() {
    EXPECT_EQ(promises().broken_by(test::open_and_read(dir_.path_to("journal"), {})), "");
  }

  void expect_survives(const std::string& point, int nth, int rounds = 40, bool big = false) {
    SCOPED_TRACE(point + ":" + std::to_string(nth));
    const std::string fault = point + ":" + std::to_string(nth) + ":kill";
    const int first = run_child(fault, 1, rounds, big);
    ASSERT_TRUE(test::was_killed(first))
        << "the point was not reached; child: " << dir_.read("child.log");
    ASSERT_TRUE(reached());
    expect_promises_kept();
    run_child(fault, 2, rounds, big);  // the same again, on what the first one left
    expect_promises_kept();
    const int last = run_child("", 3, 20);
    EXPECT_TRUE(WIFEXITED(last) && WEXITSTATUS(last) == 0) << dir_.read("child.log");
    expect_promises_kept();
  }

  test::TempDir dir_;
  test::RecordingLogger log_;
};

class JournalCrashPointTest : public JournalCrashTest,
                              public testing::WithParamInterface<std::pair<const char*, int>> {};

TEST_P(JournalCrashPointTest, LosesNothingThatWasDurableAndRepeatsNothingThatWasCommitted) {
#ifndef SCRIPTORIUM_FAULTS
  GTEST_SKIP() << "built without fault points (SCRIPTORIUM_FAULTS)";
#endif
  expect_survives(GetParam().first, GetParam().second);
}

INSTANTIATE_TEST_SUITE_P(
    Points, JournalCrashPointTest,
    testing::Values(std::pair{"journal.after_begin", 1}, std::pair{"journal.after_begin", 10},
                    std::pair{"journal.after_blob", 1}, std::pair{"journal.after_blob", 40},
                    std::pair{"journal.before_commit", 1}, std::pair{"journal.before_commit", 10},
                    std::pair{"journal.after_commit", 3}, std::pair{"journal.after_commit", 10},
                    std::pair{"journal.before_settle", 5}, std::pair{"journal.after_settle", 5},
                    std::pair{"journal.before_prune", 10}, std::pair{"journal.during_prune", 2},
                    std::pair{"journal.before_blob_delete", 2},
                    std::pair{"journal.before_resolved", 2}));

TEST_F(JournalCrashTest, SurvivesAKillInACheckpoint) {
#ifndef SCRIPTORIUM_FAULTS
  GTEST_SKIP() << "built without fault points (SCRIPTORIUM_FAULTS)";
#endif
  expect_survives("journal.checkpoint", 1, 60, true);
}

TEST_F(JournalCrashTest, AKillBeforeTheKeyIsStoredLeavesMarksThatTheNextKeyRecognises) {
#ifndef SCRIPTORIUM_FAULTS
  GTEST_SKIP() << "built without fault points (SCRIPTORIUM_FAULTS)";
#endif
  const auto event = workload_job("1", 0);
  {
    auto journal = Journal::open({.directory = dir_.path_to("journal")}, log_, system_clock());
    ASSERT_TRUE(journal);
    ASSERT_TRUE((*journal)->append({.source = "slurm",
                                    .event = event,
                                    .mark = CaptureMark{.entry = "job.1", .event_id = event->id}},
                                   {}));
  }
  std::filesystem::remove(dir_.path_to("journal/capture.key"));
  ASSERT_TRUE(test::was_killed(run_child("journal.before_key:1:kill", 1, 0)))
      << dir_.read("child.log");
  EXPECT_FALSE(dir_.exists("journal/capture.key"));
  auto journal = Journal::open({.directory = dir_.path_to("journal")}, log_, system_clock());
  ASSERT_TRUE(journal);
  const auto marks = (*journal)->marks("slurm");
  ASSERT_EQ(marks.size(), 1U);
  EXPECT_EQ(marks[0].capture_key, (*journal)->capture_key(event->id));
}

TEST_F(JournalCrashTest, AKillBeforeTheCommitLeavesNeitherTheEventNorItsDeadLetters) {
#ifndef SCRIPTORIUM_FAULTS
  GTEST_SKIP() << "built without fault points (SCRIPTORIUM_FAULTS)";
#endif
  for (const char* fault : {"journal.dead_inserted:1:kill", "journal.before_commit:2:kill",
                            "journal.after_commit:2:kill"}) {
    SCOPED_TRACE(fault);
    std::filesystem::remove_all(dir_.path_to("journal"));
    ASSERT_TRUE(
        test::was_killed(run_child(fault, 1, 0, false, "JournalCrashChild.DISABLED_Buries")))
        << dir_.read("child.log");
    auto journal = Journal::open({.directory = dir_.path_to("journal")}, log_, system_clock());
    ASSERT_TRUE(journal);
    const bool committed = std::string_view(fault).starts_with("journal.after_commit");
    EXPECT_EQ((*journal)->event(workload_job("1", 0)->id).has_value(), committed);
    const auto letters = (*journal)->dead_letters("archive", 10);
    ASSERT_TRUE(letters);
    EXPECT_EQ(letters->size(), committed ? 1U : 0U);
    EXPECT_EQ((*journal)->marks("slurm").size(), committed ? 1U : 0U);
  }
}

TEST_F(JournalCrashTest, FinishesAQuarantineThatAKillInterrupted) {
#ifndef SCRIPTORIUM_FAULTS
  GTEST_SKIP() << "built without fault points (SCRIPTORIUM_FAULTS)";
#endif
  for (int nth = 1; nth <= 6; ++nth) {
    SCOPED_TRACE(nth);
    std::filesystem::remove_all(dir_.path_to("journal"));
    std::filesystem::remove(dir_.path_to("notes"));
    {
      auto journal = Journal::open({.directory = dir_.path_to("journal")}, log_, system_clock());
      ASSERT_TRUE(journal);
      ASSERT_TRUE((*journal)->append_all("slurm", {workload_job("1", 0), workload_job("2", 0)},
                                         std::nullopt, {}));
    }
    {
      // An index page of zeros: found by the check at open, and no event is touched by it.
      std::fstream f(dir_.path_to("journal/journal.db"),
                     std::ios::in | std::ios::out | std::ios::binary);
      f.seekp(2 * 4096);
      f.write(std::string(4096, '\0').data(), 4096);
    }
    const std::string fault = "journal.quarantine:" + std::to_string(nth) + ":kill";
    ASSERT_TRUE(test::was_killed(run_child(fault, 1, 0))) << dir_.read("child.log");
    run_child(fault, 1, 0);  // and once more in the recovery, if that still reaches this point
    auto journal = Journal::open({.directory = dir_.path_to("journal")}, log_, system_clock());
    ASSERT_TRUE(journal);
    EXPECT_TRUE((*journal)->event(workload_job("1", 0)->id));
    EXPECT_TRUE((*journal)->event(workload_job("2", 0)->id));
    EXPECT_TRUE((*journal)->verify());
  }
}

TEST_F(JournalCrashTest, KeepsEverythingWhileTheDiskIsFullAndContinuesAfterwards) {
#ifndef SCRIPTORIUM_FAULTS
  GTEST_SKIP() << "built without fault points (SCRIPTORIUM_FAULTS)";
#endif
  const int status = run_child("journal.commit:7:error=ENOSPC,journal.commit:8:error=EIO", 5, 30);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << dir_.read("child.log");
  EXPECT_TRUE(reached());
  expect_promises_kept();
  EXPECT_GT(promises().durable().size(), 50U);
}

TEST_F(JournalCrashTest, PromisesNothingIfTheDiskNeverTakesIt) {
#ifndef SCRIPTORIUM_FAULTS
  GTEST_SKIP() << "built without fault points (SCRIPTORIUM_FAULTS)";
#endif
  ::setenv("JOURNAL_CHILD_IMPATIENT", "1", 1);
  const int status = run_child("journal.commit:3+:error=ENOSPC", 5, 3);
  ::unsetenv("JOURNAL_CHILD_IMPATIENT");
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) != 0) << "its flush cannot have succeeded";
  EXPECT_TRUE(promises().durable().empty());
  expect_promises_kept();
}

}  // namespace
}  // namespace scriptorium
