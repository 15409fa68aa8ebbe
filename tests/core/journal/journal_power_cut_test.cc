#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/journal/journal.h"
#include "tests/core/journal/journal_workload.h"
#include "tests/support/power_cut/power_cut.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

using namespace std::chrono_literals;
using test::JournalContent;
using test::kWorkloadSinks;
using test::PowerCut;
using test::PowerCutCase;
using test::Promises;
using test::workload_job;
namespace fs = std::filesystem;

// Of a shuffled list: enough to find a mistake at one step in fifty, in a few seconds. The thread
// sanitizer takes a hundred times as long, for a test that has no threads of its own.
#ifdef __SANITIZE_THREAD__
constexpr std::size_t kMostStates = 60;
#else
constexpr std::size_t kMostStates = 600;
#endif

bool is_mapped(const std::string& path) { return path.ends_with("-shm"); }

class JournalPowerCutTest : public testing::Test {
 protected:
  // One life: work, and at its end the checkpoint of a close.
  void work(PowerCut& disk, unsigned seed) {
    auto opened = Journal::open({.directory = journal_, .cache_bytes = 0}, log_, system_clock());
    ASSERT_TRUE(opened) << opened.error().message();
    ASSERT_EQ((*opened)->open_report().quarantined, "");
    test::WorkloadRun run(
        **opened,
        {.seed = seed,
         .rounds = 8,
         .most_appends = 4,
         .script_bytes = [](auto& random) { return random() % 5 == 0 ? 20'000 : 200; },
         .releases = true},
        [&disk](const std::string& line) { disk.mark(line); }, stored_);
    run.run();
    released_ += run.released();
  }

  // Opens what each power cut leaves, and compares it with what was promised by then.
  void expect_promises_kept(const PowerCut& disk) {
    ASSERT_EQ(disk.missed(&is_mapped), "");
    std::map<std::uint64_t, JournalContent> seen;
    std::size_t broken = 0;
    const std::vector<PowerCutCase> cases = test::power_cut_cases(disk, kMostStates);
    for (const PowerCutCase& c : cases) {
      const PowerCut::Disk state = disk.build(c.step, c.loss, c.seed);
      auto [entry, fresh] = seen.try_emplace(state.fingerprint());
      if (fresh) entry->second = open_copy(state);
      const std::string wrong = Promises(disk.marks_until(c.step)).broken_by(entry->second);
      EXPECT_EQ(wrong, "") << "power cut before step " << c.step << " of " << disk.steps() << " ("
                           << disk.step_text(c.step) << "), losing " << PowerCut::name_of(c.loss);
      if (!wrong.empty() && ++broken == 5) FAIL() << "and so on";
    }
    RecordProperty("states", static_cast<int>(seen.size()));
    std::printf("%zu calls, %zu power cuts, %zu different states\n", disk.steps(), cases.size(),
                seen.size());
  }

  JournalContent open_copy(const PowerCut::Disk& state) {
    const std::string copy = directory_.path_to("copy");
    fs::remove_all(copy);
    state.write_to(copy);
    return test::open_and_read(copy + "/journal", stored_);
  }

  test::StoredEvents stored_;
  std::size_t released_ = 0;
  test::TempDir directory_;
  test::RecordingLogger log_;
  const std::string disk_ = directory_.make_directory("disk");
  const std::string journal_ = disk_ + "/journal";
};

TEST_F(JournalPowerCutTest, NothingDurableIsLostAndNothingSettledComesAgainAtAnyStepOfThreeLives) {
  PowerCut disk(disk_);
  for (const unsigned seed : {1U, 2U, 3U}) ASSERT_NO_FATAL_FAILURE(work(disk, seed));
  disk.stop();
  EXPECT_GT(released_, 3U) << "nothing was left to the archive, so that was not tested";
  expect_promises_kept(disk);
}

TEST_F(JournalPowerCutTest, ACheckpointInTheMiddleOfWorkKeepsEverything) {
  std::stop_source never;
  PowerCut disk(disk_);
  {
    auto opened = Journal::open({.directory = journal_, .cache_bytes = 0}, log_, system_clock());
    ASSERT_TRUE(opened) << opened.error().message();
    for (const char* name : kWorkloadSinks) ASSERT_TRUE((*opened)->register_sink(name, {"*"}));
    // More than causes a checkpoint (32 MiB).
    for (int i = 0; i < 9; ++i) {
      const std::string id = "big-" + std::to_string(i);
      ASSERT_TRUE((*opened)->append({.source = "slurm",
                                     .event = workload_job(id, 4 << 20),
                                     .durable = [&disk, id](bool) { disk.mark("A " + id); }},
                                    never.get_token()));
      ASSERT_TRUE((*opened)->flush(std::chrono::steady_clock::now() + 30s));
    }
  }
  disk.stop();
  ASSERT_EQ(disk.missed(&is_mapped), "");
  // Each state has 40 MB, so only a few, around syncs and writes of the database itself.
  std::vector<std::size_t> steps;
  for (std::size_t step = 0; step <= disk.steps(); ++step) {
    if (disk.step_text(step).starts_with("sync") || disk.step_text(step).starts_with("truncate"))
      steps.push_back(step);
  }
  std::mt19937 random(7);
  std::shuffle(steps.begin(), steps.end(), random);
  if (std::getenv("SCRIPTORIUM_POWER_CUT") == nullptr)
    steps.resize(std::min<std::size_t>(steps.size(), 3));
  for (const std::size_t step : steps) {
    for (const PowerCut::Loss loss : {PowerCut::Loss::kEverything, PowerCut::Loss::kAny}) {
      EXPECT_EQ(Promises(disk.marks_until(step)).broken_by(open_copy(disk.build(step, loss, step))),
                "")
          << "power cut before step " << step << " (" << disk.step_text(step) << "), losing "
          << PowerCut::name_of(loss);
    }
  }
}

// Also cuts the start that finds a damaged journal, at each step of the quarantine.
TEST_F(JournalPowerCutTest, APowerCutWhileADamagedJournalIsPutAsideLosesNoMoreThanTheDamage) {
  std::stop_source never;
  const std::string source = directory_.path_to("source");
  {
    auto opened = Journal::open({.directory = source, .cache_bytes = 0}, log_, system_clock());
    ASSERT_TRUE(opened);
    for (const char* name : kWorkloadSinks) ASSERT_TRUE((*opened)->register_sink(name, {"*"}));
    const auto append = [&](int from, int to) {
      for (int i = from; i < to; ++i) {
        ASSERT_TRUE(
            (*opened)->append({.source = "slurm", .event = workload_job(std::to_string(i), 3000)},
                              never.get_token()));
      }
      ASSERT_TRUE((*opened)->flush(std::chrono::steady_clock::now() + 30s));
    };
    append(0, 60);
    opened->reset();  // moves -wal into the database
    opened = Journal::open({.directory = source, .cache_bytes = 0}, log_, system_clock());
    ASSERT_TRUE(opened);
    append(60, 80);
    // While it is open, so that the last twenty are in -wal alone, as after a crash.
    fs::create_directories(journal_);
    for (const char* file : {"journal.db", "journal.db-wal"})
      fs::copy_file(source + "/" + file, journal_ + "/" + file);
  }
  {
    std::fstream file(journal_ + "/journal.db", std::ios::in | std::ios::out | std::ios::binary);
    const auto pages = static_cast<std::streamoff>(fs::file_size(journal_ + "/journal.db") / 4096);
    for (const std::streamoff page : {pages / 2, pages - 2}) {
      file.seekp(page * 4096);
      file << std::string(64, '\xa5');
    }
  }
  // What the damage leaves without a power cut.
  const std::string whole = directory_.path_to("whole");
  fs::copy(journal_, whole);
  const JournalContent salvaged = test::open_and_read(whole, {});
  ASSERT_NE(salvaged.quarantined, "") << "the damage was not found";
  ASSERT_EQ(salvaged.problem, "");
  const std::set<std::string> kept = salvaged.sinks.at("archive").waiting;
  ASSERT_GT(kept.size(), 40U);
  for (int i = 60; i < 80; ++i)
    EXPECT_TRUE(kept.contains(std::to_string(i))) << i << " stood in -wal alone, and is lost";

  PowerCut disk(disk_);
  const JournalContent first = test::open_and_read(journal_, {});
  disk.stop();
  ASSERT_EQ(first.sinks.at("archive").waiting, kept);
  ASSERT_EQ(disk.missed(&is_mapped), "");
  std::set<std::uint64_t> seen;
  std::size_t broken = 0;
  for (const PowerCutCase& c : test::power_cut_cases(disk, kMostStates * 2 / 3)) {
    const PowerCut::Disk state = disk.build(c.step, c.loss, c.seed);
    if (!seen.insert(state.fingerprint()).second) continue;
    const JournalContent found = open_copy(state);
    EXPECT_EQ(found.problem, "") << "before step " << c.step << " (" << disk.step_text(c.step)
                                 << "), losing " << PowerCut::name_of(c.loss);
    if (found.problem.empty()) {
      for (const char* name : kWorkloadSinks) {
        EXPECT_EQ(found.sinks.at(name).waiting, kept)
            << name << " before step " << c.step << " (" << disk.step_text(c.step) << "), losing "
            << PowerCut::name_of(c.loss);
      }
    }
    if (HasFailure() && ++broken == 4) FAIL() << "and so on";
  }
  std::printf("%zu calls, %zu different states\n", disk.steps(), seen.size());
}

}  // namespace
}  // namespace scriptorium
