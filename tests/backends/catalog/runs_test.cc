#include "backends/catalog/runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backends/catalog/maintenance.h"
#include "core/api/kit/search/job_facts.h"
#include "core/base/sha256.h"
#include "tests/backends/catalog/catalog_events.h"
#include "tests/backends/catalog/search_lab.h"

// Searchable::runs() of a catalog, held against the events themselves.
namespace scriptorium::catalog {
namespace {

using Json = nlohmann::json;
using test::SearchLab;
using test_support::job_at;

constexpr int kJobs = 300;
constexpr std::int64_t kHour = 3'600;

// A job in an hour, with what a run can have, and some that miss one or the other.
Event submission(int number) {
  Event event = job_at(std::to_string(number), number * kHour);
  event.user = {.name = "user" + std::to_string(number % 7),
                .id = number % 3 == 0 ? std::nullopt : std::optional(std::to_string(number % 2)),
                .verified = number % 5 != 0};
  event.script->modules = {"GROMACS/2023." + std::to_string(number % 3), "CUDA"};
  if (number % 9 == 0) event.script->modules.clear();
  return event;
}

Event use_of(const Event& of, int number, int life = 0) {
  Event event = test_support::usage_event(of, "COMPLETED", life);
  event.job.account = number % 4 == 0 ? std::nullopt : std::optional("acc" + std::to_string(life));
  event.job.partition = "batch";
  const auto at = [&](std::int64_t seconds) {
    return format_rfc3339({of.time.nanoseconds + seconds * kSecond + 123 * 1'000'000},
                          TimePrecision::kMilliseconds);
  };
  const std::int64_t start = 60 + life * 2 * kHour;
  Json usage{
      {"started_at", at(start)},
      {"ended_at", at(start + 100 + number)},
      {"elapsed_seconds", 100.25 + number},
      {"cpu", {{"allocated", 1 + number % 64}, {"efficiency_ratio", (number % 100) / 100.0}}},
      {"nodes", Json::array()},
      {"findings",
       {{{"id", "cpu_low"}, {"severity", "warning"}},
        {{"id", "short_job"}, {"severity", "info"}},
        {{"id", "odd\nname"}, {"severity", "critical"}}}},
      {"programs",
       {{{"name", "python3"}, {"cpu_ratio", 0.9}}, {{"name", "two\nlines"}, {"cpu_ratio", 0.05}}}},
      {"programs_unseen", {{"cpu_ratio", 0.0123}}},
      {"quality", {{"status", "ok"}}}};
  for (int node = 0; node < number % 4; ++node)
    usage["nodes"].push_back({{"host", {{"name", "n" + std::to_string(number % 30 + node)}}}});
  if (number % 6 == 0) usage["gpu"] = {{"count", 2}, {"utilization_ratio", 0.25}};
  if (number % 8 == 0) usage.erase("cpu");
  if (number % 10 == 0) usage.erase("programs");
  event.extra_json = Json{{"job", {{"state", "COMPLETED"}}}, {"usage", usage}}.dump();
  return event;
}

class RunsTest : public ::testing::Test {
 protected:
  // Jobs of three segments, every 20th an array of three tasks, every 30th twice.
  RunsTest() {
    std::vector<Event> events;
    for (int number = 1; number <= kJobs; ++number) {
      const Event job = submission(number);
      const std::vector<std::string> modules = row_of(job).modules;
      std::vector<Event> batch{job};
      const bool has_script = number % 11 != 0;
      if (!has_script) batch.clear();
      for (int run = 0; run < (number % 20 == 0 ? 3 : number % 30 == 0 ? 2 : 1); ++run) {
        Event use = use_of(job, number, run);
        if (number % 20 == 0)
          use.job.array =
              JobArray{.job_id = use.job.id, .task_id = std::to_string(run), .task_spec = {}};
        JobRow row;
        expected_.push_back(*join(row, use));
        if (has_script) expected_.back().modules = modules;
        batch.push_back(use);
        if (number % 13 == 0) batch.push_back(use);  // delivered twice
      }
      if (number % 17 == 0) std::reverse(batch.begin(), batch.end());
      events.insert(events.end(), batch.begin(), batch.end());
      if (number % 20 == 0) lab_.put(std::exchange(events, {}));
    }
    for (JobRun& run : expected_) {
      const std::vector<std::string> modules = run.modules;
      run = as_stored(std::move(run));
      run.modules = modules;
    }
  }

