#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <random>

#include "tests/core/capture/simulated_spool.h"

// The table against a simple model: a scheduler makes, writes and removes entries at random moments
// between any two steps of capture, and at the end the model knows of each life of an entry what
// must have become of it.
//
//   SCRIPTORIUM_MODEL_SEED=n    only this interleaving (a failure prints it)
//   SCRIPTORIUM_MODEL_RUNS=n    so many for each method, instead of kRuns
namespace scriptorium::test {
namespace {

using std::chrono::milliseconds;
using Method = SimulatedSpool::Method;

constexpr std::uint64_t kRuns = 2000;

std::optional<std::uint64_t> number_from(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  return std::strtoull(text, nullptr, 10);
}

// One entry from its making to its removal.
struct Life {
  std::string key;
  std::string number;  // in both of its files
  std::string script;
  SimulatedSpool::FilePtr environment_file, script_file;
  int stage = 0;           // what of it is done, see Scheduler::go_on()
  bool is_whole = false;   // both files were closed
  bool has_bytes = false;  // of a file that was closed
  bool removed = false;
};

class Scheduler {
 public:
  Scheduler(SimulatedSpool& spool, std::uint64_t seed, bool reuses_names)
      : spool_(spool), random_(seed), reuses_names_(reuses_names) {}

  // One thing at random.
  void act() {
    switch (random_() % 12) {
      case 0: return begin();
      case 1: return remove_one();
      // What waits for room is taken together with what comes under the same name: a name that is
      // used again while its first entry waits is beyond what the table keeps apart.
      case 2: spool_.journal_full = !reuses_names_ && random_() % 3 == 0; return;
      case 3: spool_.over_share = !reuses_names_ && random_() % 4 == 0; return;
      case 4: spool_.unreadable = random_() % 8 == 0; return;
      case 5: spool_.advance(milliseconds(random_() % 50)); return;
      case 6: spool_.advance(milliseconds(random_() % 3 == 0 ? random_() % 3000 : 5)); return;
      case 7: spool_.begin_scan(); return;
      default: return go_on();
    }
  }
  void end_troubles() { spool_.journal_full = spool_.over_share = spool_.unreadable = false; }
  const std::vector<Life>& lives() const { return lives_; }
  std::mt19937_64& random() { return random_; }

