#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <random>
#include <set>

#include "core/journal/journal.h"
#include "core/journal/schema.h"
#include "tests/support/event_factory.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

using test::make_event;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

class JournalDamageTest : public testing::Test {
 protected:
  static constexpr int kJobs = 300;

  std::string file(const std::string& suffix = "") const {
    return dir_.path_to("journal/journal.db" + suffix);
  }
  Result<std::unique_ptr<Journal>> try_open() {
    return Journal::open({.directory = dir_.path_to("journal"), .cache_bytes = 0}, log_,
                         system_clock());
  }
  void open() {
    auto opened = try_open();
    ASSERT_TRUE(opened) << opened.error().message();
    journal_ = *std::move(opened);
  }
  bool flush() { return journal_->flush(std::chrono::steady_clock::now() + 30s); }
  // Jobs 1..kJobs, each with a script of its own; the sink has acknowledged the first ten and
  // refused the eleventh.
  void fill() {
    open();
    auto sink = journal_->register_sink("archive", {"*"});
    ASSERT_TRUE(sink);
    for (int i = 1; i <= kJobs; ++i) {
      const auto event = job(i);
      expected_[event->id] = *event->file("script")->bytes;
      journal_->append(
          {.source = "slurm",
           .event = event,
           .mark = CaptureMark{.entry = "job." + std::to_string(i), .event_id = event->id}},
          never_.get_token());
    }
    ASSERT_TRUE(flush());
    std::vector<Journal::Settle> settlements;
    for (std::uint64_t seq = 1; seq <= 10; ++seq)
      settlements.push_back({.sequence = seq, .outcome = Outcome::kAcknowledged});
    settlements.push_back({.sequence = 11, .outcome = Outcome::kRejected, .reason = "refused"});
    journal_->settle(*sink, settlements, 11);
    ASSERT_TRUE(flush());
  }
  static std::shared_ptr<const Event> job(int i) {
    std::mt19937_64 random(static_cast<std::uint64_t>(i));
    std::string script = "#!/bin/bash\n";
    for (int k = 0; k < 60; ++k) script += "run " + std::to_string(random()) + "\n";
    // No content is shared: one byte in it would cost every event that has it.
    return make_event(std::to_string(i), script, {"HOME=/home/alice", "JOB=" + std::to_string(i)});
  }
  // Everything that a sink gets; counts null events.
  struct Got {
    std::set<std::string> ids;
    int damaged = 0;
  };
  Got drain() {
    Got got;
    auto sink = journal_->register_sink("archive", {"*"});
    EXPECT_TRUE(sink);
    std::uint64_t after = journal_->cursor(*sink);
    while (true) {
      auto items = journal_->read(*sink, after, 100, 1U << 30);
      EXPECT_TRUE(items) << items.error().message();
      if (!items || items->empty()) break;
      for (const auto& item : *items) {
        after = item.sequence;
        if (!item.event) {
          ++got.damaged;
          continue;
        }
        got.ids.insert(item.event->id);
        EXPECT_EQ(*item.event->file("script")->bytes, expected_[item.event->id])
            << "never other bytes than were appended";
      }
    }
    return got;
  }
  std::string quarantine() const {
    for (const auto& entry : fs::directory_iterator(dir_.path_to("journal"))) {
      if (entry.path().filename().string().starts_with("bad.")) return entry.path();
    }
    return "";
  }
  void use_fixture(const std::string& name) {
    fs::create_directory(dir_.path_to("journal"));
    fs::copy_file(fs::path(SCRIPTORIUM_FIXTURES) / "journal" / name, file());
  }
  std::unique_ptr<Journal> open_read_only() {
    auto journal = Journal::open({.directory = dir_.path_to("journal"), .read_only = true}, log_,
                                 system_clock());
    EXPECT_TRUE(journal) << journal.error().message();
    return journal ? *std::move(journal) : nullptr;
  }
  void patch(const std::string& path, std::uint64_t at, std::string_view bytes) {
    std::fstream f(path, std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(static_cast<std::streamoff>(at));
    f.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    ASSERT_TRUE(f.good());
  }
  static constexpr int kBusyMs = 20'000;  // the journal's own thread may be writing
  void sql(const std::string& text) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(file().c_str(), &db), SQLITE_OK);
    sqlite3_busy_timeout(db, kBusyMs);
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(db, text.c_str(), nullptr, nullptr, &error), SQLITE_OK)
        << (error != nullptr ? error : "");
    sqlite3_close(db);
  }
  std::int64_t number(const char* query) {
    sqlite3* db = nullptr;
    sqlite3_stmt* statement = nullptr;
    EXPECT_EQ(sqlite3_open(file().c_str(), &db), SQLITE_OK);
    sqlite3_busy_timeout(db, kBusyMs);
    EXPECT_EQ(sqlite3_prepare_v2(db, query, -1, &statement, nullptr), SQLITE_OK);
    EXPECT_EQ(sqlite3_step(statement), SQLITE_ROW);
    const std::int64_t value = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return value;
  }
  void expect_intact() {
    auto result = journal_->verify();
    EXPECT_TRUE(result) << result.error().message();
  }

  test::TempDir dir_;
  test::RecordingLogger log_;
  std::stop_source never_;
  std::unique_ptr<Journal> journal_;
  std::map<std::string, std::string> expected_;
};

