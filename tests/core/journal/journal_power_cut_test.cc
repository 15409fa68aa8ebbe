#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/journal/journal.h"
#include "tests/support/event_factory.h"
#include "tests/support/power_cut/power_cut.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

using namespace std::chrono_literals;
using test::PowerCut;
using test::PowerCutCase;
namespace fs = std::filesystem;

constexpr const char* kSinks[] = {"archive", "search"};
// Of a list that is shuffled: enough to find what is wrong at one step in fifty, in some seconds.
constexpr std::size_t kMostStates = 600;

bool mapped(const std::string& path) { return path.ends_with("-shm"); }

// What a journal holds, as a start finds it.
struct Found {
  std::string problem;  // why it did not open, or is not sound
  std::string quarantined;
  struct SinkView {
    bool known = false;
    std::set<std::string> waiting, parked, dead;
  };
  std::map<std::string, SinkView> sinks;
  std::set<std::string> unresolved;

  bool has(const std::string& sink, const std::string& job) const {
    const SinkView& view = sinks.at(sink);
    return unresolved.contains(job) || view.waiting.contains(job) || view.parked.contains(job) ||
           view.dead.contains(job);
  }
};

// What the sink "archive" can give back: every event that it was ever given.
using Stored = std::map<std::string, std::shared_ptr<const Event>>;
Journal::Archive archive_of(const Stored& stored) {
  return [&stored](const Event& locator) -> Result<std::shared_ptr<const Event>> {
    const auto found = stored.find(locator.job.id);
    if (found == stored.end()) return Error{ErrorKind::kVanished, "not in the archive"};
    return found->second;
  };
}

