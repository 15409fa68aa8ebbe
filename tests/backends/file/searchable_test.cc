#include "backends/file/searchable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/api/kit/search/job_facts.h"
#include "core/api/kit/search/query_matcher.h"
#include "tests/backends/file/sink_fixture.h"
#include "tests/support/event_factory.h"
#include "tests/support/queries.h"

namespace scriptorium::file {
namespace {

using test::make_event_value;
using test::TickingClock;
namespace fs = std::filesystem;
using Ids = std::vector<std::string>;

class FileSearchTest : public FileSinkFixture {
 protected:
  FileSearchTest() { open("user-month"); }
  void open(const std::string& layout) {
    config_.layout = layout;
    layout_.emplace(*Layout::parse(layout));
    search_.emplace(config_, *layout_, clock_);
  }
  static Event job(const std::string& id, const std::string& time, const std::string& user,
                   const std::string& script, const std::vector<std::string>& variables = {"A=1"}) {
    Event event = make_event_value(id, script, variables);
    event.time = *parse_rfc3339(time);
    event.user.name = user;
    event.id = event_id(event.cluster, event.scheduler, event.kind, id, event.time.nanoseconds,
                        event.files[0].sha256);
    return event;
  }
  static Event use_of(const Event& job, const std::string& state, const std::string& end) {
    Event event = job;
    event.kind = "usage.job";
    event.files.clear();
    event.script.reset();
    event.environment_format = EnvironmentFormat::kNone;
    event.id = event_id({job.id, state});
    event.extra_json = R"({"job":{"state":")" + state + R"(","exit_code":"1:0","ended_at":")" +
                       end + R"("},"usage":{"elapsed_seconds":60}})";
    return event;
  }
  void store(std::vector<Event> events) {
    std::vector<std::shared_ptr<const Event>> shared;
    for (Event& event : events) shared.push_back(share(std::move(event)));
    auto sink = make();
    sink->deliver(outbox_.batch(shared));
  }
  Searchable::Answer answer(const Searchable::Request& request) {
    auto found = search_->search(request);
    EXPECT_TRUE(found) << found.error().message();
    return found ? *std::move(found) : Searchable::Answer{};
  }
  Ids ids(const Query& query) {
    Searchable::Request request;
    request.query = query;
    return ids_of(answer(request));
  }
  static Ids ids_of(const Searchable::Answer& answer) {
    Ids ids;
    for (const Searchable::Hit& hit : answer.hits) ids.push_back(hit.job.id);
    return ids;
  }

  TickingClock clock_{std::chrono::seconds(1)};
  std::optional<Layout> layout_;
  std::optional<TreeSearch> search_;
};

TEST_F(FileSearchTest, IsWhatTheSinkOffersIfItKeepsMetadata) {
  const auto sink = make();
  ASSERT_NE(sink->searchable(), nullptr);
  EXPECT_EQ(sink->searchable()->speed(), Searchable::Speed::kScan);
  config_.kinds = {FileKind::kScript};
  EXPECT_EQ(make()->searchable(), nullptr);
}

TEST_F(FileSearchTest, FindsTheNewestFirst) {
  store({job("1", "2026-10-01T00:00:00Z", "alice", "#!/bin/bash\nsrun gmx\n"),
         job("2", "2026-11-02T00:00:00Z", "bob", "srun gmx\n"),
         job("3", "2026-11-01T00:00:00Z", "alice", "srun vasp\n"),
         job("4", "2025-12-31T00:00:00Z", "carol", "srun gmx mdrun\n")});
  EXPECT_EQ(ids(Query{}), (Ids{"2", "3", "1", "4"}));
  EXPECT_EQ(ids(test::field_query(QueryField::kUser, "alice")), (Ids{"3", "1"}));
  EXPECT_EQ(ids(test::field_query(QueryField::kJob, "4")), (Ids{"4"}));
}