 private:
  void begin() {
    std::vector<std::string> free;
    if (reuses_names_) {
      for (int i = 0; i < 4; ++i) {
        if (const std::string key = "job." + std::to_string(i); !spool_.stands(key))
          free.push_back(key);
      }
      if (free.empty()) return;
      spool_.advance(milliseconds(5));  // a name is not used again within one tick
    } else {
      free.push_back("job." + std::to_string(lives_.size()));
    }
    Life life;
    life.key = free[random_() % free.size()];
    // Of one length, so that only time and inode tell the lives of a name apart.
    life.number = std::to_string(100'000 + lives_.size());
    life.script = life.number + " life" + '\0';
    spool_.make_directory(life.key);
    lives_.push_back(std::move(life));
  }
  Life* pick() {
    std::vector<Life*> standing;
    for (Life& life : lives_) {
      if (!life.removed) standing.push_back(&life);
    }
    return standing.empty() ? nullptr : standing[random_() % standing.size()];
  }
  void go_on() {
    Life* life = pick();
    if (life == nullptr) return;
    switch (life->stage++) {
      case 0: life->environment_file = spool_.create(life->key, "environment"); return;
      case 1: return spool_.write(life->environment_file, life->number);
      case 2: return spool_.write(life->environment_file, std::string("=1\0", 3));
      case 3:
        life->has_bytes = true;
        return spool_.close(life->key, "environment", life->environment_file);
      case 4: life->script_file = spool_.create(life->key, "script"); return;
      case 5: return spool_.write(life->script_file, life->script.substr(0, 8));
      case 6: return spool_.write(life->script_file, life->script.substr(8));
      case 7: life->is_whole = true; return spool_.close(life->key, "script", life->script_file);
      case 8:  // closed once more, as it is
        if (random_() % 4 == 0) spool_.close(life->key, "script", life->script_file);
        return;
      default: return;
    }
  }
  void remove_one() {
    Life* life = pick();
    if (life == nullptr) return;
    life->removed = true;
    if (life->environment_file) spool_.remove_file(life->key, "environment");
    if (life->script_file) spool_.remove_file(life->key, "script");
    spool_.remove_directory(life->key);
  }

  SimulatedSpool& spool_;
  std::mt19937_64 random_;
  const bool reuses_names_;
  std::vector<Life> lives_;
};

int total(const std::map<std::string, int>& counts) {
  int sum = 0;
  for (const auto& [key, count] : counts) sum += count;
  return sum;
}

class EntryTableModelTest : public testing::TestWithParam<Method> {
 protected:
  // Runs one interleaving to its end, until nothing is left to do.
  void run(std::uint64_t seed, bool reuses_names) {
    spool_ = std::make_unique<SimulatedSpool>(GetParam(), true);
    scheduler_ = std::make_unique<Scheduler>(*spool_, seed, reuses_names);
    auto& random = scheduler_->random();
    spool_->meanwhile = [&] {
      while (random() % 3 == 0) scheduler_->act();
    };
    for (int i = 0; i < 60; ++i) {
      scheduler_->act();
      if (random() % 3 == 0) spool_->step();
    }
    spool_->meanwhile = [] {};
    scheduler_->end_troubles();
    for (int i = 0; i < 100; ++i) {
      if (i % 10 == 0) spool_->begin_scan();
      spool_->advance(milliseconds(500));
      spool_->step();
    }
  }
  template <typename Condition>
  auto count_captured(Condition condition) const {
    return std::count_if(spool_->captured.begin(), spool_->captured.end(), condition);
  }
  // What was whole, and stands or was told of with its content, is one whole event. If its
  // beginning had been taken when the time was up, the rest is at least in a second event.
  void expect_whole(const Life& life, bool name_is_unique) const {
    using Captured = SimulatedSpool::Captured;
    const auto whole =
        count_captured([&](const Captured& c) { return c.whole && c.script == life.script; });
    const auto in_part = count_captured([&](const Captured& c) {
      return !c.whole && (c.script + c.environment).find(life.number) != std::string::npos;
    });
    const auto script = count_captured([&](const Captured& c) { return c.script == life.script; });
    EXPECT_LE(whole, 1) << life.key;
    if (!life.is_whole || (life.removed && GetParam() != Method::kFanotify)) return;
    if (in_part == 0) {
      EXPECT_EQ(whole, 1) << life.key << ": " << life.script;
    } else if (name_is_unique && GetParam() != Method::kScan) {
      // A scan goes by the time of one file alone; and of a name that is used again the rest may
      // come together with the next entry's.
      EXPECT_GE(script, 1) << life.key << ": " << life.script;
    }
  }
  // Two lives of one name whose files are read before the removal of the first may come to be in
  // one event, and the table may count that name once more: it cannot know whose removal it reads.
  // So no life that has an event of its own is counted as missed too; and one that closed a file is
  // in no event only if a later life of its name has one, taken for the entry's file written once
  // more.
  void expect_lost_only_to_the_next_of_its_name() const {
    std::map<std::string, int> without_event;
    std::set<std::string> made_later;
    const auto& lives = scheduler_->lives();
    for (auto life = lives.rbegin(); life != lives.rend(); ++life) {
      bool is_in_one = false;
      bool has_one = false;
      for (const SimulatedSpool::Captured& event : spool_->captured) {
        const std::string text = event.script + event.environment;
        const auto is_in = [&](const Life& other) {
          return text.find(other.number) != std::string::npos;
        };
        if (!is_in(*life)) continue;
        is_in_one = true;
        has_one = has_one || std::count_if(lives.begin(), lives.end(), is_in) == 1;
      }
      EXPECT_TRUE(is_in_one || !life->has_bytes || made_later.contains(life->key)) << life->number;
      if (!has_one) ++without_event[life->key];
      if (life->environment_file) made_later.insert(life->key);
    }
    for (const auto& [key, times] : spool_->missed) EXPECT_LE(times, without_event[key]) << key;
  }
  std::set<std::string> standing() const {
    std::set<std::string> keys;
    for (const Life& life : scheduler_->lives()) {
      if (!life.removed) keys.insert(life.key);
    }
    return keys;
  }
  // What holds for every method and every interleaving.
  void expect_nothing_twice_and_no_residue(bool name_is_unique) {
    // An event of an entry that was taken in part may be made once more, with the same id, if files
    // of a removed entry of its name came in between.
    for (const SimulatedSpool::Captured& event : spool_->captured) {
      if (event.whole || name_is_unique) {
        EXPECT_EQ(spool_->ids.at(event.id), 1) << "the same event again";
      }
    }
    const EntryStore& entries = spool_->table().entries();
    const auto stand = standing();
    EXPECT_EQ(entries.all().size(), stand.size()) << "something of what is gone is remembered";
    EXPECT_EQ(entries.inspections(), 0U);
    EXPECT_EQ(entries.held_bytes(), 0U);
    EXPECT_TRUE(spool_->table().waiting().is_empty());
    for (const auto& [key, mark] : spool_->marks)
      EXPECT_TRUE(stand.contains(key)) << "a mark of what is gone: " << key;
  }

