// Check, rewriting and redaction of a catalog: what is damaged is found, what is intact survives,
// what is lost is named, and what was redacted is in no file.
#include "backends/catalog/maintenance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "backends/catalog/block.h"
#include "backends/catalog/move.h"
#include "backends/catalog/readable.h"
#include "backends/catalog/search.h"
#include "backends/catalog/store.h"
#include "backends/catalog/store_contents.h"
#include "core/base/sha256.h"
#include "tests/backends/catalog/catalog_events.h"
#include "tests/support/fake_clock.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::catalog {
namespace {

namespace fs = std::filesystem;
using namespace test_support;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kSegmentJobs = 60;
// A segment ends between two batches, and one of a move has up to 200 events.
constexpr std::int64_t kMostInSegment = kSegmentJobs + 200;

// Three users, some of whom are known later only, every fourth job with its use.
std::vector<Event> many_events(int jobs) {
  std::vector<Event> events;
  for (int i = 1; i <= jobs; ++i) {
    std::mt19937 random(static_cast<unsigned>(i));
    std::string script = "#!/bin/bash\n#SBATCH --time=00:10:00\nmodule load Tool/1\n";
    for (unsigned line = 0; line < 4 + random() % 60; ++line)
      script += "srun step_" + std::to_string(random() % 5000) + " --in data" +
                std::to_string(line) + "\n";
    Event event = job_at(std::to_string(1000 + i), i * 60, script);
    event.user.name = i % 5 == 0 ? "alice" : i % 2 == 0 ? "bob" : "carol";
    event.user.verified = i % 11 != 3;
    event.job.name = "run_" + std::to_string(i % 7);
    event.job.account = i % 3 == 0 ? "chem" : "bio";
    event.script->modules = {"Tool/1"};
    event.files[1].bytes = make_bytes(*event.files[1].bytes + "JOB=" + event.job.id + '\0');
    event.files[1].size = event.files[1].bytes->size();
    event.files[1].sha256 = sha256_hex(*event.files[1].bytes);
    if (i % 6 == 1 && event.user.verified) {
      Event first = event;
      first.user.verified = false;
      event.replaces = first.id;
      event.id = sha256_hex(first.id);
      events.push_back(std::move(first));
    }
    if (i % 8 == 0) events.push_back(usage_event(event, "FAILED", 2));
    events.push_back(event);
    if (i % 4 == 0) events.push_back(usage_event(event, "COMPLETED"));
  }
  return events;
}

std::string text_of(const MaintainedSink::Report& report) {
  std::string text;
  for (const auto& finding : report.findings)
    text += finding.place + ": " + finding.problem + (finding.lost ? " (lost)" : "") + "\n";
  return text;
}

// Every event that the catalog gives back whole, by its id.
std::map<std::string, std::string> all_events(const std::string& root) {
  std::map<std::string, std::string> events;
  auto catalog = open_catalog_reader(root);
  if (!catalog) return events;
  for (const SegmentInfo& info : list_segments(**catalog)) {
    auto segment = EventReader::open(root, info.id);
    if (!segment) continue;
    const auto keep = [&](const Result<Event>& event) {
      if (event) events[event->id] = event_json(*event, {.exact_times = true});
    };
    for (std::int64_t id = 1; id <= kMostInSegment; ++id) {
      const auto entry = (*segment)->rows().read_entry(id);
      if (!entry || !*entry) continue;
      if ((*entry)->record) keep((*segment)->submission(**entry));
      for (const std::int64_t record :
           (*segment)->later_records(id).value_or(std::vector<std::int64_t>{}))
        keep((*segment)->record(record));
    }
  }
  return events;
}

// Rows without what may differ: the family's number.
std::map<std::string, std::vector<JobRow>> all_rows(const std::string& root) {
  std::map<std::string, std::vector<JobRow>> rows;
  for (const std::int64_t id : segment_ids(root)) {
    auto segment = EventReader::open(root, id);
    EXPECT_TRUE(segment);
    const auto read = (*segment)->rows().read_range(0, 1'000'000, [&](JobEntry&& entry) {
      entry.row.family.reset();
      rows[entry.row.id].push_back(std::move(entry.row));
      return true;
    });
    EXPECT_TRUE(read);
  }
  return rows;
}

class MaintenanceTest : public ::testing::Test {
 protected:
  MaintenanceTest() {
    config_.root = directory_.path_to("catalog");
    config_.segment_jobs = kSegmentJobs;
  }