TEST_F(FileSearchTest, JoinsWhatLaterEventsSay) {
  const Event one = job("1", "2026-11-01T00:00:00Z", "alice", "a\n");
  const Event again = job("1", "2026-11-05T00:00:00Z", "alice", "b\n");  // the id is used again
  store({one, again, use_of(one, "FAILED", "2026-11-02T00:00:00Z"),
         use_of(again, "COMPLETED", "2026-11-06T00:00:00Z")});
  Searchable::Request request;
  request.query = test::field_query(QueryField::kState, "failed");
  const auto found = answer(request);
  ASSERT_EQ(found.hits.size(), 1u);
  EXPECT_EQ(found.hits[0].job.time, one.time);
  EXPECT_EQ(found.hits[0].job.exit_code, 1);
  const auto records = search_->get({.id = "1"}, {}, 10);
  ASSERT_TRUE(records);
  ASSERT_EQ(records->size(), 2u);
  EXPECT_EQ((*records)[0].job.state, "COMPLETED");
  EXPECT_EQ(*(*records)[0].event->file("script")->bytes, "b\n");
  ASSERT_EQ((*records)[1].later.size(), 1u);
  EXPECT_EQ((*records)[1].later[0]->kind, "usage.job");
}

TEST_F(FileSearchTest, GivesTheCheckpointsOfAJobWithIt) {
  const Event one = job("1", "2026-11-01T00:00:00Z", "alice", "a\n");
  std::vector<Event> events = {one};
  for (const std::string time : {"2026-11-01T01:00:00Z", "2026-11-01T02:00:00Z"}) {
    Event step = use_of(one, "RUNNING", time);
    step.kind = "job.checkpoint";
    step.time = *parse_rfc3339(time);
    step.job.name.reset();
    step.id = event_id({one.id, time});
    step.extra_json = R"({"checkpoint":{"action":"made"}})";
    events.push_back(step);
  }
  store(events);
  const auto records = search_->get({.id = "1"}, {}, 10);
  ASSERT_TRUE(records && records->size() == 1);
  EXPECT_FALSE((*records)[0].job.state);
  ASSERT_EQ((*records)[0].later.size(), 2u);
  for (const auto& step : (*records)[0].later) {
    EXPECT_EQ(step->kind, "job.checkpoint");
    EXPECT_EQ(step->extra_json, R"({"checkpoint":{"action":"made"}})");
  }
}

TEST_F(FileSearchTest, ShowsAJobOfWhichOnlyTheUseIsKnown) {
  store({use_of(job("9", "2026-11-01T00:00:00Z", "alice", "a"), "FAILED", "2026-11-02T00:00:00Z")});
  EXPECT_EQ(ids(test::field_query(QueryField::kUser, "alice")), (Ids{"9"}));
  const auto records = search_->get({.id = "9"}, {}, 10);
  ASSERT_TRUE(records && records->size() == 1);
  EXPECT_EQ((*records)[0].event, nullptr);
}

TEST_F(FileSearchTest, HidesWhatIsNotVisibleFromEveryCall) {
  Event unverified = job("3", "2026-11-03T00:00:00Z", "alice", "x\n");
  unverified.user.verified = false;
  store({job("1", "2026-11-01T00:00:00Z", "alice", "x\n"),
         job("2", "2026-11-02T00:00:00Z", "bob", "x\n"), unverified});
  Searchable::Request request;
  request.visibility = {.all = false, .users = {{.name = "alice"}}, .accounts = {}};
  request.count = true;
  request.exact = true;
  request.facets = {QueryField::kUser};
  const auto found = answer(request);
  EXPECT_EQ(ids_of(found), (Ids{"1"}));
  EXPECT_EQ(found.count->jobs, 1u);
  ASSERT_EQ(found.facets[0].values.size(), 1u);
  EXPECT_EQ(found.facets[0].values[0].value, "alice");
  EXPECT_TRUE(search_->get({.id = "2"}, request.visibility, 10)->empty());
  EXPECT_TRUE(search_->get({.id = "3"}, request.visibility, 10)->empty());
  EXPECT_EQ(search_->get({.id = "1"}, request.visibility, 10)->size(), 1u);
}

