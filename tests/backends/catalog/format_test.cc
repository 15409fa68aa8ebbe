#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/catalog/maintenance.h"
#include "backends/catalog/schema.h"
#include "backends/catalog/segments.h"
#include "backends/catalog/sink.h"
#include "tests/backends/catalog/catalog_events.h"
#include "tests/support/fake_clock.h"
#include "tests/support/queries.h"
#include "tests/support/recording_logger.h"
#include "tests/support/scripted_sink.h"
#include "tests/support/temp_dir.h"

// Every later version opens what the first one wrote: tests/fixtures/catalog/format-N.
namespace scriptorium::catalog {
namespace {

namespace fs = std::filesystem;
using test_support::job_at;
using test_support::shared;
using test_support::usage_event;

constexpr std::int64_t kJobsOfASegment = 3;

std::vector<Event> fixture_events(int format) {
  std::vector<Event> events;
  for (int i = 1; i <= 5; ++i)
    events.push_back(
        job_at(std::to_string(i), i, "#!/bin/bash\nsrun gmx run_" + std::to_string(i)));
  events[0].script->software = {{"conda", "torch"}};
  events[1].user = {.name = "bob", .verified = false};
  events[4].job.array = JobArray{.job_id = "5", .task_spec = "0-1"};
  events.push_back(usage_event(events[0], "COMPLETED"));
  for (int task = 0; task < 2; ++task) {
    Event use = usage_event(events[4], task == 0 ? "FAILED" : "COMPLETED", task);
    use.job.array = JobArray{.job_id = "5", .task_id = std::to_string(task)};
    events.push_back(std::move(use));
  }
  if (format < 5) return events;
  // Before format 6 the row kept the account of its submission.
  events.push_back(usage_event(events[2], "COMPLETED"));
  events.back().job.account = "bio";
  for (int task = 2; task < 4; ++task) {
    Event use = usage_event(events[4], "COMPLETED", task);
    use.job.array = JobArray{.job_id = "5", .task_id = std::to_string(task)};
    use.job.account = task == 2 ? "bio" : "chem";
    events.push_back(std::move(use));
  }
  // And it counted readings of a node whose job it did not know.
  events.push_back(usage_event(job_at("99", 9), "COMPLETED"));
  events.back().kind = "usage.node";
  return events;
}

class CatalogFormatTest : public ::testing::Test {
 protected:
  std::unique_ptr<CatalogSink> open(const std::string& root) {
    config_.root = root;
    config_.segment_jobs = kJobsOfASegment;
    auto sink =
        std::make_unique<CatalogSink>(config_, PluginContext{"catalog", "lab", log_, clock_});
    const auto started = sink->start();
    EXPECT_TRUE(started) << started.error().message();
    return sink;
  }
  void deliver(CatalogSink& sink, const Event& event) {
    test::Outbox outbox;
    sink.deliver(outbox.batch({shared(event)}));
    EXPECT_EQ(outbox.outcome(event.job.id), Outcome::kAcknowledged);
  }

  std::string copy_of_fixture(const std::string& name) {
    std::string root = directory_.path_to(name);
    fs::copy(fs::path(SCRIPTORIUM_FIXTURES) / "catalog" / name, root, fs::copy_options::recursive);
    return root;
  }
  // How many jobs each account has.
  static std::map<std::string, std::uint64_t> accounts_of(Searchable& catalog) {
    std::map<std::string, std::uint64_t> accounts;
    const auto answer = catalog.search({.limit = 0, .facets = {QueryField::kAccount}});
    EXPECT_TRUE(answer);
    if (!answer) return accounts;
    for (const auto& [value, jobs] : answer->facets.at(0).values) accounts[value] = jobs;
    return accounts;
  }
  static std::string problem_of(const Result<ConnectionPtr>& db) {
    return db ? "" : db.error().message();
  }
  static void set_format(const std::string& file, int format) {
    auto db = sqlite::Connection::open(file, sqlite::Connection::Mode::kReadWrite);
    ASSERT_TRUE(db);
    ASSERT_TRUE((*db)->run("UPDATE meta SET value = ? WHERE key = 'format'", format));
  }