  static std::vector<std::string> in_order(const std::vector<JobRun>& runs) {
    std::vector<std::string> lines;
    for (const JobRun& run : runs) {
      Json programs = Json::array();
      for (const auto& [name, share] : run.programs) programs.push_back({name, share});
      const auto text = [](const auto& value) { return value ? Json(*value) : Json(); };
      lines.push_back(Json{run.ended_at.nanoseconds, text(run.user), text(run.uid), run.cluster,
                           run.verified, text(run.account), text(run.partition), run.core_seconds,
                           text(run.unused_core_seconds), run.gpu_seconds,
                           text(run.unused_gpu_seconds), run.nodes, run.findings, programs,
                           run.modules}
                          .dump());
    }
    std::sort(lines.begin(), lines.end());
    return lines;
  }
  std::vector<std::string> expected(const Searchable::RunRequest& request) const {
    std::vector<JobRun> runs;
    for (const JobRun& run : expected_) {
      if (run.ended_at < request.from || run.ended_at >= request.until) continue;
      if (!is_visible(run, request.visibility)) continue;
      runs.push_back(run);
      if (!request.modules) runs.back().modules.clear();
    }
    return in_order(runs);
  }
  std::vector<std::string> found(const Searchable::RunRequest& request) {
    std::vector<JobRun> runs;
    const auto problems =
        lab_.search().runs(request, [&](const JobRun& run) { runs.push_back(run); });
    EXPECT_TRUE(problems) << problems.error().message();
    EXPECT_TRUE(problems->problems.empty()) << problems->problems.front();
    return in_order(runs);
  }

  // All rows of an answer, added up: by period and name, those without a name by whether they were
  // measured. Rows in time are checked against the quarter of an hour that they name.
  using Sums = std::map<std::pair<std::int64_t, std::string>, RunTotals>;
  static void add_to(Sums& sums, const Searchable::SumRequest& request, const RunSumRow& row) {
    const auto after = std::ranges::upper_bound(request.bounds, row.time);
    ASSERT_NE(after, request.bounds.begin());
    ASSERT_NE(after, request.bounds.end());
    const std::string name = row.name          ? "name " + std::string(*row.name)
                             : row.is_measured ? "measured"
                                               : "not measured";
    sums[{after - request.bounds.begin(), name}] += row.sum;
    if (row.name) return;
    const std::int64_t quarter = row.time.nanoseconds / kSecond / 900;
    sums[{quarter, name + " of a quarter"}] += row.sum;
  }
  Sums expected_sums(const Searchable::SumRequest& request) const {
    Sums sums;
    for (const JobRun& run : expected_) {
      if (run.ended_at < request.bounds.front() || run.ended_at >= request.bounds.back()) continue;
      if (!is_visible(run, request.visibility)) continue;
      for_each_row(request.by, run, [&](const RunSumRow& row) { add_to(sums, request, row); });
    }
    return sums;
  }
  Sums found_sums(const Searchable::SumRequest& request) {
    Sums sums;
    const auto answer =
        lab_.search().sums(request, [&](const RunSumRow& row) { add_to(sums, request, row); });
    EXPECT_TRUE(answer && answer->finished && answer->problems.empty());
    return sums;
  }
  static std::string difference(const Sums& found, const Sums& expected) {
    std::string text;
    for (const auto& [one, other] : {std::pair(&found, &expected), std::pair(&expected, &found)}) {
      for (const auto& [key, sum] : *one) {
        const auto same = other->find(key);
        if (same == other->end() || !(same->second == sum))
          text += (one == &found ? "found " : "expected ") + std::to_string(key.first) + " " +
                  key.second + ": " + std::to_string(sum.jobs) + " jobs, " +
                  std::to_string(sum.core_seconds) + "\n";
      }
    }
    return text;
  }

