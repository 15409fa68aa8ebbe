// Kills a child process at each named fault point of the journal, opens the journal again and
// compares it with what the child was promised. The child writes down each promise when it gets it
// ("durable", "committed"), by one write() each, which a kill cannot take back.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "core/journal/journal.h"
#include "tests/support/event_factory.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

using test::make_event;
using namespace std::chrono_literals;

constexpr const char* kSinks[] = {"archive", "search"};

std::shared_ptr<const Event> job(const std::string& id, bool big) {
  std::string script = "#!/bin/bash\n# " + std::to_string(std::hash<std::string>{}(id) % 20) + "\n";
  if (big) {
    std::mt19937_64 random(std::hash<std::string>{}(id));
    for (int i = 0; i < 200'000; ++i) script += static_cast<char>('!' + random() % 90);
  }
  return make_event(id, script);
}

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

// ---- the child
// -------------------------------------------------------------------------------------------------

// Random appends, resolutions and settlements of two sinks. Notes: "A id" = is durable; "T sink id
// outcome" = was told to the journal; "C" = all T so far are committed; "S" = a child starts.
void work(const std::string& directory, unsigned seed, int rounds, bool big) {
  Notes notes(directory + "/notes");
  test::RecordingLogger log;
  std::stop_source never;
  auto opened = Journal::open(
      {.directory = directory + "/journal", .cache_bytes = seed % 2 == 0 ? 0U : 1U << 20}, log,
      system_clock());
  ASSERT_TRUE(opened) << opened.error().message();
  Journal& journal = **opened;
  notes.write("S");
  const auto patience = ::getenv("JOURNAL_CHILD_IMPATIENT") != nullptr ? 500ms : 30'000ms;
  std::mt19937 random(seed);
  std::map<std::string, Journal::SinkId> ids;
  std::map<std::string, std::uint64_t> after;
  for (const char* name : kSinks) {
    auto id = journal.register_sink(name, {"*"});
    ASSERT_TRUE(id) << id.error().message();
    ids[name] = *id;
    after[name] = journal.cursor(*id);
  }
  const auto flush = [&] {
    ASSERT_TRUE(journal.flush(std::chrono::steady_clock::now() + patience));
    notes.write("C");
  };
  for (int round = 0; round < rounds; ++round) {
    for (int i = static_cast<int>(random() % 6); i >= 0; --i) {
      const std::string id =
          std::to_string(seed) + "-" + std::to_string(round) + "-" + std::to_string(i);
      const auto event = job(id, big);
      journal.append({.source = "slurm",
                      .event = event,
                      .resolve_first = random() % 3 == 0,
                      .mark = CaptureMark{.entry = "job." + id, .event_id = event->id},
                      .durable = [&notes, id](bool) { notes.write("A " + id); }},
                     never.get_token());
    }
    if (random() % 2 == 0) {
      std::vector<Journal::Resolved> resolved;
      for (auto& item : journal.unresolved("slurm", 0, 5))
        resolved.push_back({item.ticket, item.event});
      journal.resolved(std::move(resolved));
    }
    for (const char* name : kSinks) {
      if (random() % 2 == 0) continue;
      auto items = journal.read(ids[name], after[name], 1 + random() % 8, 1U << 30);
      ASSERT_TRUE(items) << items.error().message();
      if (random() % 4 == 0) {
        flush();  // or what was just settled would be there still
        auto parked = journal.parked(ids[name], 3);
        ASSERT_TRUE(parked);
        items->insert(items->begin(), parked->begin(), parked->end());
      }
      std::vector<Journal::Settle> settlements;
      for (const auto& item : *items) {
        ASSERT_TRUE(item.event);
        const auto outcome = random() % 8;
        notes.write(std::string("T ") + name + " " + item.event->job.id + " " +
                    (outcome == 0   ? "dead"
                     : outcome == 1 ? "parked"
                                    : "acknowledged"));
        settlements.push_back({.sequence = item.sequence,
                               .outcome = outcome == 0   ? Outcome::kRejected
                                          : outcome == 1 ? Outcome::kRetry
                                                         : Outcome::kAcknowledged,
                               .reason = "as the dice fell"});
        after[name] = std::max(after[name], item.sequence);
      }
      if (!settlements.empty()) journal.settle(ids[name], std::move(settlements), after[name]);
    }
    if (random() % 3 == 0) flush();
  }
  flush();
}

TEST(JournalCrashChild, DISABLED_Works) {
  const char* directory = ::getenv("JOURNAL_CHILD_DIRECTORY");
  if (directory == nullptr) GTEST_SKIP() << "only run as a child of JournalCrashTest";
  work(directory, static_cast<unsigned>(std::atoi(::getenv("JOURNAL_CHILD_SEED"))),
       std::atoi(::getenv("JOURNAL_CHILD_ROUNDS")), ::getenv("JOURNAL_CHILD_BIG") != nullptr);
}

// ---- the parent
// ------------------------------------------------------------------------------------------------

class JournalCrashTest : public testing::Test {
 protected:
  // Runs the child; how it ended.
  int run_child(const std::string& fault, unsigned seed, int rounds = 40, bool big = false) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::setenv("JOURNAL_CHILD_DIRECTORY", dir_.path().c_str(), 1);
      ::setenv("JOURNAL_CHILD_SEED", std::to_string(seed).c_str(), 1);
      ::setenv("JOURNAL_CHILD_ROUNDS", std::to_string(rounds).c_str(), 1);
      if (big) ::setenv("JOURNAL_CHILD_BIG", "1", 1);
      ::setenv("SCRIPTORIUM_FAULT", fault.c_str(), 1);
      ::setenv("SCRIPTORIUM_FAULT_LOG", dir_.path_to("reached").c_str(), 1);
      const int quiet =
          ::open(dir_.path_to("child.log").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      ::dup2(quiet, 1);
      ::execl("/proc/self/exe", "child", "--gtest_filter=JournalCrashChild.DISABLED_Works",
              "--gtest_also_run_disabled_tests", nullptr);
      ::_exit(127);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return status;
  }
  static bool killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }
  bool reached() const { return dir_.exists("reached"); }

  struct Fate {
    bool acknowledged = false, dead = false, parked = false;
  };
  void read_notes() {
    durable_.clear();
    told_.clear();
    ever_.clear();
    committed_.clear();
    std::ifstream in(dir_.path_to("notes"));
    std::string line;
    while (std::getline(in, line)) {
      std::istringstream words(line);
      std::string what, sink, id, outcome;
      words >> what;
      if (what == "A" && words >> id) durable_.insert(id);
      if (what == "T" && words >> sink >> id >> outcome) {
        for (auto* fates : {&told_, &ever_}) {
          Fate& fate = (*fates)[sink][id];
          (outcome == "acknowledged" ? fate.acknowledged
           : outcome == "dead"       ? fate.dead
                                     : fate.parked) = true;
        }
      }
      if (what == "C") committed_ = told_;
      if (what == "S")
        told_ =
            committed_;  // what the one before had told and not heard of may or may not be there
    }
  }

  // Opens what the child left and holds it against its notes.
  void expect_promises_kept() {
    read_notes();
    auto opened = Journal::open({.directory = dir_.path_to("journal")}, log_, system_clock());
    ASSERT_TRUE(opened) << opened.error().message();
    Journal& journal = **opened;
    EXPECT_TRUE(journal.open_report().quarantined.empty()) << journal.open_report().damage;
    const auto sound = journal.verify();
    EXPECT_TRUE(sound) << sound.error().message();
    std::set<std::string> unresolved;
    for (const auto& item : journal.unresolved("slurm", 0, 100'000))
      unresolved.insert(item.event->job.id);
    for (const char* name : kSinks) {
      SCOPED_TRACE(name);
      const auto known = journal.unregistered_sinks();
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        EXPECT_TRUE(committed_[name].empty()) << "a sink that had settled something is forgotten";
      }
      auto sink = journal.register_sink(name, {"*"});
      ASSERT_TRUE(sink);
      std::set<std::string> waiting, parked, dead;
      auto items = journal.read(*sink, journal.cursor(*sink), 1'000'000, 1U << 31);
      ASSERT_TRUE(items);
      for (const auto& item : *items) waiting.insert(item.event->job.id);
      auto again = journal.parked(*sink, 1'000'000);
      ASSERT_TRUE(again);
      for (const auto& item : *again) parked.insert(item.event->job.id);
      auto letters = journal.dead_letters(name, 1'000'000);
      ASSERT_TRUE(letters);
      for (const auto& letter : *letters) dead.insert(letter.job_id);
      for (const std::string& id : durable_) {
        const Fate told = ever_[name].contains(id) ? ever_[name][id] : Fate{};
        EXPECT_TRUE(unresolved.contains(id) || waiting.contains(id) || parked.contains(id) ||
                    dead.contains(id) || told.acknowledged)
            << id << " was durable, and is lost";
      }
      for (const auto& [id, fate] : committed_[name]) {
        EXPECT_FALSE(waiting.contains(id)) << id << " was settled, and comes again";
        if (fate.acknowledged) {
          EXPECT_FALSE(parked.contains(id) || dead.contains(id))
              << id << " was acknowledged, and comes again";
        }
        if (fate.dead && !ever_[name][id].acknowledged) {
          EXPECT_TRUE(dead.contains(id)) << id << " was a dead letter, and is lost";
        }
        if (fate.parked && !ever_[name][id].acknowledged && !ever_[name][id].dead) {
          EXPECT_TRUE(parked.contains(id)) << id << " was parked, and is lost";
        }
      }
      const auto usage = journal.usage();
      const auto state = std::find_if(usage.sinks.begin(), usage.sinks.end(),
                                      [&](const auto& s) { return s.name == name; });
      ASSERT_NE(state, usage.sinks.end());
      EXPECT_EQ(state->waiting, waiting.size() + parked.size());
      EXPECT_EQ(state->dead, dead.size());
    }
  }

  void expect_survives(const std::string& point, int nth, int rounds = 40, bool big = false) {
    SCOPED_TRACE(point + ":" + std::to_string(nth));
    const std::string fault = point + ":" + std::to_string(nth) + ":kill";
    const int first = run_child(fault, 1, rounds, big);
    ASSERT_TRUE(killed(first)) << "the point was not reached; child: " << dir_.read("child.log");
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
  std::set<std::string> durable_;
  std::map<std::string, std::map<std::string, Fate>> told_, ever_, committed_;
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
      ASSERT_TRUE(
          (*journal)->append_all("slurm", {job("1", false), job("2", false)}, std::nullopt, {}));
    }
    {
      // An index page of zeros: found by the check at open, and no event is touched by it.
      std::fstream f(dir_.path_to("journal/journal.db"),
                     std::ios::in | std::ios::out | std::ios::binary);
      f.seekp(2 * 4096);
      f.write(std::string(4096, '\0').data(), 4096);
    }
    const std::string fault = "journal.quarantine:" + std::to_string(nth) + ":kill";
    ASSERT_TRUE(killed(run_child(fault, 1, 0))) << dir_.read("child.log");
    run_child(fault, 1, 0);  // and once more in the recovery, where that still passes this point
    auto journal = Journal::open({.directory = dir_.path_to("journal")}, log_, system_clock());
    ASSERT_TRUE(journal);
    EXPECT_TRUE((*journal)->event(job("1", false)->id));
    EXPECT_TRUE((*journal)->event(job("2", false)->id));
    EXPECT_TRUE((*journal)->verify());
  }
}

TEST_F(JournalCrashTest, KeepsEverythingWhileTheDiskIsFullAndGoesOnAfterwards) {
#ifndef SCRIPTORIUM_FAULTS
  GTEST_SKIP() << "built without fault points (SCRIPTORIUM_FAULTS)";
#endif
  const int status = run_child("journal.commit:7:error=ENOSPC,journal.commit:8:error=EIO", 5, 30);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << dir_.read("child.log");
  EXPECT_TRUE(reached());
  expect_promises_kept();
  EXPECT_GT(durable_.size(), 50U);
}

TEST_F(JournalCrashTest, PromisesNothingIfTheDiskNeverTakesIt) {
#ifndef SCRIPTORIUM_FAULTS
  GTEST_SKIP() << "built without fault points (SCRIPTORIUM_FAULTS)";
#endif
  ::setenv("JOURNAL_CHILD_IMPATIENT", "1", 1);
  const int status = run_child("journal.commit:3+:error=ENOSPC", 5, 3);
  ::unsetenv("JOURNAL_CHILD_IMPATIENT");
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) != 0) << "its flush cannot have succeeded";
  read_notes();
  EXPECT_TRUE(durable_.empty());
  expect_promises_kept();
}

}  // namespace
}  // namespace scriptorium