  std::unique_ptr<SimulatedSpool> spool_;
  std::unique_ptr<Scheduler> scheduler_;
};

template <typename Run>
void for_each_seed(Run run) {
  if (const auto only = number_from("SCRIPTORIUM_MODEL_SEED")) return run(*only);
  const std::uint64_t runs = number_from("SCRIPTORIUM_MODEL_RUNS").value_or(kRuns);
  std::random_device device;
  const std::uint64_t first = (std::uint64_t{device()} << 32U) | device();
  for (std::uint64_t i = 0; i < runs; ++i) {
    run(first + i);
    if (testing::Test::HasFailure()) {
      std::cout << "the interleaving of SCRIPTORIUM_MODEL_SEED=" << first + i << "\n";
      return;
    }
  }
}

// Each entry has a name of its own, so it can be told what became of it.
TEST_P(EntryTableModelTest, EachEntryIsCapturedOrMissedOrIgnoredAndNeverTwoOfThem) {
  for_each_seed([&](std::uint64_t seed) {
    run(seed, false);
    expect_nothing_twice_and_no_residue(true);
    for (const Life& life : scheduler_->lives()) {
      const auto missed = spool_->missed.find(life.key);
      const int times = missed == spool_->missed.end() ? 0 : missed->second;
      const bool taken = spool_->taken_keys.contains(life.key);
      const bool ignored = spool_->ignored.contains(life.key);
      EXPECT_LE(times, 1) << life.key;
      if (!taken && !ignored && GetParam() != Method::kScan) {
        EXPECT_EQ(times, 1) << life.key << " left no trace";
      }
      if (taken) {
        EXPECT_EQ(times, 0) << life.key << " was captured and counted as missed";
      }
      expect_whole(life, true);
      if (GetParam() == Method::kFanotify && life.has_bytes) {
        EXPECT_EQ(times, 0) << life.key;
      }
    }
  });
}

// Names are used again, as soon as the clock of the file system has moved on; inodes at once.
TEST_P(EntryTableModelTest, ANameThatIsUsedAgainIsAnotherEntry) {
  for_each_seed([&](std::uint64_t seed) {
    run(seed, true);
    expect_nothing_twice_and_no_residue(false);
    const auto& lives = scheduler_->lives();
    EXPECT_LE(total(spool_->missed), static_cast<int>(lives.size()));
    for (const Life& life : lives) expect_whole(life, false);
    if (GetParam() == Method::kFanotify) expect_lost_only_to_the_next_of_its_name();
  });
}

// What the marks prove unchanged is known, and not read; what has changed is.
TEST_P(EntryTableModelTest, AfterARestartOnlyWhatHasChangedIsReadAgain) {
  for_each_seed([&](std::uint64_t seed) {
    run(seed, false);
    std::set<std::string> whole;
    for (const Life& life : scheduler_->lives()) {
      if (!life.removed && life.is_whole) whole.insert(life.key);
    }
    const auto before = spool_->opened;
    const auto events = spool_->captured.size();
    spool_->restart();
    for (int i = 0; i < 20; ++i) spool_->step();
    for (const std::string& key : whole) {
      EXPECT_EQ(spool_->opened[key], before.at(key)) << key << " was read again";
      EXPECT_NE(spool_->table().record(key), nullptr) << key << " is not known";
    }
    EXPECT_EQ(spool_->captured.size(), events);
  });
}

INSTANTIATE_TEST_SUITE_P(Methods, EntryTableModelTest,
                         testing::Values(Method::kFanotify, Method::kInotify, Method::kScan),
                         [](const auto& info) {
                           return std::string(info.param == Method::kFanotify  ? "fanotify"
                                              : info.param == Method::kInotify ? "inotify"
                                                                               : "scan");
                         });

}  // namespace
}  // namespace scriptorium::test