TEST_F(FileSearchTest, ReadsForOneUserOnlyTheFolderOfThatUser) {
  store({job("1", "2026-11-01T00:00:00Z", "alice", "x\n")});
  const Visibility alice{.all = false, .users = {{.name = "alice"}}, .accounts = {}};
  EXPECT_EQ(search_->get({.id = "1"}, alice, 10)->size(), 1u);
  fs::rename(fs::path(config_.root) / "alice", fs::path(config_.root) / "bob");
  EXPECT_EQ(search_->get({.id = "1"}, {}, 10)->size(), 1u);
  EXPECT_TRUE(search_->get({.id = "1"}, alice, 10)->empty());
}

TEST_F(FileSearchTest, FindsATaskUnderItsArray) {
  store({job("10", "2026-11-01T00:00:00Z", "alice", "x\n"),
         job("11_2", "2026-11-01T00:00:00Z", "alice", "own\n"),
         job("11", "2026-11-01T00:00:00Z", "alice", "x\n")});
  const auto of = [&](const std::string& id) {
    const auto records = search_->get({.id = id}, {}, 10);
    return records && records->size() == 1 ? (*records)[0].job.id : "?";
  };
  EXPECT_EQ(of("10_3"), "10");
  EXPECT_EQ(of("10+1"), "10");
  EXPECT_EQ(of("11_2"), "11_2");
  EXPECT_EQ(of("12"), "?");
  EXPECT_TRUE(search_->get({.id = "10", .cluster = "other"}, {}, 10)->empty());
  EXPECT_TRUE(search_->get({.id = "10", .time = Timestamp{1}}, {}, 10)->empty());
}

TEST_F(FileSearchTest, CountsAndSumsUp) {
  std::vector<Event> events;
  for (int i = 0; i < 30; ++i) {
    events.push_back(job(std::to_string(i),
                         "2026-" + std::string(i % 2 == 0 ? "11" : "03") + "-01T00:00:00Z",
                         i % 3 == 0 ? "alice" : "bob", i % 5 == 0 ? "gmx\n" : "vasp\n"));
  }
  store(std::move(events));
  Searchable::Request request;
  request.limit = 2;
  request.count = true;
  request.facets = {QueryField::kUser, QueryField::kSubmitted};
  auto found = answer(request);
  EXPECT_EQ(found.hits.size(), 2u);
  EXPECT_EQ(found.count->jobs, 30u);
  EXPECT_FALSE(found.count->at_least);
  ASSERT_EQ(found.facets.size(), 2u);
  EXPECT_TRUE(found.facets[0].exact);
  EXPECT_EQ(found.facets[0].over, 30u);
  EXPECT_EQ(found.facets[0].values[0].value, "bob");
  EXPECT_EQ(found.facets[0].values[0].jobs, 20u);
  EXPECT_EQ(found.facets[1].values[0].value, "2026-03-01");
  request.query = test::field_query(QueryField::kJob, "*5");
  request.limit = 0;
  request.exact = true;
  request.facet_values = 1;
  found = answer(request);
  EXPECT_TRUE(found.hits.empty());
  EXPECT_EQ(found.count->jobs, 3u);
  EXPECT_EQ(found.facets[0].values.size(), 1u);
}

TEST_F(FileSearchTest, NamesWhatItCannotRead) {
  store({job("1", "2026-11-01T00:00:00Z", "alice", "gmx\n"),
         job("2", "2026-11-02T00:00:00Z", "alice", "gmx\n"),
         job("3", "2026-11-03T00:00:00Z", "alice", "gmx\n")});
  const std::string folder = config_.root + "/alice/2026/11/";
  std::ofstream(folder + "1-md.sh") << "gmx, but another\n";
  std::ofstream(folder + "2-md.json") << "{";
  fs::create_symlink("/etc/passwd", folder + "4-md.json");
  const auto found = answer({});
  EXPECT_EQ(ids_of(found), (Ids{"3", "1"}));
  EXPECT_THAT(found.problems, testing::ElementsAre(testing::HasSubstr("2-md.json")));
  const auto records = search_->get({.id = "1"}, {}, 10);
  ASSERT_TRUE(records && records->size() == 1);
  EXPECT_THAT((*records)[0].problems,
              testing::ElementsAre(testing::HasSubstr("1-md.json: script")));
}