TEST_F(JournalDamageTest, RefusesANewerFormatAndLeavesItUntouched) {
  fill();
  journal_.reset();
  sql("PRAGMA user_version=5");
  const std::string before = dir_.read("journal/journal.db");
  auto refused = try_open();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind(), ErrorKind::kInvalidConfig);
  EXPECT_THAT(refused.error().message(), HasSubstr(file()));
  EXPECT_THAT(refused.error().message(), HasSubstr("found journal format 5"));
  EXPECT_THAT(refused.error().message(), HasSubstr("needs 4"));
  EXPECT_THAT(refused.error().message(), HasSubstr("install the newer Scriptorium"));
  EXPECT_EQ(dir_.read("journal/journal.db"), before);
  EXPECT_EQ(quarantine(), "");
}

TEST_F(JournalDamageTest, RefusesAnotherProgramsDatabase) {
  fs::create_directories(dir_.path_to("journal"));
  sql("PRAGMA application_id=1234; CREATE TABLE precious(x);");
  const std::string before = dir_.read("journal/journal.db");
  auto refused = try_open();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind(), ErrorKind::kInvalidConfig);
  EXPECT_THAT(refused.error().message(), HasSubstr("another program"));
  EXPECT_EQ(dir_.read("journal/journal.db"), before);
}

TEST_F(JournalDamageTest, AnEmptyFileBecomesAJournal) {
  dir_.write("journal/journal.db", "");
  open();
  EXPECT_TRUE(journal_->open_report().created);
  expect_intact();
}