  test::TempDir directory_;
  test::RecordingLogger log_;
  test::FakeClock clock_;
  CatalogConfig config_;
};

class CatalogOlderFormatTest : public CatalogFormatTest,
                               public ::testing::WithParamInterface<int> {};

INSTANTIATE_TEST_SUITE_P(, CatalogOlderFormatTest, ::testing::Values(2, 3, 4, 5, 6, 7, 8));

TEST_P(CatalogOlderFormatTest, OpensWhatItWrote) {
  const std::string root = copy_of_fixture("format-" + std::to_string(GetParam()));
  const auto sink = open(root);
  for (const Event& event : fixture_events(GetParam())) {
    const auto fetched = sink->readable()->fetch(test::without_bytes(event));
    ASSERT_TRUE(fetched) << event.kind << " " << event.job.id << ": " << fetched.error().message();
    EXPECT_EQ(event_json(**fetched, {.exact_times = true}),
              event_json(event, {.exact_times = true}));
  }
  Searchable::Request request;
  request.query = test::text_query("gmx run_5");
  const auto answer = sink->searchable()->search(request);
  ASSERT_TRUE(answer && answer->hits.size() == 1);
  EXPECT_EQ(answer->hits[0].job.id, "5");
  EXPECT_EQ(answer->hits[0].job.runs, GetParam() < 5 ? 2U : 4U);
  EXPECT_EQ(answer->hits[0].job.failed_runs, 1U);
  request.query = test::field_query(QueryField::kSoftware, "torch");
  const auto users = sink->searchable()->search(request);
  ASSERT_TRUE(users && users->hits.size() == 1);
  EXPECT_EQ(users->hits[0].job.software, std::vector<std::string>{"conda torch"});
  request.query = test::all_of_query({test::text_query("run_1"), test::text_query("srun")});
  const auto both = sink->searchable()->search(request);
  ASSERT_TRUE(both && both->hits.size() == 1);
  EXPECT_EQ(both->hits[0].job.id, "1");
  std::size_t runs = 0;
  const auto problems = sink->searchable()->runs({}, [&](const JobRun& /*run*/) { ++runs; });
  ASSERT_TRUE(problems);
  EXPECT_EQ(runs, GetParam() < 5 ? 3U : 6U);
  using Accounts = std::map<std::string, std::uint64_t>;
  const Accounts accounts = accounts_of(*sink->searchable());
  EXPECT_EQ(accounts,
            GetParam() < 5 ? Accounts({{"chem", 5}}) : Accounts({{"bio", 1}, {"chem", 3}}));
  deliver(*sink, job_at("6", 6));  // and it takes more
  const auto report = Maintenance(config_, clock_).check({});
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->findings.empty()) << report->findings[0].problem;
  ASSERT_EQ(log_.messages().size(), 1U) << log_.text();
  EXPECT_TRUE(log_.has("CATALOG_CONVERTED"));
}

TEST_F(CatalogFormatTest, AnOlderCatalogIsConvertedByTheDaemonAlsoAfterAnInterruption) {
  const std::string root = copy_of_fixture("format-2");
  const std::string advice = "; restart the daemon, which converts it";
  EXPECT_NE(problem_of(open_catalog_reader(root)).find(advice), std::string::npos);
  EXPECT_NE(problem_of(open_segment_reader(root, 1)).find(advice), std::string::npos);
  EXPECT_TRUE(check_root(root, std::nullopt));
  config_.root = root;
  Maintenance care(config_, clock_);
  EXPECT_FALSE(care.rewrite(MaintainedSink::Rewrite::kDamaged,
                            {}));  // and it is not taken for a damaged one
  ASSERT_TRUE(convert_catalog(root));
  EXPECT_EQ(problem_of(open_catalog_reader(root)), "");
  // As if it had ended after the first segment.
  set_format(catalog_file(root), 2);
  for (const char* ending : {"", "-wal", "-shm"}) fs::remove(segment_file(root, 2) + ending);
  fs::copy_file(segment_file(std::string(SCRIPTORIUM_FIXTURES) + "/catalog/format-2", 2),
                segment_file(root, 2));
  const auto sink = open(root);
  for (const int segment : {1, 2}) EXPECT_EQ(problem_of(open_segment_reader(root, segment)), "");
  const auto report = care.check({});
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->findings.empty()) << report->findings[0].problem;
}

TEST_F(CatalogFormatTest, ADamagedSegmentOfAnOlderCatalogIsLeftOutAndCanBeRebuilt) {
  const std::string root = copy_of_fixture("format-2");
  std::int64_t page = 0;
  {
    auto db = sqlite::Connection::open(segment_file(root, 1), sqlite::Connection::Mode::kReadOnly);
    page = (*db)->number("SELECT rootpage FROM sqlite_schema WHERE name = 'jobs'");
  }
  std::fstream(segment_file(root, 1), std::ios::in | std::ios::out | std::ios::binary)
          .seekp((page - 1) * 4096)
      << std::string(64, '\xff');
  const auto sink = open(root);
  deliver(*sink, usage_event(fixture_events(2)[0], "FAILED"));  // of a job that is in the segment
  EXPECT_EQ(log_.count("CATALOG_SEGMENT_DAMAGED"), 1U);
  sink->stop(SteadyTime::max());
  Maintenance care(config_, clock_);
  EXPECT_FALSE(care.check({})->findings.empty());
  ASSERT_TRUE(care.rewrite(MaintainedSink::Rewrite::kDamaged, {}));
  const auto report = care.check({});
  ASSERT_TRUE(report);
  // Nobody knows what the damaged rows had.
  ASSERT_EQ(report->findings.size(), 1U);
  EXPECT_NE(report->findings[0].problem.find("was kept"), std::string::npos);
  const auto again = open(root);
  EXPECT_TRUE(again->readable()->fetch(test::without_bytes(fixture_events(2)[0])));
}