TEST_F(FileSearchTest, RefusesWhatATreeCannotAnswer) {
  store({job("1", "2026-11-01T00:00:00Z", "alice", "x\n")});
  const auto refused = [&](const Searchable::Request& request) {
    const auto found = search_->search(request);
    return found ? std::string() : found.error().message();
  };
  Searchable::Request request;
  request.query = test::field_query(QueryField::kFamily, "1");
  EXPECT_THAT(refused(request), testing::HasSubstr("family"));
  for (const Query& query :
       {test::text_query("x"), test::expression_query("x"), test::variable_query("USER", "x"),
        test::not_query(test::text_query("x")), test::field_query(QueryField::kModule, "GCC")}) {
    request.query = query;
    EXPECT_THAT(refused(request), testing::HasSubstr("add [sink.catalog]"));
  }
  request.query = Query{};
  request.facets = {QueryField::kFamily};
  EXPECT_THAT(refused(request), testing::HasSubstr("family"));
  request.facets.clear();
  request.after = "nonsense";
  EXPECT_THAT(refused(request), testing::HasSubstr("position"));
  EXPECT_EQ(search_->family(1, {}, std::nullopt, 10).error().kind(), ErrorKind::kInvalidConfig);
  request.after.clear();
  fs::remove_all(config_.root);
  EXPECT_EQ(search_->search(request).error().kind(), ErrorKind::kTransient);
}

TEST_F(FileSearchTest, SaysHowFarItGot) {
  store({job("1", "2026-11-01T00:00:00Z", "alice", "x\n"),
         job("2", "2026-03-01T00:00:00Z", "alice", "x\n")});
  Searchable::Request request;
  std::uint64_t jobs = 0;
  request.progress = [&](const Searchable::Progress& progress) { jobs = progress.jobs; };
  answer(request);
  EXPECT_EQ(jobs, 2u);
  std::stop_source stop;
  stop.request_stop();
  request.stop = stop.get_token();
  const auto stopped = answer(request);
  EXPECT_FALSE(stopped.finished);
  EXPECT_NE(stopped.next, "");
}

TEST(ScanPositionTest, SurvivesText) {
  JobRow row;
  row.cluster = "a/b";
  row.id = "1";
  row.time = Timestamp{-5};
  const ScanPosition position = ScanPosition::of(row);
  EXPECT_EQ(ScanPosition::from_text(position.text()), position);
  for (const char* bad : {"", "/", "x/00", "1/0", "1/zz"})
    EXPECT_EQ(ScanPosition::from_text(bad), std::nullopt) << bad;
}

// Every query finds what the reference finds in the events themselves, in pages of any size, and
// whenever the deadline comes.
class FileSearchDifferentialTest : public FileSearchTest,
                                   public testing::WithParamInterface<const char*> {};