TEST_F(JournalDamageTest, PutsGarbageAsideAndStartsAnew) {
  dir_.write("journal/journal.db", std::string(20'000, 'x'));
  open();
  EXPECT_EQ(journal_->open_report().quarantined, quarantine());
  EXPECT_EQ(
      dir_.read(fs::path(quarantine()).filename().string().insert(0, "journal/") + "/journal.db"),
      std::string(20'000, 'x'));
  EXPECT_TRUE(log_.has("JOURNAL_QUARANTINED"));
  EXPECT_FALSE(journal_->open_report().damage.empty());
  expect_intact();
}

TEST_F(JournalDamageTest, SavesWhatATruncatedJournalStillHolds) {
  fill();
  journal_.reset();
  const auto size = fs::file_size(file());
  fs::resize_file(file(), size / 2 + 1234);
  open();
  EXPECT_FALSE(journal_->open_report().quarantined.empty());
  EXPECT_EQ(fs::file_size(quarantine() + "/journal.db"), size / 2 + 1234)
      << "evidence stays as it was found";
  const auto got = drain();
  EXPECT_GT(got.ids.size(), 50U);
  EXPECT_EQ(got.damaged, 0);
  EXPECT_EQ(got.ids.size() + journal_->dead_letters("archive", 10)->size(),
            journal_->open_report().salvaged_events);
  expect_intact();
}

TEST_F(JournalDamageTest, AFlippedByteAnywhereCostsAtMostWhatItHit) {
  fill();
  journal_.reset();
  const std::string good = dir_.read("journal/journal.db");
  constexpr std::size_t kPage = 4096;
  std::mt19937_64 random(20261121);
  int quarantined = 0;
  // After damage to a table's first page nothing says where the rest of it is.
  const std::set<std::int64_t> roots{
      number("SELECT rootpage FROM sqlite_schema WHERE name='events'"),
      number("SELECT rootpage FROM sqlite_schema WHERE name='packs'")};
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    fs::remove_all(dir_.path_to("journal"));
    std::string bad = good;
    // The first rounds damage the first page, which has the header (except the two fields whose
    // damage is refused) and the schema.
    std::size_t at =
        round < 10 ? 100 + random() % (kPage - 100) : kPage + random() % (good.size() - kPage);
    while (roots.contains(static_cast<std::int64_t>(at / kPage + 1)))
      at = kPage + random() % (good.size() - kPage);
    bad[at] = static_cast<char>(bad[at] ^ (1U << (random() % 8)));
    if (round % 4 == 3) {  // a whole sector of zeros, as after a power cut
      const std::size_t sector = at / 512 * 512;
      if (sector >= 512) std::fill_n(bad.begin() + static_cast<std::ptrdiff_t>(sector), 512, '\0');
    }
    dir_.write("journal/journal.db", bad);
    open();
    const auto got = drain();
    quarantined += journal_->open_report().quarantined.empty() ? 0 : 1;
    // A page has at most a dozen events, and a page of an index has none.
    EXPECT_GE(got.ids.size(), static_cast<std::size_t>(kJobs) - 11 - 45)
        << "byte " << at << ", " << journal_->open_report().damage;
    if (journal_->open_report().quarantined.empty()) {
      EXPECT_EQ(got.ids.size() + static_cast<std::size_t>(got.damaged),
                static_cast<std::size_t>(kJobs) - 11)
          << "byte " << at;
    } else {
      expect_intact();
    }
    journal_.reset();
  }
  EXPECT_GT(quarantined, 3);
}

TEST_F(JournalDamageTest, ATableWhoseColumnHasAnotherNameIsMadeAnewWithAllThatItHeld) {
  fill();
  journal_.reset();
  const std::string good = dir_.read("journal/journal.db");
  for (const std::string column :
       {"acknowledged INTEGER", "last_attempt INTEGER", "captured_at INTEGER", "position BLOB"}) {
    SCOPED_TRACE(column);
    fs::remove_all(dir_.path_to("journal"));
    std::string bad = good;
    const std::size_t at = bad.find(column);
    ASSERT_LT(at, 4096U) << "in the first page, which holds the schema";
    bad[at] = static_cast<char>(bad[at] ^ 2);
    dir_.write("journal/journal.db", bad);
    open();
    EXPECT_THAT(journal_->open_report().damage, HasSubstr("not as it was made"));
    EXPECT_GE(drain().ids.size(), static_cast<std::size_t>(kJobs) - 11);
    expect_intact();
    journal_.reset();
  }
}

TEST_F(JournalDamageTest, AColumnOfALaterReleaseIsNoDamage) {
  fill();
  journal_.reset();
  sql("ALTER TABLE sinks ADD COLUMN later TEXT; ALTER TABLE positions ADD COLUMN later TEXT; "
      "CREATE TABLE later(a)");
  open();
  EXPECT_EQ(journal_->open_report().damage, "");
  EXPECT_EQ(drain().ids.size(), static_cast<std::size_t>(kJobs) - 11);
}

TEST_F(JournalDamageTest, ADamagedScriptBecomesADeadLetterOfItsSinkAndTheRestGoesOn) {
  fill();
  journal_.reset();
  // One pack's frame is damaged, another pack is missing.
  sql("UPDATE packs SET data=substr(data,1,length(data)-9)||x'00'||substr(data,length(data)-7) "
      "WHERE id=(SELECT pack FROM events "
      "WHERE seq=20)");
  sql("DELETE FROM packs WHERE id=(SELECT pack FROM events WHERE seq=30)");
  open();
  EXPECT_TRUE(journal_->open_report().quarantined.empty());
  EXPECT_FALSE(journal_->verify());
  const auto got = drain();
  EXPECT_EQ(got.damaged, 2);
  EXPECT_EQ(got.ids.size(), static_cast<std::size_t>(kJobs) - 11 - 2);
  ASSERT_TRUE(flush());
  const auto letters = journal_->dead_letters("archive", 10);
  ASSERT_TRUE(letters);
  ASSERT_THAT(*letters, SizeIs(3));
  EXPECT_EQ((*letters)[1].sequence, 20U);
  EXPECT_THAT((*letters)[1].reason, testing::StartsWith("journal: "));
  EXPECT_THAT((*letters)[1].reason, HasSubstr("script: pack damaged"));
  EXPECT_THAT((*letters)[2].reason, HasSubstr("script: pack is missing"));
  EXPECT_EQ((*letters)[1].job_id, "20");
  EXPECT_TRUE(log_.has("JOURNAL_EVENT_DAMAGED"));
  EXPECT_THAT(log_.text(), testing::Not(HasSubstr("#!/bin/bash"))) << "a log never shows a script";
}

TEST_F(JournalDamageTest, ADamagedBlobIsADeadLetterOfEachEventThatHasIt) {
  open();
  ASSERT_TRUE(journal_->register_sink("archive", {"*"}));
  // Large enough to be stored once for all events, and all different.
  for (int i = 1; i <= 6; ++i) {
    std::mt19937_64 random(static_cast<std::uint64_t>(i / 2));
    std::string script = "#!/bin/bash\n";
    for (int k = 0; k < 1000; ++k) script += "run " + std::to_string(random()) + "\n";
    const auto event = make_event(std::to_string(i), script);
    expected_[event->id] = *event->file("script")->bytes;
    journal_->append({.source = "slurm", .event = event}, never_.get_token());
  }
  ASSERT_TRUE(flush());
  journal_.reset();
  sql("UPDATE blobs SET data=substr(data,1,length(data)-9)||x'00'||substr(data,length(data)-7) "
      "WHERE id=(SELECT CAST(blobs AS "
      "INTEGER) FROM events WHERE seq=2)");
  sql("DELETE FROM blobs WHERE id=(SELECT CAST(blobs AS INTEGER) FROM events WHERE seq=6)");
  open();
  EXPECT_FALSE(journal_->verify());
  const auto got = drain();
  EXPECT_EQ(got.damaged, 3);
  EXPECT_EQ(got.ids.size(), 3U);
  ASSERT_TRUE(flush());
  const auto letters = journal_->dead_letters("archive", 10);
  ASSERT_TRUE(letters);
  ASSERT_THAT(*letters, SizeIs(3));
  EXPECT_THAT((*letters)[0].reason, HasSubstr("script damaged"));
  EXPECT_THAT((*letters)[1].reason, HasSubstr("script damaged"));
  EXPECT_THAT((*letters)[2].reason, HasSubstr("script is missing"));
}

// tests/fixtures/journal/format-3.db was written by the last program of format 3.
TEST_F(JournalDamageTest, AnOlderFormatIsRefusedAndNotChanged) {
  use_fixture("format-3.db");
  const auto before = read_file(file());
  for (const bool read_only : {true, false}) {
    const auto opened = Journal::open(
        {.directory = dir_.path_to("journal"), .read_only = read_only}, log_, system_clock());
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().kind(), ErrorKind::kInvalidConfig);
    EXPECT_THAT(
        opened.error().message(),
        HasSubstr("found journal format 3, this program needs 4; let the older Scriptorium"));
  }
  EXPECT_EQ(quarantine(), "");
  EXPECT_EQ(*read_file(file()), *before);
}

TEST_F(JournalDamageTest, AnOlderFormatsNumberInAJournalOfThisOneIsDamage) {
  fill();
  journal_.reset();
  sql("PRAGMA user_version=3");
  open();
  EXPECT_THAT(journal_->open_report().damage, HasSubstr("header or schema damaged"));
  EXPECT_EQ(journal_->open_report().salvaged_events, static_cast<std::uint64_t>(kJobs) - 10);
}

TEST_F(JournalDamageTest, ALostKeyIsReplacedAndTheMarksGetNewOnes) {
  fill();
  std::map<std::string, std::string> before;
  for (const CaptureMark& mark : journal_->marks("slurm")) before[mark.entry] = mark.capture_key;
  ASSERT_THAT(before, SizeIs(kJobs));
  journal_.reset();
  fs::remove(dir_.path_to("journal/capture.key"));
  open();
  EXPECT_TRUE(log_.has("CAPTURE_KEY_LOST"));
  EXPECT_TRUE(dir_.exists("journal/capture.key"));
  for (const CaptureMark& mark : journal_->marks("slurm")) {
    EXPECT_EQ(mark.capture_key, journal_->capture_key(mark.event_id));
    EXPECT_NE(mark.capture_key, before[mark.entry]);
  }
  expect_intact();
}

TEST_F(JournalDamageTest, ARefusedKeyEndsTheStartAndLeavesTheJournalAsItIs) {
  fill();
  journal_.reset();
  ASSERT_EQ(::chmod(dir_.path_to("journal/capture.key").c_str(), 0640), 0);
  const std::string before = dir_.read("journal/journal.db");
  auto refused = try_open();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind(), ErrorKind::kInvalidConfig);
  EXPECT_THAT(refused.error().message(), HasSubstr("capture.key: others than its owner"));
  EXPECT_EQ(dir_.read("journal/journal.db"), before);
  EXPECT_EQ(quarantine(), "");
}

TEST_F(JournalDamageTest, AFlippedCursorLeadsToDeliveryAgainAndNotToLoss) {
  fill();
  journal_.reset();
  sql("UPDATE sinks SET cursor=200");
  open();
  EXPECT_THAT(journal_->open_report().damage, HasSubstr("sink archive: checksum differs"));
  EXPECT_EQ(drain().ids.size(), static_cast<std::size_t>(kJobs) - 11);
  EXPECT_THAT(*journal_->dead_letters("archive", 10), SizeIs(1));
}

TEST_F(JournalDamageTest, AFlippedExceptionLeadsToDeliveryAgainAndNotToLoss) {
  fill();
  journal_.reset();
  sql("UPDATE exceptions SET seq=200");
  open();
  EXPECT_THAT(journal_->open_report().damage, HasSubstr("1 exceptions"));
  EXPECT_EQ(drain().ids.size(), static_cast<std::size_t>(kJobs) - 10)
      << "the refused one comes again";
}

TEST_F(JournalDamageTest, KeepsCursorsAndDeadLettersWhereOnlyEventsAreDamaged) {
  fill();
  journal_.reset();
  sql("PRAGMA writable_schema=ON; UPDATE sqlite_schema SET rootpage=999999 WHERE "
      "name='events_job';");
  open();
  EXPECT_FALSE(journal_->open_report().quarantined.empty());
  EXPECT_EQ(journal_->open_report().lost_events, 0U);
  EXPECT_EQ(journal_->open_report().salvaged_events, static_cast<std::uint64_t>(kJobs) - 10);
  EXPECT_EQ(drain().ids.size(), static_cast<std::size_t>(kJobs) - 11);
  EXPECT_THAT(*journal_->dead_letters("archive", 10), SizeIs(1));
  EXPECT_THAT(journal_->marks("slurm"), SizeIs(kJobs));
  expect_intact();
}

TEST_F(JournalDamageTest, DropsTheMarkOfALostEventSoThatItIsCapturedAgain) {
  fill();
  journal_.reset();
  sql("UPDATE events SET meta=x'00' WHERE seq=50; UPDATE sinks SET sum=0");
  open();
  EXPECT_EQ(journal_->open_report().lost_events, 1U);
  EXPECT_TRUE(log_.has("JOURNAL_EVENT_LOST"));
  std::promise<bool> fresh;
  journal_->append({.source = "slurm",
                    .event = job(50),
                    .durable = [&](bool is_fresh) { fresh.set_value(is_fresh); }},
                   never_.get_token());
  EXPECT_TRUE(fresh.get_future().get());
  EXPECT_EQ(drain().ids.size(), static_cast<std::size_t>(kJobs) - 11);
}

TEST_F(JournalDamageTest, StartsWithoutItsWal) {
  fill();
  // As after a crash: everything is still in -wal.
  fs::copy_file(file(), dir_.path_to("db"));
  fs::copy_file(file("-wal"), dir_.path_to("wal"));
  journal_.reset();
  fs::copy_file(dir_.path_to("db"), file(), fs::copy_options::overwrite_existing);
  open();
  drain();
  expect_intact();
  journal_.reset();

  // With the -wal of another journal, and with its own.
  fs::copy_file(dir_.path_to("db"), file(), fs::copy_options::overwrite_existing);
  dir_.write("journal/journal.db-wal", std::string(50'000, 'w'));
  open();
  drain();
  expect_intact();
  journal_.reset();

  fs::copy_file(dir_.path_to("db"), file(), fs::copy_options::overwrite_existing);
  fs::copy_file(dir_.path_to("wal"), file("-wal"), fs::copy_options::overwrite_existing);
  open();
  EXPECT_EQ(drain().ids.size(), static_cast<std::size_t>(kJobs) - 11);
  expect_intact();
}

TEST_F(JournalDamageTest, PutsAWalWithoutItsDatabaseAside) {
  dir_.write("journal/journal.db-wal", std::string(50'000, 'w'));
  open();
  EXPECT_TRUE(fs::exists(quarantine() + "/journal.db-wal"));
  EXPECT_THAT(journal_->open_report().damage, HasSubstr("missing"));
  expect_intact();
}

TEST_F(JournalDamageTest, ADamagedJournalCannotBeOpenedForReadingOnlyAndStaysWhereItIs) {
  dir_.write("journal/journal.db", std::string(20'000, 'x'));
  auto opened = Journal::open({.directory = dir_.path_to("journal"), .read_only = true}, log_,
                              system_clock());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().kind(), ErrorKind::kCorrupt);
  EXPECT_EQ(quarantine(), "");
}

TEST_F(JournalDamageTest, AnUnresolvedEventThatCannotBeReadBecomesADeadLetter) {
  open();
  ASSERT_TRUE(journal_->register_sink("archive", {"*"}));
  journal_->append({.source = "slurm", .event = job(1), .resolve_first = true}, never_.get_token());
  journal_->append({.source = "slurm", .event = job(2), .resolve_first = true}, never_.get_token());
  journal_->append({.source = "slurm", .event = job(3), .resolve_first = true}, never_.get_token());
  ASSERT_TRUE(flush());
  journal_.reset();
  sql("UPDATE unresolved SET meta=x'00' WHERE ticket=1; DELETE FROM packs WHERE id=2");
  open();
  const auto unresolved = journal_->unresolved("slurm", 0, 10);
  EXPECT_THAT(unresolved, SizeIs(2)) << "of the first not even the job is known";
  ASSERT_TRUE(flush());
  EXPECT_EQ(journal_->unresolved_count("slurm"), 2U);
  EXPECT_EQ(drain().damaged, 1);
  // The script is read when a sink is to get it.
  journal_->resolved(
      {{unresolved[0].ticket, unresolved[0].event}, {unresolved[1].ticket, unresolved[1].event}});
  ASSERT_TRUE(flush());
  expected_[job(3)->id] = *job(3)->file("script")->bytes;
  const auto got = drain();
  EXPECT_EQ(got.ids.size(), 1U);
  ASSERT_TRUE(flush());
  EXPECT_THAT(*journal_->dead_letters("archive", 10), SizeIs(2));
}

TEST_F(JournalDamageTest, AnUnresolvedEventThatCannotBeReadMayHaveBeenFilled) {
  open();
  ASSERT_TRUE(journal_->register_sink("archive", {"*"}));
  const auto copy = journal_->register_sink("copy", {"*"});
  ASSERT_TRUE(copy);
  const Journal::Fill progress{
      .sink = "copy", .archive = "archive", .state = Journal::Fill::State::kFilling};
  ASSERT_TRUE(journal_->set_fill(progress));
  ASSERT_TRUE(journal_->fill(progress, progress, {job(1)}));
  journal_->append({.source = "slurm", .event = job(1), .resolve_first = true}, never_.get_token());
  ASSERT_TRUE(flush());
  journal_.reset();
  sql("UPDATE unresolved SET meta=x'00'");
  open();
  EXPECT_THAT(journal_->unresolved("slurm", 0, 10), IsEmpty());
  ASSERT_TRUE(flush());
  EXPECT_EQ(journal_->unresolved_count("slurm"), 0U);
  EXPECT_EQ(drain().damaged, 1);
  ASSERT_TRUE(flush());
  EXPECT_THAT(*journal_->dead_letters("archive", 10), SizeIs(1));
}

// A quarantine that was not finished

class JournalQuarantineTest : public JournalDamageTest {
 protected:
  // A journal that was damaged and quarantined, with the rest in a new one.
  void SetUp() override {
    fill();
    journal_.reset();
    patch(file(), 5 * 4096, std::string(64, '\xff'));
    open();
    bad_ = quarantine();
    ASSERT_FALSE(bad_.empty());
    ASSERT_TRUE(fs::exists(bad_ + "/salvage.moved"));
    ASSERT_FALSE(fs::exists(bad_ + "/salvage.pending"));
    ASSERT_TRUE(journal_->append({.source = "slurm", .event = job(1000)}, never_.get_token()));
    ASSERT_TRUE(flush());
    journal_.reset();
  }
  bool opens() {
    auto opened = Journal::open({.directory = dir_.path_to("journal")}, log_, system_clock());
    if (opened) {
      journal_ = *std::move(opened);
    } else {
      error_ = opened.error().message();
    }
    return opened.has_value();
  }
  bool has(int i) { return journal_->event(job(i)->id).has_value(); }

  std::string bad_, error_;
};

TEST_F(JournalQuarantineTest, OneThatOnlyKeptItsMarkerNeverReplacesTheLiveJournal) {
  std::ofstream(bad_ + "/salvage.pending").put('x');
  ASSERT_TRUE(opens()) << error_;
  EXPECT_TRUE(has(1000));
  EXPECT_FALSE(fs::exists(bad_ + "/salvage.pending"));
}

TEST_F(JournalQuarantineTest, AMarkerThatCannotBeRemovedEndsTheStartWithItsName) {
  fs::create_directories(bad_ + "/salvage.pending/in the way");
  EXPECT_FALSE(opens());
  EXPECT_THAT(error_, HasSubstr("salvage.pending"));
  fs::remove_all(bad_ + "/salvage.pending");
  ASSERT_TRUE(opens()) << error_;
  EXPECT_TRUE(has(1000));
}

TEST_F(JournalQuarantineTest, ALogThatStayedBehindAfterAPowerCutIsPutWithItsDatabase) {
  // Only the rename of the database had reached the disk: what the log holds is nowhere else.
  for (const char* suffix : {"", "-shm"}) fs::remove(file() + suffix);
  fs::remove_all(bad_);
  const std::string other = dir_.path_to("other");
  {
    auto opened = Journal::open({.directory = other}, log_, system_clock());
    ASSERT_TRUE(opened);
    ASSERT_TRUE((*opened)->append({.source = "slurm", .event = job(2000)}, never_.get_token()));
    ASSERT_TRUE((*opened)->flush(std::chrono::steady_clock::now() + std::chrono::seconds{30}));
    fs::create_directory(bad_);
    std::ofstream(bad_ + "/salvage.pending").put('x');
    fs::copy_file(other + "/journal.db", bad_ + "/journal.db");
    fs::copy_file(other + "/journal.db-wal", file() + "-wal", fs::copy_options::overwrite_existing);
  }
  ASSERT_TRUE(opens()) << error_;
  EXPECT_TRUE(has(2000));
}

TEST_F(JournalQuarantineTest, ARestOfAnEarlierAttemptThatCannotBeRemovedEndsTheStart) {
  patch(file(), 5 * 4096, std::string(64, '\xff'));
  fs::create_directories(dir_.path_to("journal/journal.salvage-wal/in the way"));
  EXPECT_FALSE(opens());
  EXPECT_THAT(error_, HasSubstr("journal.salvage-wal"));
  fs::remove_all(dir_.path_to("journal/journal.salvage-wal"));
  ASSERT_TRUE(opens()) << error_;
}

// Damage found while it is in use

TEST_F(JournalDamageTest, DamageThatTheWriterFindsIsSaidOnceAndTheNextOpenSaves) {
  open();
  auto sink = journal_->register_sink("archive", {"*"});
  ASSERT_TRUE(sink);
  for (int i = 1; i <= 300; ++i)
    journal_->append({.source = "slurm", .event = job(i)}, never_.get_token());
  ASSERT_TRUE(flush());
  journal_.reset();
  open();
  ASSERT_FALSE(journal_->damaged());
  // The write of another process makes the writer drop its cached pages. Then no page but the first
  // belongs to a tree.
  sql("INSERT INTO positions VALUES('another', x'00'); PRAGMA wal_checkpoint(TRUNCATE)");
  const auto size = fs::file_size(file());
  for (std::uint64_t at = 4096; at < size; at += 4096) patch(file(), at, std::string(16, '\xee'));
  for (int i = 301; i <= 330; ++i)
    journal_->append({.source = "slurm", .event = job(i)}, never_.get_token());
  EXPECT_FALSE(journal_->flush(std::chrono::steady_clock::now() + std::chrono::seconds{30}))
      << "it does not wait for ever";
  EXPECT_TRUE(journal_->damaged());
  EXPECT_TRUE(log_.has("JOURNAL_DAMAGED"));
  EXPECT_FALSE(log_.has("JOURNAL_WRITE_FAILED")) << "nobody is told that nothing is lost";
  EXPECT_FALSE(journal_->retry_dead(std::nullopt, "")) << "who waits for an answer gets one";
  journal_.reset();
  EXPECT_TRUE(fs::exists(dir_.path_to("journal/salvage.wanted")));
  open();
  EXPECT_FALSE(fs::exists(dir_.path_to("journal/salvage.wanted")));
  EXPECT_NE(journal_->open_report().quarantined, "");
  expect_intact();
}

TEST_F(JournalDamageTest, AFillGoesOnAndSoDoesWhatWaitsForItsOwner) {
  open();
  for (const char* sink : {"archive", "new", "done"})
    ASSERT_TRUE(journal_->register_sink(sink, {"*"}));
  const auto unverified = std::make_shared<const Event>(test::make_unverified_event("4711"));
  ASSERT_TRUE(
      journal_->append({.source = "slurm", .event = unverified, .resolve_first = true}, {}));
  ASSERT_TRUE(flush());
  const auto waiting = journal_->unresolved("slurm", 0, 10);
  ASSERT_EQ(waiting.size(), 1U);
  journal_->resolved({{waiting[0].ticket, waiting[0].event}});
  using State = Journal::Fill::State;
  ASSERT_TRUE(journal_->set_fill({.sink = "new",
                                  .archive = "archive",
                                  .since = {7},
                                  .position = "a/b",
                                  .sent = 500,
                                  .total = 900,
                                  .state = State::kFilling}));
  ASSERT_TRUE(journal_->set_fill({.sink = "done", .archive = "archive", .state = State::kDone}));
  ASSERT_TRUE(flush());
  const auto before = journal_->unverified("slurm", Timestamp{INT64_MAX}, 10);
  ASSERT_TRUE(before && before->size() == 1U);
  journal_.reset();
  std::ofstream(dir_.path_to("journal/salvage.wanted")) << "database disk image is malformed";
  open();
  const auto fills = journal_->fills();
  ASSERT_EQ(fills.size(), 1U);
  EXPECT_EQ(fills[0].sink, "new");
  EXPECT_EQ(fills[0].archive, "archive");
  EXPECT_EQ(fills[0].since, Timestamp{7});
  EXPECT_EQ(fills[0].state, State::kCounting) << "from its beginning";
  EXPECT_EQ(fills[0].position + std::to_string(fills[0].sent + fills[0].total), "0");
  const auto after = journal_->unverified("slurm", Timestamp{INT64_MAX}, 10);
  ASSERT_TRUE(after && after->size() == 1U);
  EXPECT_EQ(after->front().number, before->front().number);
  EXPECT_EQ(after->front().noted_at, before->front().noted_at);
  EXPECT_EQ(event_json(*after->front().event), event_json(*before->front().event));
}

TEST_F(JournalDamageTest, WhatWasFoundInUseIsPutAsideEvenIfTheCheckFindsNothing) {
  fill();
  journal_.reset();
  std::ofstream(dir_.path_to("journal/salvage.wanted")) << "database disk image is malformed";
  open();
  EXPECT_THAT(journal_->open_report().damage, HasSubstr("malformed"));
  EXPECT_GE(journal_->open_report().salvaged_events, 290U);
  EXPECT_EQ(journal_->open_report().lost_events, 0U);
}

}  // namespace
}  // namespace scriptorium