  void put(const std::vector<Event>& events, int steps_after = 0) {
    Store store(config_, "catalog", log_, clock_);
    ASSERT_TRUE(store.start());
    for (std::size_t at = 0; at < events.size(); at += 50) {
      std::vector<const Event*> batch;
      for (std::size_t i = at; i < std::min(at + 50, events.size()); ++i)
        batch.push_back(&events[i]);
      for (const Stored& stored : store.put(batch))
        ASSERT_NE(stored.kind, Stored::Kind::kFailed) << stored.error->message();
      ASSERT_TRUE(store.tidy());
    }
    for (int step = 0; step < steps_after; ++step) ASSERT_TRUE(store.tidy());
    store.close();
  }
  void change(std::int64_t segment, const std::string& sql) const {
    auto db = open_segment_writer(config_.root, segment);
    ASSERT_TRUE(db);
    (*db)->execute(sql);
    const auto error = (*db)->take_error();
    ASSERT_FALSE(error) << sql << ": " << error->message();
    ASSERT_GT((*db)->changes(), 0) << sql;
  }
  std::string found() {
    const auto report = maintenance_.check({});
    return report ? text_of(*report) : report.error().message();
  }
  MaintainedSink::Report rebuild() {
    auto report = maintenance_.rewrite(MaintainedSink::Rewrite::kDamaged, {});
    EXPECT_TRUE(report) << report.error().message();
    return report ? *report : MaintainedSink::Report{};
  }