TEST_P(FileSearchDifferentialTest, FindsWhatIsThere) {
  open(GetParam());
  std::mt19937 random(18);
  const auto pick = [&](const std::vector<std::string>& from) {
    return from[random() % from.size()];
  };
  const std::vector<std::string> users{"alice", "bob", "Carol", "unverified"};
  const std::vector<std::string> words{"gmx",           "vasp",   "srun",
                                       "mpirun -np 16", "run_01", "--mem=4G"};
  std::vector<Event> events;
  std::vector<Event> stored;
  for (int i = 0; i < 120; ++i) {
    const std::string day = std::to_string(10 + random() % 18);
    const std::string month = pick({"01", "02", "11"});
    Event event =
        job(std::to_string(100 + random() % 80),
            pick({"2025", "2026"}) + "-" + month + "-" + day + "T" +
                std::to_string(10 + random() % 10) + ":00:0" + std::to_string(random() % 10) + "." +
                std::to_string(100 + i) + "Z",
            pick(users), pick(words) + " " + pick(words) + "\n",
            {"OMP=" + pick({"1", "8"}), "LOADEDMODULES=" + pick({"GCC/12", "GROMACS/2023"})});
    event.user.verified = random() % 5 != 0;
    events.push_back(event);
    stored.push_back(event);
    if (random() % 2 == 0)
      stored.push_back(use_of(event, pick({"FAILED", "COMPLETED"}), "2026-12-01T00:00:00Z"));
  }
  std::vector<JobRow> rows;
  for (const Event& event : events) {
    JobRow row = row_of(event);
    for (const Event& later : stored) {
      if (later.kind != event.kind && later.job.id == event.job.id && later.time == event.time)
        join(row, later);
    }
    rows.push_back(std::move(row));
  }
  store(stored);
  std::vector<std::size_t> order(rows.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return ScanPosition::of(rows[a]) < ScanPosition::of(rows[b]);
  });

  const auto leaf = [&]() -> Query {
    switch (random() % 5) {
      case 0: return test::field_query(QueryField::kName, pick({"md", "m*", "other"}));
      case 1:
        return test::field_query(QueryField::kUser, pick({"alice", "BOB", "unverified", "c*"}));
      case 2: return test::field_query(QueryField::kState, pick({"failed", "completed"}));
      case 3: {
        Query range;
        range.kind = Query::Kind::kRange;
        range.field = QueryField::kSubmitted;
        range.from = rows[random() % rows.size()].time.nanoseconds;
        return range;
      }
      default: return test::field_query(QueryField::kJob, std::to_string(100 + random() % 80));
    }
  };
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int kRounds = 10;
#else
  constexpr int kRounds = 50;
#endif
  std::size_t all_hits = 0;
  for (int round = 0; round < kRounds; ++round) {
    Query query = leaf();
    if (random() % 3 != 0)
      query = test::combined_query(random() % 2 == 0 ? Query::Kind::kAnd : Query::Kind::kOr,
                                   {query, leaf()});
    if (random() % 4 == 0) query = test::combined_query(Query::Kind::kNot, {query});
    const auto matcher = QueryMatcher::create(query);
    ASSERT_TRUE(matcher);
    Ids expected;
    for (const std::size_t i : order) {
      if (matcher->judge(rows[i]) == QueryMatcher::Verdict::kYes)
        expected.push_back(rows[i].event_id);
    }
    Searchable::Request request;
    request.query = query;
    request.limit = 1 + random() % 20;
    const bool hurried = random() % 2 == 0;
    int ticks = 20;
    Ids found;
    for (int page = 0; page < 1000; ++page) {
      if (hurried) request.deadline = clock_.after(ticks);
      const auto part = answer(request);
      EXPECT_TRUE(part.problems.empty());
      for (const Searchable::Hit& hit : part.hits) found.push_back(hit.job.event_id);
      ASSERT_TRUE(part.finished || hurried);
      if (part.next.empty()) break;
      if (part.next == request.after || part.hits.empty()) ticks = std::min(2 * ticks, 100'000);
      request.after = part.next;
    }
    ASSERT_EQ(found, expected) << "round " << round;
    all_hits += found.size();
    request = {};
    request.query = query;
    request.count = true;
    request.exact = true;
    request.limit = 0;
    ASSERT_EQ(answer(request).count->jobs, expected.size());
  }
  EXPECT_GT(all_hits, std::size_t{12} * kRounds);
}

INSTANTIATE_TEST_SUITE_P(Layouts, FileSearchDifferentialTest,
                         testing::Values("user-month", "sarchive-daily",
                                         "{year}/{user}-{account}/{job_id}-{job_name}.{ext}",
                                         "{cluster}/{job_id}.{ext}"));

}  // namespace
}  // namespace scriptorium::file