  SearchLab lab_;
  std::vector<JobRun> expected_;
};

TEST_F(RunsTest, SumsAreThoseOfTheRunsWhateverThePeriod) {
  std::mt19937 random(20261128);
  const std::int64_t first = expected_.front().ended_at.nanoseconds / kSecond;
  std::int64_t last = first;
  for (const JobRun& run : expected_) last = std::max(last, run.ended_at.nanoseconds / kSecond);
  std::uniform_int_distribution<std::int64_t> any(first - 86'400, last + 86'400);
  std::size_t with_names = 0;
  for (int round = 0; round < 300; ++round) {
    Searchable::SumRequest request;
    if (round % 7 != 6) request.by = static_cast<RunsBy>(round % 7);
    for (int bound = 0; bound < 2 + round % 3; ++bound) {
      std::int64_t seconds = any(random);
      if (round % 5 == 0) seconds = seconds / 86'400 * 86'400;
      if (round % 5 == 1) seconds = seconds / 900 * 900;
      request.bounds.push_back({seconds * kSecond});
    }
    if (round % 11 == 0) request.bounds[0] = {std::numeric_limits<std::int64_t>::min()};
    if (round % 11 == 1) request.bounds[0] = {(last + 1) * kSecond};
    std::ranges::sort(request.bounds);
    const auto [same, end] = std::ranges::unique(request.bounds);
    request.bounds.erase(same, end);
    if (request.bounds.size() < 2) continue;
    const Sums expected = expected_sums(request);
    ASSERT_EQ(difference(found_sums(request), expected), "") << round;
    with_names += expected.size() > 20 ? 1 : 0;
  }
  EXPECT_GT(with_names, 150U);
}

TEST_F(RunsTest, SumsOfAReaderAreThoseOfTheRunsThatHeMaySee) {
  const std::int64_t last = expected_.back().ended_at.nanoseconds + kSecond;
  std::set<std::string> distinct;
  for (const std::optional<std::string>& uid :
       {std::optional<std::string>(), std::optional<std::string>("1")}) {
    for (std::uint8_t by = 0; by <= kRunsByCount; ++by) {
      Searchable::SumRequest request{.bounds = {{0}, {last / 3 / kSecond * kSecond}, {last}}};
      if (by < kRunsByCount) request.by = static_cast<RunsBy>(by);
      request.visibility = {.all = false,
                            .users = {{.name = "user3", .uid = uid}},
                            .accounts = {{"lab", "acc1"}, {"elsewhere", "acc0"}}};
      const Sums expected = expected_sums(request);
      EXPECT_EQ(difference(found_sums(request), expected), "") << by;
      EXPECT_GT(expected.size(), 5U);
      distinct.insert(difference({}, expected));
    }
  }
  EXPECT_EQ(distinct.size(), 2U * (kRunsByCount + 1));  // the uid matters each time
}

TEST_F(RunsTest, SumsFollowTheModulesOfALongerCapture) {
  Event longer = submission(60);  // an array of three tasks
  longer.script->modules = {"LATE/1"};
  longer.id = sha256_hex("longer");
  longer.supersedes = submission(60).id;
  lab_.put({longer});
  ASSERT_EQ(lab_.problem(), "");
  const Searchable::SumRequest request{
      .by = RunsBy::kModule, .bounds = {{0}, {2 * expected_.back().ended_at.nanoseconds}}};
  Sums expected;
  const auto answer = lab_.search().runs({.modules = true}, [&](const JobRun& run) {
    for_each_row(request.by, run, [&](const RunSumRow& row) { add_to(expected, request, row); });
  });
  ASSERT_TRUE(answer);
  EXPECT_EQ(difference(found_sums(request), expected), "");
  EXPECT_EQ((expected[{1, "name LATE/1"}].jobs), 3U);
}

TEST_F(RunsTest, TheMostWastefulOfAnyPeriodAreFound) {
  std::mt19937 random(7);
  const std::int64_t first = expected_.front().ended_at.nanoseconds / kSecond;
  for (int round = 0; round < 100; ++round) {
    Searchable::RunRequest request{.origin = true};
    request.most_wasteful = 1 + random() % 12;
    request.from = {(first + static_cast<std::int64_t>(random() % (200 * kHour))) * kSecond};
    request.until = {request.from.nanoseconds +
                     static_cast<std::int64_t>(random() % (200 * kHour)) * kSecond};
    if (round % 4 == 0) request.visibility = {.all = false, .users = {{.name = "user3"}}};
    request.with_event = [](const JobRun& /*run*/) { return true; };
    std::vector<std::uint64_t> expected;
    for (const JobRun& run : expected_) {
      if (run.ended_at < request.from || run.ended_at >= request.until) continue;
      if (is_visible(run, request.visibility) && wasted_core_seconds(run) > 0)
        expected.push_back(wasted_core_seconds(run));
    }
    std::ranges::sort(expected, std::greater{});
    expected.resize(std::min(expected.size(), request.most_wasteful));
    std::vector<std::uint64_t> found;
    std::set<std::string> keys;
    const auto answer = lab_.search().runs(request, [&](const JobRun& run) {
      found.push_back(wasted_core_seconds(run));
      EXPECT_TRUE(keys.insert(run.key).second);
      ASSERT_TRUE(run.event);
      JobRow row;
      EXPECT_EQ(wasted_core_seconds(*join(row, *run.event)), found.back());
    });
    EXPECT_TRUE(answer && answer->finished && answer->problems.empty());
    EXPECT_EQ(found, expected) << round;
  }
}

TEST_F(RunsTest, JobsWithoutAnEndAreThoseThatASearchFinds) {
  std::vector<Event> waiting;
  for (int number = 1'001; number <= 1'060; ++number) waiting.push_back(submission(number));
  Event of_node = use_of(submission(2'000), 2'000);  // of a job that is not known otherwise
  of_node.kind = "usage.node";
  waiting.push_back(of_node);
  lab_.put(waiting);
  const auto searched = [&](Timestamp from, Timestamp until, const Visibility& who) {
    Searchable::Request request{.limit = 0, .count = true, .exact = true, .visibility = who};
    Query ended{.kind = Query::Kind::kRange, .field = QueryField::kEnded};
    ended.from = 0;
    Query submitted{.kind = Query::Kind::kRange, .field = QueryField::kSubmitted};
    submitted.from = from.nanoseconds;
    submitted.to = until.nanoseconds - 1;
    request.query = {.kind = Query::Kind::kAnd};
    request.query.children = {
        {.kind = Query::Kind::kField, .field = QueryField::kUser, .text = "*"},
        submitted,
        {.kind = Query::Kind::kNot, .children = {ended}}};
    return lab_.search().search(request)->count->jobs;
  };
  const Visibility all;
  const Visibility one{.all = false, .users = {{.name = "user3", .uid = "1"}}, .accounts = {}};
  const Visibility account{.all = false, .users = {}, .accounts = {{"lab", "acc0"}}};
  const auto compare = [&] {
    for (int from = 990; from < 1'070; from += 7) {
      for (int until = from; until < 1'070; until += 9) {
        const Timestamp begin = submission(from).time;
        const Timestamp end{submission(until).time.nanoseconds + until % 2};
        for (const Visibility* who : {&all, &one, &account})
          ASSERT_EQ(lab_.search().unfinished(begin, end, *who).value_or(99'999),
                    searched(begin, end, *who))
              << from << ' ' << until;
      }
    }
  };
  compare();
  const Timestamp end = submission(3'000).time;
  EXPECT_EQ(*lab_.search().unfinished({0}, end, all), 60U);
  EXPECT_GT(*lab_.search().unfinished({0}, end, one), 0U);
  lab_.put({use_of(waiting[7], 1'008), use_of(waiting[50], 1'051)});
  EXPECT_EQ(*lab_.search().unfinished({0}, end, all), 58U);
  compare();
  lab_.store().close();
  CatalogConfig config;
  config.root = lab_.root();
  EXPECT_TRUE(Maintenance(config, lab_.clock()).check({})->findings.empty());
}

TEST_F(RunsTest, JobsWithoutAnEndAreNotCountedWhileASegmentIsBeingRewritten) {
  EXPECT_TRUE(lab_.search().unfinished({0}, {1}, {}));
  auto db = sqlite::Connection::open(catalog_file(lab_.root()),
                                     sqlite::Connection::Mode::kReadWrite, "test");
  ASSERT_TRUE((*db)->execute("UPDATE segments SET state = 2 WHERE id = 1"));
  const auto jobs = lab_.search().unfinished({0}, {1}, {});
  ASSERT_FALSE(jobs) << "a job may be in two segments now";
  EXPECT_EQ(jobs.error().kind(), ErrorKind::kTransient);
}

TEST_F(RunsTest, AfterTheDeadlineNothingIsSaidToBeComplete) {
  const SteadyTime over = lab_.clock().steady();
  const auto runs = lab_.search().runs({.deadline = over}, [](const JobRun&) {});
  EXPECT_TRUE(runs && !runs->finished);
  const auto sums = lab_.search().sums(
      {.by = RunsBy::kUser, .bounds = {{0}, {kSecond}}, .deadline = over}, [](const RunSumRow&) {});
  EXPECT_TRUE(sums && !sums->finished);
}

TEST_F(RunsTest, CheckFindsSumsThatAreNotThoseOfTheRuns) {
  lab_.store().close();
  CatalogConfig config;
  config.root = lab_.root();
  Maintenance care(config, lab_.clock());
  ASSERT_TRUE(care.check({})->findings.empty());
  for (const auto& [change, table] :
       {std::pair("INSERT INTO unfinished SELECT time, id FROM jobs LIMIT 1", "unfinished"),
        std::pair("DELETE FROM sums WHERE kind = 3 AND time = (SELECT max(time) FROM sums WHERE "
                  "kind = 3)",
                  "sums"),
        std::pair("UPDATE sums SET time = time + 1000 WHERE kind = 6 AND time = (SELECT min(time) "
                  "FROM sums WHERE kind = 6)",
                  "sums"),
        std::pair("UPDATE sums SET data = x'00' WHERE kind = 0 AND time = (SELECT max(time) FROM "
                  "sums WHERE kind = 0)",
                  "sums"),
        std::pair("DELETE FROM wasteful WHERE waste = (SELECT max(waste) FROM wasteful)",
                  "wasteful"),
        std::pair(
            "UPDATE wasteful SET waste = waste + 1 WHERE waste = (SELECT max(waste) FROM wasteful)",
            "wasteful")}) {
    auto db = sqlite::Connection::open(segment_file(lab_.root(), 2),
                                       sqlite::Connection::Mode::kReadWrite, "test");
    (*db)->execute(std::string("CREATE TEMP TABLE old AS SELECT * FROM ") + table);
    ASSERT_TRUE((*db)->execute(change));
    const auto report = care.check({});
    ASSERT_TRUE(report);
    EXPECT_FALSE(report->findings.empty()) << change;
    ASSERT_TRUE((*db)->execute(std::string("DELETE FROM ") + table + "; INSERT INTO " + table +
                               " SELECT * FROM old"));
    EXPECT_TRUE(care.check({})->findings.empty()) << change;
  }
}

TEST_F(RunsTest, EveryRunIsFoundOnceAsItsEventHasIt) {
  ASSERT_EQ(lab_.problem(), "");
  ASSERT_EQ(lab_.segments().size(), 3U);
  const auto all = found({.modules = true});
  const auto should = expected({.modules = true});
  std::vector<std::string> differences;
  std::set_symmetric_difference(all.begin(), all.end(), should.begin(), should.end(),
                                std::back_inserter(differences));
  EXPECT_EQ(differences, std::vector<std::string>{});
  EXPECT_GT(all.size(), 330U);
  EXPECT_EQ(found({}), expected({}));
}

TEST_F(RunsTest, WhatIsAskedForHasItsEvent) {
  Searchable::RunRequest request{.origin = true};
  std::set<std::string> keys;
  std::size_t events = 0;
  request.with_event = [](const JobRun& run) { return run.core_seconds % 3 == 0; };
  const auto problems = lab_.search().runs(request, [&](const JobRun& run) {
    EXPECT_EQ(run.cluster, test_support::job_at("1", 0).cluster);
    EXPECT_TRUE(keys.insert(run.key).second);
    ASSERT_EQ(run.event != nullptr, run.core_seconds % 3 == 0);
    if (run.event == nullptr) return;
    ++events;
    JobRow row;
    JobRun same = as_stored(*join(row, *run.event));
    std::tie(same.cluster, same.key, same.event) = std::tie(run.cluster, run.key, run.event);
    EXPECT_EQ(same, run);
  });
  EXPECT_TRUE(problems && problems->problems.empty());
  EXPECT_EQ(keys.size(), expected_.size());
  EXPECT_GT(events, 50U);
}

TEST_F(RunsTest, OfAPeriodTheFirstSecondBelongsToItAndTheLastDoesNot) {
  const Timestamp end = expected_[120].ended_at;
  for (const std::int64_t from : {-1, 0, 1}) {
    for (const std::int64_t until : {-1, 0, 1}) {
      const Searchable::RunRequest request{
          .from = Timestamp{expected_[40].ended_at.nanoseconds + from * kSecond},
          .until = Timestamp{end.nanoseconds + until * kSecond}};
      EXPECT_EQ(found(request), expected(request));
    }
  }
  EXPECT_TRUE(found({.from = end, .until = end}).empty());
}

TEST_F(RunsTest, OthersJobsDoNotExist) {
  for (const Visibility& who :
       {Visibility{.all = false, .users = {{.name = "user3"}}, .accounts = {}},
        Visibility{.all = false, .users = {{.name = "user3", .uid = "1"}}, .accounts = {}},
        Visibility{.all = false, .users = {}, .accounts = {{"lab", "acc1"}}},
        Visibility{.all = false}}) {
    const Searchable::RunRequest request{.visibility = who};
    EXPECT_EQ(found(request), expected(request));
    EXPECT_LT(found(request).size(), 80U);
  }
  Searchable::RunRequest request{
      .visibility = {.all = false, .users = {}, .accounts = {{"lab", "acc0"}}}};
  EXPECT_GT(found(request).size(), 5U);
  request.visibility.accounts[0].cluster = "old";
  EXPECT_TRUE(found(request).empty());
}

TEST_F(RunsTest, AfterRewritingTheyAreTheSame) {
  CatalogConfig config;
  config.root = lab_.root();
  config.segment_jobs = 120;
  lab_.store().close();
  const auto before = found({.modules = true});
  Maintenance care(config, lab_.clock());
  EXPECT_TRUE(care.check({})->findings.empty());
  for (const int segment : {1, 3}) {
    auto db = sqlite::Connection::open(segment_file(lab_.root(), segment),
                                       sqlite::Connection::Mode::kReadWrite, "test");
    ASSERT_TRUE((*db)->execute("UPDATE later SET ended = ended + 86400, user = NULL"));
  }
  EXPECT_NE(found({.modules = true}), before);
  ASSERT_TRUE(care.rewrite(MaintainedSink::Rewrite::kDamaged, {}));
  EXPECT_EQ(found({.modules = true}), before);
}

TEST_F(RunsTest, ASegmentThatCannotBeReadIsNamed) {
  lab_.store().close();
  {
    auto db = sqlite::Connection::open(segment_file(lab_.root(), 2),
                                       sqlite::Connection::Mode::kReadWrite, "test");
    ASSERT_TRUE((*db)->execute("DROP INDEX later_ended; DROP TABLE later"));
  }
  std::size_t runs = 0;
  const auto problems = lab_.search().runs({}, [&](const JobRun&) { ++runs; });
  EXPECT_FALSE(problems && problems->problems.empty());
}

TEST_F(RunsTest, CheckFindsARunThatIsNotWhatItsEventSays) {
  lab_.store().close();
  CatalogConfig config;
  config.root = lab_.root();
  Maintenance care(config, lab_.clock());
  ASSERT_TRUE(care.check({})->findings.empty());
  for (const char* change :
       {"core_seconds = core_seconds + 1", "ended = ended + 1", "programs = '10000 python3'",
        "unused_core_seconds = NULL", "account = NULL", "ended = NULL"}) {
    auto db = sqlite::Connection::open(segment_file(lab_.root(), 2),
                                       sqlite::Connection::Mode::kReadWrite, "test");
    (*db)->execute("BEGIN; CREATE TEMP TABLE old AS SELECT * FROM later");
    ASSERT_TRUE((*db)->execute(std::string("UPDATE later SET ") + change +
                               " WHERE event = (SELECT event FROM later WHERE account NOT NULL AND "
                               "unused_core_seconds NOT NULL LIMIT 1); COMMIT"));
    const auto report = care.check({});
    ASSERT_TRUE(report);
    ASSERT_GE(report->findings.size(), 1U) << change;
    EXPECT_EQ(report->findings[0].problem, "the run of a later event is not what its record says");
    for (std::size_t i = 1; i < report->findings.size(); ++i) {
      const std::string& problem = report->findings[i].problem;  // of sums that are not its own
      EXPECT_TRUE(problem == "is not what its runs add up to" ||
                  problem == "does not have its most wasteful runs")
          << problem;
    }
    ASSERT_TRUE((*db)->execute("DELETE FROM later; INSERT INTO later SELECT * FROM old"));
  }
}

}  // namespace
}  // namespace scriptorium::catalog