// As after a crash between the two steps that end the rewriting of a segment.
TEST_F(CatalogFormatTest, ASegmentWhoseFileIsGoneDoesNotPreventTheConversion) {
  const std::string root = copy_of_fixture("format-2");
  {
    auto db = sqlite::Connection::open(catalog_file(root), sqlite::Connection::Mode::kReadWrite);
    ASSERT_TRUE((*db)->execute("UPDATE segments SET state = 2 WHERE id = 1"));
  }
  for (const char* ending : {"", "-wal", "-shm"}) fs::remove(segment_file(root, 1) + ending);
  open(root)->stop(SteadyTime::max());
  Maintenance care(config_, clock_);
  ASSERT_TRUE(care.rewrite(MaintainedSink::Rewrite::kDamaged, {}));
  EXPECT_TRUE(care.check({})->findings.empty());
}

// In format 7 a run had no uid. That of its job is none if the job is not verified.
TEST_F(CatalogFormatTest, RunsOfAJobThatIsNotVerifiedAreConvertedAndFoundSound) {
  const std::string root = directory_.path_to("catalog");
  Event job = job_at("1", 1);
  Event use = usage_event(job, "COMPLETED");
  use.user = {.name = "alice", .id = "1000", .verified = true};
  job.user = {.name = "alice", .id = "4711", .verified = false};
  {
    const auto sink = open(root);
    for (const Event& event : {job, use}) deliver(*sink, event);
    sink->stop(SteadyTime::max());
  }
  {
    auto db = sqlite::Connection::open(segment_file(root, 1), sqlite::Connection::Mode::kReadWrite);
    ASSERT_TRUE((*db)->execute(
        "UPDATE later SET owner = owner > 0; ALTER TABLE later RENAME COLUMN owner TO verified; "
        "DROP INDEX jobs_owner; DROP INDEX jobs_alone; DROP TABLE frequent"));
  }
  set_format(segment_file(root, 1), 7);
  set_format(catalog_file(root), 7);
  const auto sink = open(root);
  std::vector<JobRun> runs;
  const Searchable::RunRequest request{
      .visibility = {.all = false, .users = {{.name = "alice", .uid = "1000"}}, .accounts = {}}};
  ASSERT_TRUE(sink->searchable()->runs(request, [&](const JobRun& run) { runs.push_back(run); }));
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_TRUE(runs[0].verified);
  EXPECT_EQ(runs[0].uid, std::nullopt);
  EXPECT_EQ(runs[0].cluster, job.cluster);
  const auto report = Maintenance(config_, clock_).check({});
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->findings.empty()) << report->findings[0].problem;
}

TEST_F(CatalogFormatTest, ANewerCatalogIsRefusedAndLeftAsItIs) {
  const std::string root = copy_of_fixture("format-2");
  set_format(catalog_file(root), 4711);
  config_.root = root;
  EXPECT_NE(problem_of(open_catalog_writer(root)).find("use the version that wrote it"),
            std::string::npos);
  CatalogSink sink(config_, PluginContext{"catalog", "lab", log_, clock_});
  EXPECT_FALSE(sink.start());
  EXPECT_FALSE(check_root(root, std::nullopt));
  EXPECT_FALSE(Maintenance(config_, clock_).rewrite(MaintainedSink::Rewrite::kDamaged, {}));
  set_format(catalog_file(root), 2);
  open(root);
}

// Makes the fixture, before a format is released: SCRIPTORIUM_FIXTURE=DIR catalog_format_test
// --gtest_also_run_disabled_tests; then remove -wal, -shm and writer.lock.
TEST_F(CatalogFormatTest, DISABLED_WritesTheFixture) {
  const char* into = std::getenv("SCRIPTORIUM_FIXTURE");
  ASSERT_NE(into, nullptr);
  const auto sink = open(into);
  for (const Event& event : fixture_events(static_cast<int>(kFormat))) deliver(*sink, event);
  sink->stop(SteadyTime::max());
}

}  // namespace
}  // namespace scriptorium::catalog