  test::TempDir directory_;
  test::RecordingLogger log_;
  test::FakeClock clock_;
  CatalogConfig config_;
  Maintenance maintenance_{config_, clock_};
};

TEST_F(MaintenanceTest, AnIntactCatalogHasNoFindingsAndIsLeftAlone) {
  EXPECT_EQ(maintenance_.check({}).error().kind(), ErrorKind::kVanished);
  put(many_events(150));
  const auto report = maintenance_.check({});
  ASSERT_TRUE(report);
  EXPECT_EQ(text_of(*report), "");
  EXPECT_EQ(report->figures.at("segments"), 3U);
  EXPECT_EQ(report->figures.at("jobs"), 150U);
  EXPECT_GT(report->figures.at("blocks"), 5U);
  const auto stats = maintenance_.stats();
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->figures.at("jobs"), 150U);
  EXPECT_GT(stats->figures.at("rows_bytes"), 10'000U);
  EXPECT_EQ(rebuild().figures.at("segments_rewritten"), 0U);
}

TEST_F(MaintenanceTest, TwoOfTheseCallsExcludeEachOther) {
  put(many_events(10));
  std::optional<ErrorKind> second;
  const MaintainedSink::Control control{
      .stop = {}, .progress = [&](std::string_view, std::uint64_t, std::uint64_t) {
        const auto refused = Maintenance(config_, clock_).check({});
        if (!refused) second = refused.error().kind();
      }};
  ASSERT_TRUE(maintenance_.check(control));
  EXPECT_EQ(second, ErrorKind::kExhausted);
}

// One damage of each table and column that a reader or a search relies on.
TEST_F(MaintenanceTest, EachWrongRowIsFoundAndMadeRight) {
  put(many_events(100));
  const auto events = all_events(config_.root);
  const auto rows = all_rows(config_.root);
  ASSERT_GT(events.size(), 120U);
  const std::string whole = config_.root + ".whole";
  fs::copy(config_.root, whole, fs::copy_options::recursive);
  const std::vector<std::string> damages{
      "UPDATE names SET text = 'nobody' WHERE text = 'bob'",
      "UPDATE names SET field = 77 WHERE text = 'chem'",
      "DELETE FROM names WHERE text = 'COMPLETED'",
      "UPDATE owners SET name = 'nobody' WHERE name = 'bob'",
      "DELETE FROM owners WHERE name = 'alice'",
      "UPDATE jobs SET time = time + 1 WHERE id = 7",
      "UPDATE jobs SET job = 1 WHERE id = 7",
      "UPDATE jobs SET user = NULL WHERE id = 7",
      "UPDATE jobs SET flags = 1 - (flags & 1) WHERE id = 7",
      "UPDATE jobs SET script = (SELECT script FROM jobs WHERE id = 8) WHERE id = 7",
      "UPDATE jobs SET environment = (SELECT environment FROM jobs WHERE id = 8) WHERE id = 7",
      "UPDATE jobs SET record = (SELECT record FROM jobs WHERE id = 9) WHERE id = 7",
      "UPDATE jobs SET record = NULL WHERE id = 7",
      "UPDATE jobs SET script = NULL WHERE id = 7",
      "UPDATE jobs SET family = NULL WHERE id = 7",
      "UPDATE jobs SET family = 4711 WHERE id = 7",
      "UPDATE jobs SET modules = NULL WHERE id = 7",
      "UPDATE jobs SET owner = (SELECT owner FROM jobs WHERE owner <> (SELECT owner FROM jobs "
      "WHERE id = 7)) WHERE id = 7",
      "DELETE FROM jobs WHERE id = 7",
      "UPDATE outcomes SET elapsed = 1 WHERE job = (SELECT min(job) FROM outcomes)",
      "UPDATE outcomes SET state = NULL",
      "DELETE FROM outcomes WHERE job = (SELECT min(job) FROM outcomes)",
      "DELETE FROM later WHERE job = (SELECT min(job) FROM later)",
      "UPDATE later SET job = 4711 WHERE job = (SELECT min(job) FROM later)",
      "UPDATE contents SET place = place + 1 WHERE block NOT NULL",
      "UPDATE contents SET block = 4711 WHERE id = (SELECT min(id) FROM contents WHERE block NOT "
      "NULL)",
      "UPDATE contents SET key = key + 1 WHERE key NOT NULL",
      "UPDATE contents SET sha = zeroblob(32), key = 0 WHERE id = (SELECT min(script) FROM jobs)",
      "UPDATE contents SET owner = owner + 1 WHERE id = (SELECT record FROM jobs WHERE id = 7)",
      "DELETE FROM contents WHERE id = (SELECT script FROM jobs WHERE id = 7)",
      "UPDATE pending SET owner = owner + 1",
      "UPDATE pending SET newest = newest - 2, oldest = oldest - 2 WHERE kind = 0",
      "UPDATE blocks SET garbage = garbage + 1 WHERE id = (SELECT min(id) FROM blocks)",
      "UPDATE blocks SET raw = raw + 1 WHERE id = (SELECT min(id) FROM blocks)",
      "UPDATE blocks SET ids = x'0101' WHERE id = (SELECT min(id) FROM blocks)",
      "UPDATE blocks SET owner = owner + 1 WHERE id = (SELECT min(id) FROM blocks)",
      "UPDATE script_blocks SET newest = 0, oldest = 0",
      "UPDATE script_blocks SET young = 1 - young",
      "DELETE FROM script_blocks",
      "UPDATE pairs SET filter = zeroblob(length(filter))",
      "UPDATE places SET list = zeroblob(length(list))",
      "DELETE FROM pairs",
      "INSERT INTO words(words) VALUES('delete-all')",
      "INSERT INTO words(rowid, w) VALUES(4711, 'word')",
      "UPDATE chunks SET newest = newest - 1",
      "DELETE FROM chunks",
      "DELETE FROM fields",
      "DELETE FROM fields WHERE id >> 32 = 109",
      "UPDATE fields SET list = zeroblob(1)",
      "UPDATE daily SET jobs = jobs + 1",
      "DELETE FROM daily",
      "PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'jobs_job'",
  };
  for (const std::string& damage : damages) {
    SCOPED_TRACE(damage);
    fs::remove_all(config_.root);
    fs::copy(whole, config_.root, fs::copy_options::recursive);
    // What waits is in the newest segment.
    ASSERT_NO_FATAL_FAILURE(change(damage.starts_with("UPDATE pending") ? 2 : 1, damage));
    EXPECT_NE(found(), "");
    const auto report = rebuild();
    EXPECT_EQ(text_of(report), "");
    EXPECT_EQ(report.figures.at("segments_rewritten"), 1U);
    EXPECT_EQ(found(), "");
    EXPECT_EQ(all_events(config_.root), events);
    EXPECT_EQ(all_rows(config_.root), rows);
  }
}

TEST_F(MaintenanceTest, AWrongListOfFrequentWordsIsFoundAndMadeRight) {
  std::vector<Event> events;
  for (int i = 0; i < 3 * static_cast<int>(kSegmentJobs); ++i) {
    events.push_back(job_at(std::to_string(i), i, i % 2 == 0 ? "srun needle" : "srun thread"));
    events.back().user = {.name = "user" + std::to_string(i / 4), .id = "1000", .verified = true};
  }
  put(events, /*steps_after=*/50);
  EXPECT_EQ(found(), "");
  const std::string whole = config_.root + ".whole";
  fs::copy(config_.root, whole, fs::copy_options::recursive);
  for (const char* const damage :
       {"UPDATE frequent SET scripts = (SELECT scripts FROM frequent WHERE word = x'6e6565646c65') "
        "WHERE word = x'746872656164'",
        "UPDATE frequent SET scripts = x'28b52ffd' WHERE word = x'746872656164'",
        "UPDATE frequent SET scripts = (SELECT scripts FROM frequent WHERE word = x'2d') WHERE "
        "word "
        "= "
        "x'20'",
        "DELETE FROM frequent WHERE word = x'20'"}) {
    SCOPED_TRACE(damage);
    fs::remove_all(config_.root);
    fs::copy(whole, config_.root, fs::copy_options::recursive);
    ASSERT_NO_FATAL_FAILURE(change(1, damage));
    EXPECT_THAT(found(), HasSubstr("the list of frequent words"));
    EXPECT_EQ(rebuild().figures.at("segments_rewritten"), 1U);
    EXPECT_EQ(found(), "");
  }
}

TEST_F(MaintenanceTest, AMissingPairOfFrequentWordsIsFound) {
  std::vector<Event> events;
  for (int i = 0; i < 3 * static_cast<int>(kSegmentJobs); ++i) {
    events.push_back(
        job_at(std::to_string(i), i, i % 2 == 0 ? "srun needle thread" : "needle thread"));
    events.back().user = {.name = "user" + std::to_string(i / 4), .id = "1000", .verified = true};
  }
  put(events, /*steps_after=*/50);
  EXPECT_EQ(found(), "");
  {
    auto db = sqlite::Connection::open(segment_file(config_.root, 1),
                                       sqlite::Connection::Mode::kReadWrite);
    ASSERT_TRUE(db);
    const auto list =
        Block::unpack(*(*db)->text("SELECT scripts FROM frequent WHERE word = x'6e6565646c65'"));
    ASSERT_EQ(list->size(), 3U);
    ASSERT_EQ((*list)[2], "thread ");
    ASSERT_TRUE((*db)->run("UPDATE frequent SET scripts = ? WHERE word = x'6e6565646c65'",
                           sqlite::Blob{pack_block({(*list)[0], (*list)[1], ""}, 1)}));
  }
  EXPECT_THAT(found(), HasSubstr("has word pairs that the lists of frequent words lack"));
  EXPECT_EQ(rebuild().figures.at("segments_rewritten"), 1U);
  EXPECT_EQ(found(), "");
}

TEST_F(MaintenanceTest, WhatIsLostIsNamedAndCompletedByAnotherDelivery) {
  const std::vector<Event> events = many_events(20);
  put(events);
  const auto before = all_events(config_.root);
  const auto rows = all_rows(config_.root);
  change(1,
         "UPDATE pending SET base = NULL, data = x'00112233' WHERE id IN (SELECT environment FROM "
         "jobs WHERE job = 1015 UNION SELECT record FROM jobs WHERE job = 1006 UNION SELECT record "
         "FROM later WHERE job IN (SELECT id FROM jobs WHERE job = 1012))");
  EXPECT_THAT(found(), AllOf(HasSubstr("job 1015"), HasSubstr("job 1006"), HasSubstr("job 1012")));
  const auto report = rebuild();
  EXPECT_THAT(text_of(report), AllOf(HasSubstr("job 1015: its environment is lost (event " +
                                               job_at("1005", 300).id.substr(0, 0)),
                                     HasSubstr("job 1006: is lost (event "),
                                     HasSubstr("job 1012: what it used is lost (lost)")));
  EXPECT_TRUE(fs::exists(segment_file(config_.root, 1) + ".damaged"));
  // What is still here is readable.
  EXPECT_GE(all_events(config_.root).size(), before.size() - 3);
  EXPECT_THAT(found(), AllOf(HasSubstr("job 1015: its environment is lost (lost)"),
                             HasSubstr("000001.db.damaged: was kept")));
  // `sinks fill`
  put(events);
  EXPECT_EQ(all_events(config_.root), before);
  EXPECT_EQ(all_rows(config_.root), rows);
  for (const char* ending : {"", "-wal", "-shm"})
    fs::remove(segment_file(config_.root, 1) + ".damaged" + ending);
  EXPECT_EQ(found(), "");
}

TEST_F(MaintenanceTest, ADamagedListOfSegmentsIsMadeFromTheirFiles) {
  put(many_events(100));
  const auto events = all_events(config_.root);
  const auto rows = all_rows(config_.root);
  for (const int size : {0, 100, 3000, 5000}) {
    SCOPED_TRACE(size);
    // The daemon has it open meanwhile.
    Store store(config_, "catalog", log_, clock_);
    ASSERT_TRUE(store.start());
    fs::resize_file(catalog_file(config_.root), static_cast<std::uintmax_t>(size));
    EXPECT_NE(found(), "");
    const auto report = rebuild();
    EXPECT_EQ(text_of(report), "");
    EXPECT_EQ(report.figures.at("catalog_db_rewritten"), 1U);
    EXPECT_EQ(found(), "");
    const Event later = job_at(std::to_string(5000 + size), 1'000'000);
    const auto stored = store.put({&later});
    ASSERT_EQ(stored[0].kind, Stored::Kind::kStored) << stored[0].error->message();
    store.close();
    EXPECT_EQ(found(), "");
    auto now = all_events(config_.root);
    EXPECT_EQ(now.erase(later.id), 1U);
    for (const auto& [id, event] : events) EXPECT_EQ(now[id], event);
  }
}

TEST_F(MaintenanceTest, ADaemonThatWritesMeanwhileLosesNothing) {
  const std::vector<Event> first = many_events(150);
  put(first);
  change(1, "DELETE FROM fields");
  change(2, "DELETE FROM fields");
  change(3, "DELETE FROM fields");
  const auto before = all_events(config_.root);
  // The end of jobs that are being moved, some once more, and new jobs.
  std::vector<Event> events;
  for (int i = 0; i < 150; ++i) {
    events.push_back(usage_event(first[static_cast<std::size_t>(i)], "TIMEOUT", 5));
    events.push_back(first[static_cast<std::size_t>(i)]);
    events.push_back(job_at(std::to_string(9000 + i), 100'000 + i));
  }
  std::jthread daemon([&] {
    Store store(config_, "catalog", log_, clock_);
    EXPECT_TRUE(store.start());
    for (const Event& event : events) {
      const auto stored = store.put({&event});
      EXPECT_NE(stored[0].kind, Stored::Kind::kFailed) << stored[0].error->message();
      EXPECT_TRUE(store.tidy());
    }
    store.close();
  });
  const auto report = rebuild();
  daemon.join();
  EXPECT_EQ(text_of(report), "");
  EXPECT_EQ(report.figures.at("segments_rewritten"), 3U);
  EXPECT_EQ(found(), "");
  auto after = all_events(config_.root);
  for (const auto& [id, event] : before) EXPECT_EQ(after[id], event);
  for (const Event& event : events)
    EXPECT_TRUE(after.contains(event.id) || event.replaces || !event.user.verified) << event.job.id;
  for (const auto& [job, rows] : all_rows(config_.root))
    EXPECT_EQ(rows.size(), 1U) << "job " << job;
}

TEST_F(MaintenanceTest, AnInterruptedRewriteIsContinued) {
  put(many_events(150));
  const auto events = all_events(config_.root);
  const auto rows = all_rows(config_.root);
  change(2, "DELETE FROM fields");
  std::stop_source stop;
  const MaintainedSink::Control control{
      .stop = stop.get_token(),
      .progress = [&](std::string_view step, std::uint64_t, std::uint64_t) {
        if (step.ends_with("writing")) stop.request_stop();
      }};
  const auto stopped = maintenance_.rewrite(MaintainedSink::Rewrite::kDamaged, control);
  ASSERT_TRUE(stopped);
  EXPECT_TRUE(stopped->interrupted);
  EXPECT_THAT(found(), HasSubstr("segments/000002.db: was being rewritten"));
  // Nothing is missing for who asks for an event.
  Archive archive(config_.root);
  for (const Event& event : many_events(150)) {
    if (events.contains(event.id)) {
      EXPECT_TRUE(archive.fetch(event)) << event.job.id;
    }
  }
  // And who asks for a job, or its family, finds it once.
  const auto search = make_search(config_.root, clock_);
  std::set<std::uint64_t> families;
  std::size_t jobs = 0;
  for (const auto& [id, known] : rows) {
    const auto records = search->get({.id = id}, {}, 10);
    ASSERT_TRUE(records) << records.error().message();
    EXPECT_EQ(records->size(), known.size()) << id;
    for (const auto& record : *records) {
      if (record.job.family) families.insert(*record.job.family);
      jobs += record.job.family ? 1 : 0;
    }
  }
  std::size_t of_families = 0;
  for (const std::uint64_t family : families)
    of_families += search->family(family, {}, std::nullopt, 1'000)->size();
  EXPECT_EQ(of_families, jobs);
  EXPECT_GT(jobs, 50U);
  EXPECT_EQ(rebuild().figures.at("segments_rewritten"), 1U);
  EXPECT_EQ(found(), "");
  EXPECT_EQ(all_events(config_.root), events);
  EXPECT_EQ(all_rows(config_.root), rows);
}

TEST_F(MaintenanceTest, CompactingRewritesWhatHasMuchGarbage) {
  // Captures that were followed by longer ones.
  std::vector<Event> first;
  std::vector<Event> longer;
  for (int i = 0; i < 40; ++i) {
    const std::string id = std::to_string(i);
    first.push_back(job_at(id, i, "#!/bin/sh\n" + std::string(9'000, 'a') + id));
    longer.push_back(job_at(id, i, "#!/bin/sh\n" + std::string(9'000, 'a') + id + "b"));
    longer.back().supersedes = first.back().id;
  }
  put(first);
  put(longer);
  const auto stored = all_events(config_.root);
  const auto compact = [&] {
    const auto report = maintenance_.rewrite(MaintainedSink::Rewrite::kUnpacked, {});
    EXPECT_TRUE(report);
    return report->figures.at("segments_rewritten");
  };
  ASSERT_GT(maintenance_.stats()->figures.at("contents_unused"), 10U);
  EXPECT_EQ(compact(), 1U);
  EXPECT_EQ(maintenance_.stats()->figures.at("contents_unused"), 0U);
  EXPECT_EQ(compact(), 0U);
  EXPECT_EQ(all_events(config_.root), stored);
  EXPECT_EQ(found(), "");
}

// ---- damage of the bytes

std::string damage(const std::string& root, unsigned seed) {
  std::mt19937 generator(seed);
  const auto random = [&](std::size_t below) { return generator() % below; };
  std::vector<std::string> files{segment_file(root, 1), segment_file(root, 2)};
  if (seed % 10 == 0) files = {catalog_file(root)};
  const std::string file = files[random(files.size())];
  const std::size_t size = fs::file_size(file);
  std::string bytes(size, '\0');
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.read(bytes.data(), static_cast<std::streamsize>(size));
  std::string what = fs::path(file).filename().string();
  switch (random(4)) {
    case 0: {
      const std::size_t bits = 1 + random(8);
      for (std::size_t i = 0; i < bits; ++i)
        bytes[random(size)] ^= static_cast<char>(1U << random(8));
      what += ": " + std::to_string(bits) + " bits";
      break;
    }
    case 1: {
      const std::size_t at = random(size);
      const std::size_t count = std::min(size - at, 1 + random(600));
      for (std::size_t i = 0; i < count; ++i) bytes[at + i] = static_cast<char>(random(256));
      what += ": " + std::to_string(count) + " bytes at " + std::to_string(at);
      break;
    }
    case 2: {
      const std::size_t page = random(size / 4096);
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(page * 4096), 4096, '\0');
      what += ": page " + std::to_string(page);
      break;
    }
    default: {
      stream.close();
      const std::size_t left = random(size);
      fs::resize_file(file, left);
      return what + ": cut to " + std::to_string(left);
    }
  }
  stream.seekp(0);
  stream.write(bytes.data(), static_cast<std::streamsize>(size));
  return what;
}

// SCRIPTORIUM_DAMAGE=seed takes one of them; SCRIPTORIUM_CATALOG_CASES=N so many.
TEST_F(MaintenanceTest, DamagedFilesAreFoundReadAsFarAsTheyAreIntactAndRepaired) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  unsigned cases = 40;
#else
  unsigned cases = 200;
#endif
  const char* const only = std::getenv("SCRIPTORIUM_DAMAGE");
  if (const char* more = std::getenv("SCRIPTORIUM_CATALOG_CASES"))
    cases = static_cast<unsigned>(std::atoi(more));
  put(many_events(100));
  const auto events = all_events(config_.root);
  const std::string whole = config_.root + ".whole";
  fs::copy(config_.root, whole, fs::copy_options::recursive);
  unsigned harmless = 0;
  std::size_t kept = 0;
  for (unsigned seed = 0; seed < cases; ++seed) {
    if (only != nullptr && seed != static_cast<unsigned>(std::atoi(only))) continue;
    fs::remove_all(config_.root);
    fs::copy(whole, config_.root, fs::copy_options::recursive);
    SCOPED_TRACE(std::to_string(seed) + ": " + damage(config_.root, seed));
    const std::string findings = found();
    const auto left = all_events(config_.root);
    if (findings.empty()) {
      ++harmless;
      ASSERT_EQ(left, events) << "and check finds nothing";
      continue;
    }
    const auto report = rebuild();
    for (const auto& finding : report.findings) EXPECT_TRUE(finding.lost);
    const auto again = maintenance_.check({});
    ASSERT_TRUE(again);
    for (const auto& finding : again->findings)
      EXPECT_TRUE(finding.lost) << finding.place << ": " << finding.problem
                                << "\nbefore: " << findings;
    const auto after = all_events(config_.root);
    kept += after.size();
    // What was whole before is so now; what is not, is named.
    const std::string named = text_of(report);
    const bool all_lost = named.find("all events") != std::string::npos;
    for (const auto& [id, event] : events) {
      const auto now = after.find(id);
      const auto before = left.find(id);
      if (before != left.end() && before->second == event && !all_lost) {
        ASSERT_NE(now, after.end()) << "was whole, and is gone: " << event.substr(0, 200);
      }
      if (now == after.end() || now->second != event) {
        EXPECT_NE(named, "") << "is gone without a word: " << id;
      }
    }
    for (const auto& [id, event] : after) ASSERT_TRUE(events.contains(id)) << "is invented";
    if (HasFailure()) break;
  }
  std::printf("%u damaged, %u without effect; of each %.1f of %zu events kept\n", cases, harmless,
              static_cast<double>(kept) / (cases - harmless), events.size());
}

// ---- redaction

constexpr std::string_view kSecret = "zqsecret";
constexpr std::string_view kRemoved = "[removed]";

std::string cleaned(std::string text) {
  for (std::size_t at = 0; (at = text.find(kSecret, at)) != std::string::npos;)
    text.replace(at, kSecret.size(), kRemoved);
  return text;
}

// Removes kSecret from everything, as core's rules would.
class Cleaner final : public RewritableSink::Editor {
 public:
  Result<std::shared_ptr<const Event>> edit(const std::string& path, const Event& stored) override {
    EXPECT_THAT(path, HasSubstr("job " + stored.job.id));
    ++edited[stored.id];
    auto after = std::make_shared<Event>(stored);
    bool changes = false;
    for (EventFile& file : after->files) {
      if (file.bytes == nullptr) continue;
      std::string text = cleaned(*file.bytes);
      changes = changes || text != *file.bytes;
      file.size = text.size();
      file.sha256 = sha256_hex(text);
      file.bytes = make_bytes(std::move(text));
    }
    if (after->job.name) after->job.name = cleaned(*after->job.name);
    changes = changes || after->job.name != stored.job.name;
    if (after->script) {
      for (std::string& directive : after->script->directives) directive = cleaned(directive);
    }
    if (!changes) return std::shared_ptr<const Event>();
    after->redactions.push_back({.rule = "test", .where = "script", .count = 1});
    after->id = sha256_hex("cleaned" + stored.id);
    return after;
  }
  Result<void> replacing(const std::string&, const Event& before, const Event& after,
                         bool resumed) override {
    EXPECT_EQ(after.id, sha256_hex("cleaned" + before.id));
    for (const EventFile& file : before.files) EXPECT_EQ(file.bytes, nullptr);
    ++(resumed ? again : replaced);
    if (replaced == fails_at) return Error{ErrorKind::kExhausted, "no room for the record"};
    return {};
  }
  void left(const std::string& path, std::string_view reason) override {
    left_alone.push_back(path + ": " + std::string(reason));
  }
  std::map<std::string, int> edited;
  std::uint64_t replaced = 0;
  std::uint64_t again = 0;
  std::uint64_t fails_at = std::numeric_limits<std::uint64_t>::max();
  std::vector<std::string> left_alone;
};

// Where in the files of a catalog a text occurs: as it is, and in every block.
std::vector<std::string> places_of(const std::string& root, std::string_view text) {
  std::vector<std::string> places;
  for (const auto& file : fs::recursive_directory_iterator(root)) {
    if (!file.is_regular_file()) continue;
    std::ifstream in(file.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    if (bytes.find(text) != std::string::npos) places.push_back(file.path().string());
  }
  for (const std::int64_t segment : segment_ids(root)) {
    auto db = open_segment_reader(root, segment);
    EXPECT_TRUE(db);
    sqlite::Statement blocks(**db, "SELECT id, data FROM blocks");
    while (blocks.step()) {
      const auto block = Block::unpack(blocks.text(1));
      EXPECT_TRUE(block);
      if (block->all().find(text) != std::string_view::npos)
        places.push_back("block " + std::to_string(blocks.integer(0)));
    }
    sqlite::Statement pending(**db, "SELECT id FROM pending");
    PendingReader reader(**db);
    while (pending.step()) {
      const auto block = reader.read(pending.integer(0));
      EXPECT_TRUE(block);
      if (block->all().find(text) != std::string_view::npos)
        places.push_back("pending " + std::to_string(pending.integer(0)));
    }
  }
  return places;
}

class RedactionTest : public MaintenanceTest {
 protected:
  // Five jobs with the secret: in script, directives and name.
  void SetUp() override {
    std::vector<Event> events = many_events(150);
    int with = 0;
    for (Event& event : events) {
      if (event.kind != "job.script" || event.replaces || !event.user.verified || with == 5 ||
          std::stoi(event.job.id) < 1070)
        continue;
      ++with;
      std::string script = *event.files[0].bytes + "export TOKEN=" + std::string(kSecret) + "\n";
      event.files[0].size = script.size();
      event.files[0].sha256 = sha256_hex(script);
      event.files[0].bytes = make_bytes(std::move(script));
      event.job.name = std::string(kSecret) + std::to_string(with);
      event.script->directives.push_back("--comment=" + std::string(kSecret));
    }
    put(events);
    ASSERT_THAT(places_of(config_.root, kSecret), Contains(HasSubstr("catalog.db")));
  }
  Result<RewritableSink::Summary> redact(Cleaner& cleaner, bool apply) {
    return static_cast<RewritableSink&>(maintenance_)
        .rewrite({.directory = "", .apply = apply, .exclusive = true, .stop = {}}, cleaner);
  }
};

TEST_F(RedactionTest, TheSecretIsInNoFileAfterwards) {
  const auto before = all_events(config_.root);
  Cleaner would;
  const auto dry = redact(would, false);
  ASSERT_TRUE(dry);
  EXPECT_EQ(dry->changed, 5U);
  EXPECT_EQ(dry->events, before.size());
  EXPECT_EQ(would.replaced, 0U);
  EXPECT_EQ(all_events(config_.root), before);

  Cleaner cleaner;
  const auto done = redact(cleaner, true);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(done->changed, 5U);
  EXPECT_EQ(done->events, before.size());
  EXPECT_THAT(done->left, IsEmpty());
  EXPECT_EQ(cleaner.replaced, 5U);
  for (const auto& [id, times] : cleaner.edited) EXPECT_EQ(times, 1) << id;
  EXPECT_THAT(places_of(config_.root, kSecret), IsEmpty());
  EXPECT_EQ(found(), "");
  EXPECT_EQ(all_events(config_.root).size(), before.size());
  std::size_t same = 0;
  for (const auto& [id, event] : all_events(config_.root))
    same += before.contains(id) && before.at(id) == event ? 1U : 0U;
  EXPECT_EQ(same, before.size() - 5);

  Cleaner again;
  const auto twice = redact(again, true);
  ASSERT_TRUE(twice);
  EXPECT_EQ(twice->changed, 0U);
  EXPECT_EQ(twice->events, before.size());
}

TEST_F(RedactionTest, ARecordThatCannotBeWrittenEndsItAndTheNextPassContinues) {
  Cleaner failing;
  failing.fails_at = 1;
  const auto ended = redact(failing, true);
  ASSERT_FALSE(ended);
  EXPECT_THAT(ended.error().message(), HasSubstr("no room for the record"));
  // A rebuild would store beside the changed event what it was before.
  const auto checked = maintenance_.check({});
  ASSERT_TRUE(checked);
  ASSERT_EQ(checked->findings.size(), 1U);
  EXPECT_EQ(checked->findings[0].command, "scriptorium redact --archive --apply");
  const auto rows = all_rows(config_.root);
  for (const auto which : {MaintainedSink::Rewrite::kDamaged, MaintainedSink::Rewrite::kUnpacked}) {
    const auto report = maintenance_.rewrite(which, {});
    ASSERT_TRUE(report);
    // Small segments are loose, so other ones may be packed.
    if (which == MaintainedSink::Rewrite::kDamaged) {
      EXPECT_EQ(report->figures.at("segments_rewritten"), 0U);
    }
    EXPECT_THAT(text_of(*report), HasSubstr("000002.db: secrets were being removed"));
  }
  EXPECT_EQ(all_rows(config_.root), rows);
  Cleaner cleaner;
  const auto done = redact(cleaner, true);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(done->resumed + done->changed, 5U);
  EXPECT_GE(done->resumed, 1U);
  for (const auto& [job, rows_of_it] : all_rows(config_.root))
    EXPECT_EQ(rows_of_it.size(), 1U) << "job " << job;
  EXPECT_THAT(places_of(config_.root, kSecret), IsEmpty());
  EXPECT_EQ(found(), "");
}

TEST_F(RedactionTest, WhatCannotBeReadIsSaid) {
  change(3,
         "UPDATE pending SET base = NULL, data = x'00' WHERE id = (SELECT environment FROM jobs "
         "WHERE job = 1145)");
  Cleaner cleaner;
  const auto done = redact(cleaner, true);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_THAT(cleaner.left_alone, Contains(HasSubstr("environment")));
  EXPECT_FALSE(done->left.empty());
}

}  // namespace
}  // namespace scriptorium::catalog