Found look_into(const std::string& directory, const Stored& stored = {}) {
  Found found;
  test::RecordingLogger log;
  auto opened = Journal::open({.directory = directory, .cache_bytes = 0}, log, system_clock());
  if (!opened) {
    found.problem = opened.error().message();
    return found;
  }
  Journal& journal = **opened;
  journal.set_archive(archive_of(stored));
  found.quarantined = journal.open_report().quarantined.empty() ? "" : journal.open_report().damage;
  if (auto sound = journal.verify(); !sound) found.problem = sound.error().message();
  for (const auto& item : journal.unresolved("slurm", 0, 100'000))
    found.unresolved.insert(item.event->job.id);
  for (const char* name : kSinks) {
    Found::SinkView& view = found.sinks[name];
    const auto known = journal.unregistered_sinks();
    view.known = std::find(known.begin(), known.end(), name) != known.end();
    auto sink = journal.register_sink(name, {"*"});
    auto items =
        sink ? journal.read(*sink, journal.cursor(*sink), 1'000'000, 1U << 31) : sink.error();
    auto parked = sink ? journal.parked(*sink, 1'000'000) : sink.error();
    auto letters = journal.dead_letters(name, 1'000'000);
    if (!items || !parked || !letters) {
      found.problem = "sink " + std::string(name) + " cannot be read";
      continue;
    }
    for (const auto& item : *items)
      view.waiting.insert(item.event ? item.event->job.id : "damaged");
    for (const auto& item : *parked)
      view.parked.insert(item.event ? item.event->job.id : "damaged");
    for (const auto& letter : *letters) view.dead.insert(letter.job_id);
  }
  return found;
}

// What was promised up to a step, as the marks say it: "A job" is durable; "T sink job outcome" was
// told to the journal; "C" all that was told is committed; "S" a start, before which what was not
// committed may or may not have come.
struct Promises {
  std::set<std::string> durable;
  std::map<std::string, std::map<std::string, std::set<std::string>>> told, committed,
      ever;  // sink -> job -> outcomes

  explicit Promises(const std::vector<std::string>& marks) {
    for (const std::string& mark : marks) {
      std::istringstream words(mark);
      std::string what, sink, job, outcome;
      words >> what;
      if (what == "A" && words >> job) durable.insert(job);
      if (what == "T" && words >> sink >> job >> outcome) {
        told[sink][job].insert(outcome);
        ever[sink][job].insert(outcome);
      }
      if (what == "C") committed = told;
    }
  }

  // "" or what was broken.
  std::string broken_by(const Found& found) const {
    if (!found.problem.empty()) return found.problem;
    if (!found.quarantined.empty()) return "taken for damaged: " + found.quarantined;
    for (const char* name : kSinks) {
      const Found::SinkView& view = found.sinks.at(name);
      const auto outcomes = [&](const auto& map, const std::string& job) {
        const auto sink = map.find(name);
        if (sink == map.end()) return std::set<std::string>{};
        const auto entry = sink->second.find(job);
        return entry == sink->second.end() ? std::set<std::string>{} : entry->second;
      };
      for (const std::string& job : durable) {
        if (!found.has(name, job) && !outcomes(ever, job).contains("acknowledged"))
          return job + " is lost to " + name;
      }
      const auto sink = committed.find(name);
      if (sink == committed.end()) continue;
      if (!view.known) return std::string("sink ") + name + " is forgotten";
      for (const auto& [job, said] : sink->second) {
        if (view.waiting.contains(job)) return job + " was settled and comes again to " + name;
        if (said.contains("acknowledged") && found.has(name, job) &&
            !found.unresolved.contains(job))
          return job + " was acknowledged by " + name + " and comes again";
        if (said.contains("dead") && !outcomes(ever, job).contains("acknowledged") &&
            !view.dead.contains(job))
          return job + " was a dead letter of " + name + " and is lost";
      }
    }
    return "";
  }
};

std::shared_ptr<const Event> job(const std::string& id, std::size_t bytes) {
  std::string script = "#!/bin/bash\n# " + std::to_string(std::hash<std::string>{}(id) % 9) + "\n";
  std::mt19937_64 lot(std::hash<std::string>{}(id));
  while (script.size() < bytes) script += static_cast<char>('!' + lot() % 90);
  return test::make_event(id, script);
}

class JournalPowerCutTest : public testing::Test {
 protected:
  // Appends, resolutions, settlements of two sinks, removal, and at the end of each life the
  // checkpoint of a close.
  void work(PowerCut& disk, unsigned seed) {
    std::stop_source never;
    std::mt19937 lot(seed);
    auto opened = Journal::open({.directory = journal_, .cache_bytes = 0}, log_, system_clock());
    ASSERT_TRUE(opened) << opened.error().message();
    Journal& journal = **opened;
    ASSERT_EQ(journal.open_report().quarantined, "");
    journal.set_archive(archive_of(stored_));
    std::map<std::string, Journal::SinkId> ids;
    std::map<std::string, std::uint64_t> after;
    for (const char* name : kSinks) {
      auto id = journal.register_sink(name, {"*"});
      ASSERT_TRUE(id) << id.error().message();
      ids[name] = *id;
      after[name] = journal.cursor(*id);
    }
    const auto flush = [&] {
      ASSERT_TRUE(journal.flush(std::chrono::steady_clock::now() + 30s));
      disk.mark("C");
    };
    for (int round = 0; round < 8; ++round) {
      for (unsigned i = 0; i <= lot() % 4; ++i) {
        const std::string id =
            std::to_string(seed) + "-" + std::to_string(round) + "-" + std::to_string(i);
        const auto event = job(id, lot() % 5 == 0 ? 20'000 : 200);
        stored_[id] = event;
        ASSERT_TRUE(
            journal.append({.source = "slurm",
                            .event = event,
                            .resolve_first = lot() % 3 == 0,
                            .mark = CaptureMark{.entry = "job." + id, .event_id = event->id},
                            .durable = [&disk, id](bool) { disk.mark("A " + id); }},
                           never.get_token()));
      }
      if (lot() % 2 == 0) {
        std::vector<Journal::Resolved> resolved;
        for (auto& item : journal.unresolved("slurm", 0, 5))
          resolved.push_back({item.ticket, item.event});
        journal.resolved(std::move(resolved));
      }
      for (const char* name : kSinks) {
        if (lot() % 3 == 0) continue;
        auto items = journal.read(ids[name], after[name], 1 + lot() % 6, 1U << 30);
        ASSERT_TRUE(items) << items.error().message();
        std::vector<Journal::Settle> settlements;
        for (const auto& item : *items) {
          const auto dice = lot() % 8;
          disk.mark(std::string("T ") + name + " " + item.event->job.id + " " +
                    (dice == 0   ? "dead"
                     : dice == 1 ? "parked"
                                 : "acknowledged"));
          settlements.push_back({.sequence = item.sequence,
                                 .outcome = dice == 0   ? Outcome::kRejected
                                            : dice == 1 ? Outcome::kRetry
                                                        : Outcome::kAcknowledged,
                                 .reason = "as the dice fell"});
          after[name] = std::max(after[name], item.sequence);
        }
        if (!settlements.empty()) journal.settle(ids[name], std::move(settlements), after[name]);
      }
      if (lot() % 2 == 0) flush();
      if (round % 3 == 2) release(journal);
    }
    flush();
  }

  // What the archive has acknowledged and the other sink still needs stays as what finds it there.
  void release(Journal& journal) {
    std::uint64_t after = 0;
    auto events = journal.releasable("archive", after, 100);
    ASSERT_TRUE(events) << events.error().message();
    released_ += events->size();
    const auto done = journal.release(*std::move(events));
    ASSERT_TRUE(done) << done.error().message();
  }

  // Opens what each power cut leaves, and holds it against what was promised by then.
  void expect_promises_kept(const PowerCut& disk) {
    ASSERT_EQ(disk.missed(&mapped), "");
    std::map<std::uint64_t, Found> seen;
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

  Found open_copy(const PowerCut::Disk& state) {
    const std::string copy = directory_.path_to("copy");
    fs::remove_all(copy);
    state.write_to(copy);
    return look_into(copy + "/journal", stored_);
  }

  Stored stored_;
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
    for (const char* name : kSinks) ASSERT_TRUE((*opened)->register_sink(name, {"*"}));
    // As much as makes a checkpoint of its own accord (32 MiB), and some more.
    for (int i = 0; i < 9; ++i) {
      const std::string id = "big-" + std::to_string(i);
      ASSERT_TRUE((*opened)->append({.source = "slurm",
                                     .event = job(id, 4 << 20),
                                     .durable = [&disk, id](bool) { disk.mark("A " + id); }},
                                    never.get_token()));
      ASSERT_TRUE((*opened)->flush(std::chrono::steady_clock::now() + 30s));
    }
  }
  disk.stop();
  ASSERT_EQ(disk.missed(&mapped), "");
  // Each state is 40 MB, so only a few, around where something is synced or the database itself is
  // written.
  std::vector<std::size_t> steps;
  for (std::size_t step = 0; step <= disk.steps(); ++step) {
    if (disk.step_text(step).starts_with("sync") || disk.step_text(step).starts_with("truncate"))
      steps.push_back(step);
  }
  std::mt19937 lot(7);
  std::shuffle(steps.begin(), steps.end(), lot);
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

// The start that finds a damaged journal is cut as well, at each step of putting it aside.
TEST_F(JournalPowerCutTest, APowerCutWhileADamagedJournalIsPutAsideLosesNoMoreThanTheDamage) {
  std::stop_source never;
  const std::string source = directory_.path_to("source");
  {
    auto opened = Journal::open({.directory = source, .cache_bytes = 0}, log_, system_clock());
    ASSERT_TRUE(opened);
    for (const char* name : kSinks) ASSERT_TRUE((*opened)->register_sink(name, {"*"}));
    const auto append = [&](int from, int to) {
      for (int i = from; i < to; ++i) {
        ASSERT_TRUE((*opened)->append({.source = "slurm", .event = job(std::to_string(i), 3000)},
                                      never.get_token()));
      }
      ASSERT_TRUE((*opened)->flush(std::chrono::steady_clock::now() + 30s));
    };
    append(0, 60);
    opened->reset();  // into the database
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
  // Without a power cut: what the damage leaves.
  const std::string whole = directory_.path_to("whole");
  fs::copy(journal_, whole);
  const Found salvaged = look_into(whole);
  ASSERT_NE(salvaged.quarantined, "") << "the damage was not found";
  ASSERT_EQ(salvaged.problem, "");
  const std::set<std::string> kept = salvaged.sinks.at("archive").waiting;
  ASSERT_GT(kept.size(), 40U);
  for (int i = 60; i < 80; ++i)
    EXPECT_TRUE(kept.contains(std::to_string(i))) << i << " stood in -wal alone, and is lost";

  PowerCut disk(disk_);
  const Found first = look_into(journal_);
  disk.stop();
  ASSERT_EQ(first.sinks.at("archive").waiting, kept);
  ASSERT_EQ(disk.missed(&mapped), "");
  std::set<std::uint64_t> seen;
  std::size_t broken = 0;
  for (const PowerCutCase& c : test::power_cut_cases(disk, 400)) {
    const PowerCut::Disk state = disk.build(c.step, c.loss, c.seed);
    if (!seen.insert(state.fingerprint()).second) continue;
    const Found found = open_copy(state);
    EXPECT_EQ(found.problem, "") << "before step " << c.step << " (" << disk.step_text(c.step)
                                 << "), losing " << PowerCut::name_of(c.loss);
    if (found.problem.empty()) {
      for (const char* name : kSinks) {
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
