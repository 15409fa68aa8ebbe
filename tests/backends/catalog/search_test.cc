#include "backends/catalog/search.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <tuple>

#include "backends/catalog/search_position.h"
#include "core/base/number.h"
#include "core/base/sha256.h"
#include "tests/backends/catalog/query_maker.h"
#include "tests/backends/catalog/search_lab.h"
#include "tests/support/queries.h"

// The search of a catalog, held against a plain look at every job. Environment:
//   SCRIPTORIUM_MODEL_SEED=n     only the catalog and the queries of this seed (a failure prints
//   it) SCRIPTORIUM_MODEL_QUERIES=n  queries for each seed (400; 40 with a sanitizer)
namespace scriptorium {
namespace {

using test::combined_query;
using test::field_query;
using test::JobMaker;
using test::QueryMaker;
using test::reference_matches;
using test::SearchLab;
using test::text_query;
using test::TickingClock;
using Answer = Searchable::Answer;
using Request = Searchable::Request;

std::optional<std::uint64_t> number_from_environment(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? std::nullopt : parse_number<std::uint64_t>(text);
}

using Key = std::tuple<std::int64_t, std::string, std::string>;  // newest first, see jobs()
Key key_of(const JobRow& row) { return {row.time.nanoseconds, row.cluster, row.id}; }

std::vector<Key> keys_of(const std::vector<Searchable::Hit>& hits) {
  std::vector<Key> keys;
  for (const Searchable::Hit& hit : hits) keys.push_back(key_of(hit.job));
  return keys;
}

Request everything(Query query) {
  Request request;
  request.query = std::move(query);
  request.limit = 100'000;
  request.most_lines = 0;
  return request;
}

// ---- against the reference

class SearchModel {
 public:
  explicit SearchModel(std::uint64_t seed) : make_(seed), lab_(100) {
    test::fill(lab_, make_, 330);
    jobs_ = lab_.jobs();
  }

  void run(std::uint64_t queries) {
    ASSERT_EQ(lab_.problem(), "");
    ASSERT_GE(lab_.segments().size(), 3U);
    ASSERT_GE(jobs_.size(), 330U);
    QueryMaker maker(make_, jobs_);
    for (std::uint64_t i = 0; i < queries && !::testing::Test::HasFailure(); ++i) {
      if (i == queries / 2) finish();
      compare(maker.query());
    }
  }

 private:
  void finish() {
    lab_.finish();
    ASSERT_EQ(lab_.problem(), "");
    std::uint64_t lists = 0;
    for (const catalog::SegmentInfo& info : lab_.segments()) {
      auto db = catalog::open_segment_reader(lab_.root(), info.id);
      lists += (*db)->number("SELECT count(*) FROM frequent");
    }
    EXPECT_GT(lists, 20U);
  }
  Searchable& any_search() { return make_.one_in(2) ? lab_.search() : *by_chunks_; }
  Visibility visibility() {
    Visibility visibility;
    if (!make_.one_in(4)) return visibility;
    visibility.all = false;
    visibility.users = {{.name = make_.any(JobMaker::kUsers)}};
    if (make_.one_in(2)) visibility.users[0].uid = make_.any(JobMaker::kUids);
    if (make_.one_in(3))
      visibility.accounts = {{make_.one_in(4) ? "Wide" : "lab", make_.any(JobMaker::kAccounts)}};
    if (make_.one_in(6)) visibility.users.clear();
    return visibility;
  }

  void compare(const Query& query) {
    SCOPED_TRACE("query " + query::to_text(query));
    Request request = everything(query);
    request.visibility = visibility();
    request.count = true;
    request.exact = make_.one_in(2);
    request.facets = {QueryField::kUser, QueryField::kModule, QueryField::kState};
    if (make_.one_in(2)) request.facets = {QueryField::kAccount, QueryField::kVerified};
    request.facet_values = 1000;

    const auto matcher = QueryMatcher::create(query);
    ASSERT_TRUE(matcher) << matcher.error().message();
    std::vector<Key> expected;
    std::map<QueryField, std::map<std::string, std::uint64_t>> facets;
    for (const SearchLab::Job& job : jobs_) {
      if (!is_visible(job.row, request.visibility) || !reference_matches(*matcher, job)) continue;
      expected.push_back(key_of(job.row));
      for (const QueryField field : request.facets) {
        for (const std::string& value : field_values(field, job.row)) ++facets[field][value];
      }
    }
    const auto answer = any_search().search(request);
    ASSERT_TRUE(answer) << answer.error().message();
    EXPECT_EQ(answer->problems, std::vector<std::string>{});
    EXPECT_TRUE(answer->finished);
    EXPECT_EQ(answer->next, "");
    EXPECT_EQ(keys_of(answer->hits), expected);
    ASSERT_TRUE(answer->count);
    EXPECT_EQ(answer->count->jobs, expected.size());
    EXPECT_FALSE(answer->count->at_least);
    for (const Searchable::Facet& facet : answer->facets) {
      std::map<std::string, std::uint64_t> counted;
      for (const Searchable::FacetValue& value : facet.values) counted[value.value] = value.jobs;
      EXPECT_EQ(counted, facets[facet.field]) << query_field_name(facet.field);
      EXPECT_TRUE(facet.exact);
    }
    compare_pages(request, expected);
  }

  void compare_pages(Request request, const std::vector<Key>& expected) {
    request.limit = 7;
    request.count = false;
    request.facets.clear();
    std::vector<Key> paged;
    for (std::size_t page = 0; page < 200; ++page) {
      const auto answer = any_search().search(request);
      ASSERT_TRUE(answer) << answer.error().message();
      EXPECT_LE(answer->hits.size(), 7U);
      for (const Key& key : keys_of(answer->hits)) paged.push_back(key);
      if (answer->next.empty()) break;
      request.after = answer->next;
    }
    EXPECT_EQ(paged, expected) << "in pages";
  }

  JobMaker make_;
  SearchLab lab_;
  // An owner of a segment has more jobs, and so it mostly reads whole chunks.
  std::unique_ptr<Searchable> by_chunks_ =
      catalog::make_search(lab_.root(), lab_.clock(), {.jobs_of_owners = 5});
  std::vector<SearchLab::Job> jobs_;
};

TEST(CatalogSearchModelTest, RandomQueriesFindWhatALookAtEveryJobFinds) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr std::uint64_t kQueries = 25;
#else
  constexpr std::uint64_t kQueries = 200;
#endif
  const std::uint64_t queries =
      number_from_environment("SCRIPTORIUM_MODEL_QUERIES").value_or(kQueries);
  const auto only = number_from_environment("SCRIPTORIUM_MODEL_SEED");
  for (std::uint64_t seed = only.value_or(1); seed <= only.value_or(3); ++seed) {
    SearchModel(seed).run(queries);
    if (HasFailure()) {
      std::cout << "the catalog and queries of SCRIPTORIUM_MODEL_SEED=" << seed << "\n";
      return;
    }
  }
}

// ---- single behaviours

class CatalogSearchTest : public ::testing::Test {
 protected:
  void fill(std::int64_t jobs) { test::fill(lab_, make_, jobs); }

  std::vector<std::string> find(const Query& query) {
    const auto answer = lab_.search().search(everything(query));
    if (!answer) return {"error: " + answer.error().message()};
    std::vector<std::string> ids;
    for (const Searchable::Hit& hit : answer->hits) ids.push_back(hit.job.id);
    return ids;
  }
  // In the first segment's database.
  void change(const std::string& sql) {
    auto db = sqlite::Connection::open(catalog::segment_file(lab_.root(), 1),
                                       sqlite::Connection::Mode::kReadWrite);
    ASSERT_TRUE(db && (*db)->execute(sql)) << sql;
  }

  JobMaker make_{7};
  SearchLab lab_;
};

TEST_F(CatalogSearchTest, ShowsTheMatchingLines) {
  lab_.put({test::make_event_value("1", "#!/bin/bash\n# setup\nmodule load GROMACS\ngmx run\n")});
  Request request;
  request.query = text_query("gromacs");
  request.context_lines = 1;
  const auto answer = lab_.search().search(request);
  ASSERT_TRUE(answer) << answer.error().message();
  ASSERT_EQ(answer->hits.size(), 1U);
  ASSERT_EQ(answer->hits[0].lines.size(), 3U);
  EXPECT_EQ(answer->hits[0].lines[1].text, "module load GROMACS");
  EXPECT_EQ(answer->hits[0].lines[1].number, 3U);
  EXPECT_EQ(answer->hits[0].lines[1].marks,
            (std::vector<std::pair<std::uint32_t, std::uint32_t>>{{12, 19}}));
}

TEST_F(CatalogSearchTest, FindsASealedScriptThatASecondJobUsesLater) {
  Event first = test::make_event_value("1", "#!/bin/sh\nneedle\n");
  lab_.put({first});
  lab_.seal();
  std::vector<Event> others;
  for (int i = 2; i < 40; ++i) {
    Event other = test::make_event_value(std::to_string(i), "#!/bin/sh\nhay\n");
    other.time.nanoseconds += i * kSecond;
    others.push_back(other);
  }
  Event again = test::make_event_value("40", "#!/bin/sh\nneedle\n");
  again.time.nanoseconds += 100 * kSecond;
  others.push_back(again);
  lab_.put(others);
  EXPECT_EQ(find(text_query("needle")), (std::vector<std::string>{"40", "1"}));
}

TEST_F(CatalogSearchTest, AnUnknownPlaceToContinueFromIsRefused) {
  fill(10);
  for (const std::string after :
       {"x", "1", "1.2.3", "1.2.3.4.5", "2.1.1.1", "1.2.3.99999999999999999999", "1. 2.3.4",
        "1.02.3.4", "1.2.3.4\n", "1..3.4", "-1.2.3.4"}) {
    Request request;
    request.after = after;
    const auto answer = lab_.search().search(request);
    ASSERT_FALSE(answer) << after;
    EXPECT_EQ(answer.error().kind(), ErrorKind::kInvalidConfig);
  }
  Request request;
  request.after = catalog::to_text(
      {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::min(), 0});
  const auto answer = lab_.search().search(request);
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_TRUE(answer->hits.empty());
  EXPECT_EQ(answer->next, "");
}

TEST_F(CatalogSearchTest, HostileQueriesEndWithAnAnswerOrAClearError) {
  fill(60);
  const std::vector<std::string> texts{"\" OR \"a",
                                       "a\" NEAR(b c)",
                                       "w : x",
                                       "-foo",
                                       "^a",
                                       "a*b",
                                       std::string("a\0b", 3),
                                       "'; DROP TABLE jobs; --",
                                       "{w}: a",
                                       "(((((",
                                       "\\",
                                       "%",
                                       "_",
                                       "NULL",
                                       "rowid",
                                       "words MATCH 'a'",
                                       std::string(4000, 'a'),
                                       "\xff\xfe",
                                       ""};
  for (const std::string& text : texts) {
    for (const bool prefix : {false, true}) {
      Query query = text_query(text);
      query.prefix = prefix;
      const auto answer = lab_.search().search(everything(query));
      EXPECT_TRUE(answer) << text << ": " << answer.error().message();
      if (answer) {
        EXPECT_TRUE(answer->problems.empty()) << text << ": " << answer->problems[0];
      }
    }
    for (std::size_t field = 0; field < kQueryFieldCount; ++field) {
      for (const std::string& value : {text, text + "*", "*" + text}) {
        const Query query = field_query(static_cast<QueryField>(field), value);
        const auto answer = lab_.search().search(everything(query));
        EXPECT_TRUE(answer) << text << ": " << answer.error().message();
        if (answer) {
          EXPECT_TRUE(answer->problems.empty()) << text << ": " << answer->problems[0];
        }
      }
    }
  }
}

TEST_F(CatalogSearchTest, QueriesBeyondTheLimitsAreRefused) {
  fill(5);
  Query deep = text_query("a");
  for (int i = 0; i < 3000; ++i) deep = combined_query(Query::Kind::kNot, {std::move(deep)});
  Query wide = combined_query(Query::Kind::kOr, std::vector<Query>(5000, text_query("a")));
  Query expression;
  expression.kind = Query::Kind::kExpression;
  expression.text = "((((a{1,100}){1,100}){1,100}){1,100})";
  for (const Query& query : {deep, wide, text_query(std::string(1 << 20, 'x')), expression}) {
    const auto answer = lab_.search().search(everything(query));
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().kind(), ErrorKind::kInvalidConfig);
    EXPECT_LT(answer.error().message().size(), 300U);
  }
}

TEST_F(CatalogSearchTest, EveryDeadlineGivesATrueBeginningThatCanBeContinued) {
  fill(150);
  const std::vector<SearchLab::Job> jobs = lab_.jobs();
  Query query = combined_query(Query::Kind::kOr,
                               {text_query("gromacs"), field_query(QueryField::kUser, "alice")});
  const auto matcher = QueryMatcher::create(query);
  std::vector<Key> expected;
  for (const SearchLab::Job& job : jobs) {
    if (reference_matches(*matcher, job)) expected.push_back(key_of(job.row));
  }
  const TickingClock clock(std::chrono::milliseconds(1));
  const auto search = catalog::make_search(lab_.root(), clock);
  bool some_unfinished = false;
  for (const int ms : {0, 1, 5, 20, 60, 200, 1000}) {
    Request request = everything(query);
    std::vector<Key> found;
    std::string before = "none";
    for (int page = 0; page < 2000 && request.after != before; ++page) {
      before = request.after;
      request.deadline = clock.steady() + std::chrono::milliseconds(ms);
      const auto answer = search->search(request);
      ASSERT_TRUE(answer) << answer.error().message();
      some_unfinished = some_unfinished || !answer->finished;
      for (const Key& key : keys_of(answer->hits)) found.push_back(key);
      if (answer->finished) {
        EXPECT_EQ(answer->next, "");
        EXPECT_EQ(found, expected);
        break;
      }
      EXPECT_NE(answer->next, "");
      // What was found is what comes first.
      ASSERT_LE(found.size(), expected.size());
      EXPECT_TRUE(std::equal(found.begin(), found.end(), expected.begin())) << ms;
      if (answer->searched_back_to) {
        for (std::size_t i = found.size(); i < expected.size(); ++i)
          EXPECT_LE(std::get<0>(expected[i]), answer->searched_back_to->nanoseconds);
      }
      request.after = answer->next;
    }
    if (ms >= 1000) {
      EXPECT_EQ(found, expected);
    }
  }
  EXPECT_TRUE(some_unfinished);
}

TEST_F(CatalogSearchTest, AStopEndsTheSearch) {
  fill(50);
  std::stop_source source;
  source.request_stop();
  Request request = everything(text_query("run"));
  request.stop = source.get_token();
  const auto answer = lab_.search().search(request);
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_FALSE(answer->finished);
  EXPECT_TRUE(answer->hits.empty());
}

TEST_F(CatalogSearchTest, ReportsHowFarItCame) {
  fill(50);
  Request request = everything(text_query("run"));
  std::vector<Searchable::Progress> reports;
  request.progress = [&](const Searchable::Progress& progress) { reports.push_back(progress); };
  ASSERT_TRUE(lab_.search().search(request));
  ASSERT_FALSE(reports.empty());
  EXPECT_TRUE(reports[0].searched_back_to);
}

TEST_F(CatalogSearchTest, ADamagedBlockIsLeftOutAndSaidOnce) {
  for (int i = 1; i <= 3; ++i) {
    Event event = test::make_event_value(std::to_string(i),
                                         "#!/bin/sh\nneedle\nnumber " + std::to_string(i) + "\n");
    event.time.nanoseconds += i * kSecond;
    event.user.name = "user" + std::to_string(i);  // a block of its own
    lab_.put({event});
    lab_.seal();
  }
  change(
      "UPDATE blocks SET data = x'28b52ffd' WHERE kind = 0 AND id = "
      "(SELECT block FROM contents c JOIN jobs j ON j.script = c.id WHERE j.job = 2)");
  const auto answer = lab_.search().search(everything(text_query("needle")));
  ASSERT_TRUE(answer) << answer.error().message();
  std::vector<std::string> ids;
  for (const Searchable::Hit& hit : answer->hits) ids.push_back(hit.job.id);
  EXPECT_EQ(ids, (std::vector<std::string>{"3", "1"}));
  ASSERT_EQ(answer->problems.size(), 1U);
  EXPECT_NE(answer->problems[0].find("segments/000001.db: block"), std::string::npos)
      << answer->problems[0];
}

// Here it cannot be opened at all.
TEST_F(CatalogSearchTest, ABlockWhoseScriptsHaveNotAllWordsIsNotOpened) {
  for (int i = 1; i <= 2; ++i) {
    const std::string own = i == 1 ? "needle" : "thread";
    std::string script = "#!/bin/sh\n" + own + "\n";
    while (script.size() < catalog::kBlockBytes * 2 / 3)
      script += "cat " + std::to_string(i) + "\n";
    lab_.put({test::make_event_value(std::to_string(i), script)});
  }
  lab_.seal();
  Query both;
  both.kind = Query::Kind::kAnd;
  both.children = {text_query("needle"), text_query("cat")};
  EXPECT_EQ(find(both), (std::vector<std::string>{"1"}));
  change("UPDATE blocks SET data = x'28b52ffd' WHERE kind = 0");
  const auto damaged = lab_.search().search(everything(both));
  ASSERT_TRUE(damaged);
  EXPECT_EQ(damaged->problems.size(), 1U);
  both.children = {text_query("needle"), text_query("thread")};
  const auto without = lab_.search().search(everything(both));
  ASSERT_TRUE(without);
  EXPECT_TRUE(without->problems.empty()) << without->problems[0];
  // As in a block that was written before format 4.
  change("DELETE FROM places");
  const auto unknown = lab_.search().search(everything(both));
  ASSERT_TRUE(unknown);
  EXPECT_EQ(unknown->problems.size(), 1U);
}

// Of the first segment, which is finished, each block has the scripts of one owner.
void put_owners(SearchLab& lab, int jobs, int of_owner,
                const std::function<const char*(int)>& script) {
  for (int i = 0; i < jobs; ++i) {
    Event job = test::make_event_value(std::to_string(i), script(i));
    job.user = {.name = "user" + std::to_string(i / of_owner), .id = "1000", .verified = true};
    lab.put({job});
  }
}

std::size_t problems_of(SearchLab& lab, const Query& query) {
  const auto answer = catalog::make_search(lab.root(), lab.clock(), {})->search(everything(query));
  return answer ? answer->problems.size() : 4711;
}

// Of an owner each; here the blocks cannot be opened, and `places` is gone.
TEST_F(CatalogSearchTest, BlocksOfAFinishedSegmentWithoutAScriptOfAllWordsAreNotOpened) {
  SearchLab lab(/*segment_jobs=*/24);
  put_owners(lab, 25, 2,
             [](int i) { return i % 2 == 0 ? "#!/bin/sh\nneedle\n" : "#!/bin/sh\nthread cat\n"; });
  lab.finish();
  ASSERT_EQ(lab.problem(), "");
  auto db = sqlite::Connection::open(catalog::segment_file(lab.root(), 1),
                                     sqlite::Connection::Mode::kReadWrite);
  ASSERT_EQ((*db)->number("SELECT count(*) FROM blocks WHERE kind = 0"), 12U);
  const auto problems = [&](const Query& query) { return problems_of(lab, query); };
  const auto with = [](const char* word, Query other) {
    return test::all_of_query({text_query(word), std::move(other)});
  };
  const std::vector<Query> without_job{
      with("needle", text_query("thread")), with("thread", test::not_query(text_query("cat"))),
      with("sh", test::all_of_query({text_query("needle"), text_query("cat")}))};
  ASSERT_TRUE((*db)->execute("DELETE FROM places; UPDATE blocks SET data = x'28b52ffd'"));
  for (const Query& query : without_job) EXPECT_EQ(problems(query), 0U) << query::to_text(query);
  EXPECT_GT(problems(with("needle", text_query("sh"))), 0U);
  EXPECT_GT(problems(with("needle", test::not_query(text_query("thread")))), 0U);
  // A list that is damaged says nothing.
  ASSERT_TRUE((*db)->execute("UPDATE frequent SET scripts = x'28b52ffd' WHERE word = x'636174'"));
  EXPECT_EQ(problems(without_job[0]), 0U);
  EXPECT_GT(problems(without_job[1]), 0U);
  ASSERT_TRUE((*db)->execute("DELETE FROM frequent WHERE word = x'2d'"));
  EXPECT_GT(problems(without_job[0]), 0U);
}

// All scripts have both words; here the blocks cannot be opened.
TEST_F(CatalogSearchTest,
       BlocksOfAFinishedSegmentInWhichFrequentWordsAreNeverSideBySideAreNotRead) {
  SearchLab lab(/*segment_jobs=*/24);
  put_owners(lab, 25, 2,
             [](int i) { return i % 2 == 0 ? "needle thread cat\n" : "own\nneedle thread cat\n"; });
  lab.finish();
  ASSERT_EQ(lab.problem(), "");
  auto db = sqlite::Connection::open(catalog::segment_file(lab.root(), 1),
                                     sqlite::Connection::Mode::kReadWrite);
  const auto problems = [&](const char* phrase) { return problems_of(lab, text_query(phrase)); };
  // Without the filters of pairs, a block is opened if only its words are considered.
  ASSERT_TRUE((*db)->execute("DELETE FROM pairs; UPDATE blocks SET data = x'28b52ffd'"));
  EXPECT_EQ(problems("needle cat"), 0U);
  EXPECT_EQ(problems("thread cat needle"), 0U);
  EXPECT_GT(problems("needle thread"), 0U);
  EXPECT_GT(problems("needle thread cat"), 0U);
  // What a list does not say, as that of an earlier version, is not believed.
  const std::string list =
      *(*db)->text("SELECT scripts FROM frequent WHERE word = x'6e6565646c65'");
  const auto whole = catalog::Block::unpack(list);
  ASSERT_EQ(whole->size(), 3U);
  EXPECT_EQ((*whole)[2], "thread ");
  ASSERT_TRUE((*db)->run("UPDATE frequent SET scripts = ? WHERE word = x'6e6565646c65'",
                         sqlite::Blob{catalog::pack_block({(*whole)[0], (*whole)[1]}, 1)}));
  EXPECT_GT(problems("needle cat"), 0U);
  EXPECT_EQ(problems("cat needle"), 0U);
  ASSERT_TRUE((*db)->execute("DELETE FROM frequent WHERE word = x'636174'"));
  EXPECT_GT(problems("thread cat needle"), 0U);
}

// A byte that is no text continues the word before it, which is then another one.
TEST_F(CatalogSearchTest, AScriptHasNotAWordThatSuchAByteContinues) {
  SearchLab lab(/*segment_jobs=*/36);
  put_owners(lab, 37, 3, [](int i) {
    constexpr std::array kScripts{"alpha gmx\xff", "beta gmx", "gamma"};
    return kScripts.at(i % 3);
  });
  const Query query = test::all_of_query({text_query("alpha"), test::not_query(text_query("gmx"))});
  for (const char* const when : {"before", "after"}) {
    const auto answer = lab.search().search(everything(query));
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->hits.size(), 13U) << when;
    lab.finish();
    ASSERT_EQ(lab.problem(), "");
  }
}

TEST_F(CatalogSearchTest, ADamagedListOfFieldsHidesNoJob) {
  lab_.put({test::make_event_value("1", "#!/bin/sh\nneedle\n")});
  const Query scheduler = field_query(QueryField::kScheduler, "slurm");
  ASSERT_EQ(find(scheduler), (std::vector<std::string>{"1"}));
  ASSERT_EQ(find(field_query(QueryField::kScheduler, "torque")), (std::vector<std::string>{}));
  change("UPDATE fields SET list = x'ff'");  // a number that does not end
  EXPECT_EQ(find(scheduler), (std::vector<std::string>{"1"}));
}

// As after an erasure, when the next content gets the number of the erased one.
TEST_F(CatalogSearchTest, AWaitingScriptThatIsAnotherNowIsNotRemembered) {
  lab_.put({test::make_event_value("1", "#!/bin/sh\nneedle\n")});
  ASSERT_EQ(find(text_query("needle")), (std::vector<std::string>{"1"}));
  {
    auto db = sqlite::Connection::open(catalog::segment_file(lab_.root(), 1),
                                       sqlite::Connection::Mode::kReadWrite);
    ASSERT_TRUE(db);
    const std::string packed = catalog::pack_block({"#!/bin/sh\nother\n"}, 1);
    ASSERT_TRUE((*db)->run("UPDATE pending SET base = NULL, data = ? WHERE kind = 0",
                           sqlite::Blob{packed}));
    ASSERT_EQ((*db)->changes(), 1);
  }
  EXPECT_EQ(find(text_query("needle")), (std::vector<std::string>{}));
  EXPECT_EQ(find(text_query("other")), (std::vector<std::string>{"1"}));
}

TEST_F(CatalogSearchTest, AJobIsFoundBesideAWriterThatSealsAllTheTime) {
  fill(40);
  const std::vector<SearchLab::Job> before = lab_.jobs();
  const auto matcher = QueryMatcher::create(text_query("run"));
  std::set<Key> expected;
  for (const SearchLab::Job& job : before) {
    if (reference_matches(*matcher, job)) expected.insert(key_of(job.row));
  }
  std::jthread writer([&](const std::stop_token& stop) {
    for (std::int64_t number = 1000; !stop.stop_requested(); ++number) {
      lab_.put({make_.job(number)});
      if (number % 3 == 0) lab_.seal();
    }
  });
  for (int i = 0; i < 100; ++i) {
    const auto answer = lab_.search().search(everything(text_query("run")));
    ASSERT_TRUE(answer) << answer.error().message();
    EXPECT_TRUE(answer->problems.empty()) << answer->problems[0];
    std::set<Key> found;
    for (const Key& key : keys_of(answer->hits)) EXPECT_TRUE(found.insert(key).second);
    EXPECT_TRUE(std::includes(found.begin(), found.end(), expected.begin(), expected.end()));
  }
  writer.request_stop();
  writer.join();
  EXPECT_EQ(lab_.problem(), "");
}

TEST_F(CatalogSearchTest, CountsOverTextsAreOfTheNewestUnlessExactIsAsked) {
  fill(80);
  const auto search = catalog::make_search(lab_.root(), lab_.clock(), {.sample = 9});
  Request request = everything(text_query("run"));
  request.facets = {QueryField::kUser};
  const auto matches = search->search(request);
  ASSERT_TRUE(matches) << matches.error().message();
  ASSERT_GT(matches->hits.size(), 20U);
  std::map<std::string, std::uint64_t> newest;
  for (std::size_t i = 0; i < 9; ++i) {
    if (matches->hits[i].job.user) ++newest[*matches->hits[i].job.user];
  }

  request.limit = 0;
  request.count = true;
  const auto sampled = search->search(request);
  ASSERT_TRUE(sampled) << sampled.error().message();
  EXPECT_TRUE(sampled->hits.empty());
  ASSERT_TRUE(sampled->count);
  EXPECT_EQ(sampled->count->jobs, 9U);
  EXPECT_TRUE(sampled->count->at_least);
  ASSERT_EQ(sampled->facets.size(), 1U);
  EXPECT_FALSE(sampled->facets[0].exact);
  EXPECT_EQ(sampled->facets[0].over, 9U);
  std::map<std::string, std::uint64_t> counted;
  for (const auto& value : sampled->facets[0].values) counted[value.value] = value.jobs;
  EXPECT_EQ(counted, newest);

  request.exact = true;
  const auto exact = search->search(request);
  ASSERT_TRUE(exact) << exact.error().message();
  EXPECT_EQ(exact->count->jobs, matches->hits.size());
  EXPECT_FALSE(exact->count->at_least);
  EXPECT_TRUE(exact->facets[0].exact);
}

// How much of the -wal can be taken over into the database while a search goes on and somebody
// writes: frames in it, and frames that were.
std::pair<std::int64_t, std::int64_t> frames_beside_a_search(SearchLab& lab, JobMaker& make,
                                                             std::int64_t new_job,
                                                             std::chrono::milliseconds snapshot) {
  const std::vector<SearchLab::Job> jobs = lab.jobs();
  const TickingClock clock(std::chrono::milliseconds(100));
  const auto search = catalog::make_search(lab.root(), clock, {.snapshot = snapshot});
  int reports = 0;
  std::pair<std::int64_t, std::int64_t> frames;
  Request request = everything(Query{});
  request.progress = [&](const Searchable::Progress&) {
    ++reports;
    if (reports == 1) {
      lab.put({make.job(new_job)});
      lab.seal();
    }
    if (reports != 2) return;
    const auto db = sqlite::Connection::open(catalog::segment_file(lab.root(), 1),
                                             sqlite::Connection::Mode::kReadWrite);
    if (!db) return;
    sqlite::Statement checkpoint(**db, "PRAGMA wal_checkpoint(PASSIVE)");
    if (checkpoint.step()) frames = {checkpoint.integer(1), checkpoint.integer(2)};
    checkpoint.reset();
  };
  const auto answer = search->search(request);
  EXPECT_TRUE(answer && answer->finished && answer->problems.empty());
  EXPECT_GE(reports, 2);
  // Each job once, also after its contents were moved.
  std::set<Key> found;
  for (const Key& key : keys_of(answer->hits)) EXPECT_TRUE(found.insert(key).second);
  for (const SearchLab::Job& job : jobs) EXPECT_TRUE(found.contains(key_of(job.row)));
  return frames;
}

TEST(CatalogSearchSnapshotTest, ALongSearchRenewsItsSnapshotSoThatTheWalCanBeTakenOver) {
  JobMaker make(7);
  SearchLab lab(100'000);
  std::vector<Event> events;
  // Several chunks: the snapshot is renewed between two.
  for (std::int64_t number = 1; number <= 800; ++number) events.push_back(make.job(number));
  lab.put(events);
  const auto held = frames_beside_a_search(lab, make, 5000, std::chrono::hours(1));
  EXPECT_LT(held.second, held.first);
  const auto renewed = frames_beside_a_search(lab, make, 6000, std::chrono::milliseconds(0));
  EXPECT_GT(renewed.first, 0);
  EXPECT_EQ(renewed.second, renewed.first);
}

// ---- single jobs

TEST_F(CatalogSearchTest, GetsAJobWithItsTextsAndLaterEvents) {
  const Event job = make_.job(4711);
  Event plain = test::make_event_value("4711");
  lab_.put({plain});
  Event late = make_.later(plain);
  lab_.put({late});
  lab_.seal();
  const auto records = lab_.search().get({.id = "4711"}, {}, 5);
  ASSERT_TRUE(records) << records.error().message();
  ASSERT_EQ(records->size(), 1U);
  const Searchable::Record& record = records->front();
  ASSERT_NE(record.event, nullptr);
  EXPECT_EQ(record.event->id, plain.id);
  EXPECT_EQ(*record.event->file("script")->bytes, test::kScript);
  ASSERT_EQ(record.later.size(), 1U);
  EXPECT_EQ(record.later[0]->id, late.id);
  EXPECT_TRUE(record.problems.empty());

  Visibility others;
  others.all = false;
  others.users = {{.name = "bob"}};
  EXPECT_TRUE(lab_.search().get({.id = "4711"}, others, 5)->empty());
  EXPECT_TRUE(lab_.search().get({.id = "4711", .cluster = "elsewhere"}, {}, 5)->empty());
  EXPECT_TRUE(
      lab_.search().get({.id = "4711", .cluster = "lab", .time = plain.time}, {}, 5)->size() == 1U);
  EXPECT_TRUE(lab_.search().get({.id = "'; --"}, {}, 5)->empty());
}

TEST_F(CatalogSearchTest, OfAnArrayOfAnySizeAsManyEventsAreReadAsMemoryHasRoomFor) {
  Event array = test::make_event_value("4711");
  array.job.array = JobArray{.job_id = "4711", .task_spec = "0-10001"};
  lab_.put({array});
  std::vector<Event> tasks;
  for (int task = 0; task < 10'002; ++task) {
    tasks.push_back(make_.later(array));
    Event& event = tasks.back();
    event.job.array->task_id = std::to_string(task);
    event.time.nanoseconds += task;
    event.id = sha256_hex(std::to_string(task));
  }
  lab_.put(tasks);
  ASSERT_EQ(lab_.problem(), "");
  const auto records = lab_.search().get({.id = "4711"}, {}, 5);
  ASSERT_TRUE(records && records->size() == 1);
  ASSERT_EQ(records->front().later.size(), 10'000U);
  EXPECT_EQ(records->front().later.front()->job.array->task_id, "2");
  ASSERT_EQ(records->front().problems.size(), 1U);
  EXPECT_EQ(
      records->front().problems[0],
      "segments/000001.db: a job has 10002 later events, of which only the newest 10000 are read");
}

// Of a client of the query service, which need not use our parser.
TEST(CatalogHostileQueryTest, ATreeThatNoParserMakesIsAnsweredOrRefused) {
  JobMaker make(7);
  SearchLab lab(100);
  test::fill(lab, make, 120);
  const std::vector<std::string> texts{
      "",     " ",          "*",   "**a**",   std::string(1, '\0'),
      "\xFF", "a\nb",       "(((", "a{9}{9}", "[[:alpha:]]*",
      "%",    "'; DROP --", "\\",  "mdrun",   std::string(5000, 'x')};
  const std::vector<std::int64_t> numbers{0, 1, -1, std::numeric_limits<std::int64_t>::max(),
                                          std::numeric_limits<std::int64_t>::min()};
  const std::function<Query(int)> tree = [&](int depth) {
    Query query{.kind = static_cast<Query::Kind>(make.below(9))};
    std::size_t children = query.kind == Query::Kind::kNot ? 1 : 0;
    if (query.kind == Query::Kind::kAnd || query.kind == Query::Kind::kOr)
      children = 2 + make.below(3);
    if (depth == 0 && children > 0) query.kind = Query::Kind::kText;
    for (std::size_t i = 0; depth > 0 && i < children; ++i)
      query.children.push_back(tree(depth - 1));
    query.part = static_cast<JobPart>(make.below(2));
    query.field = static_cast<QueryField>(make.below(kQueryFieldCount));
    query.text = make.any(texts);
    query.name = make.any(texts);
    query.prefix = make.one_in(2);
    query.ignore_case = make.one_in(2);
    query.percent = make.one_in(2);
    if (make.one_in(2)) query.from = make.any(numbers);
    if (make.one_in(2)) query.to = make.any(numbers);
    return query;
  };
  std::size_t answered = 0;
  for (int i = 0; i < 1'500; ++i) {
    Request request = everything(tree(static_cast<int>(make.below(4))));
    request.count = true;
    request.most_lines = 3;
    if (lab.search().search(request)) ++answered;
  }
  EXPECT_GT(answered, 300U);
}

TEST_F(CatalogSearchTest, ATaskOfAnArrayIsTheArrayIfItHasNoRowItself) {
  lab_.put({test::make_event_value("10"), test::make_event_value("10_4", "#!/bin/sh\ntask\n")});
  EXPECT_EQ(lab_.search().get({.id = "10_3"}, {}, 5)->at(0).job.id, "10");
  EXPECT_EQ(lab_.search().get({.id = "10+1"}, {}, 5)->at(0).job.id, "10");
  EXPECT_EQ(lab_.search().get({.id = "10_4"}, {}, 5)->at(0).job.id, "10_4");
  EXPECT_TRUE(lab_.search().get({.id = "11_4"}, {}, 5)->empty());
}

TEST_F(CatalogSearchTest, AFamilyIsListedNewestFirst) {
  std::vector<Event> events;
  for (int i = 0; i < 9; ++i) {
    Event event = test::make_event_value(std::to_string(100 + i));
    event.time.nanoseconds += i * kSecond;
    events.push_back(event);
  }
  lab_.put(events);
  const auto records = lab_.search().get({.id = "104"}, {}, 1);
  ASSERT_TRUE(records && records->size() == 1);
  ASSERT_TRUE(records->front().job.family);
  const std::uint64_t family = *records->front().job.family;
  const auto all = lab_.search().family(family, {}, std::nullopt, 100);
  ASSERT_TRUE(all) << all.error().message();
  ASSERT_EQ(all->size(), 9U);
  EXPECT_EQ(all->front().id, "108");
  const auto rest = lab_.search().family(family, {}, (*all)[3].time, 2);
  ASSERT_EQ(rest->size(), 2U);
  EXPECT_EQ(rest->front().id, (*all)[4].id);
  EXPECT_TRUE(lab_.search().family(family + 1000, {}, std::nullopt, 9)->empty());
}

TEST_F(CatalogSearchTest, PagesOfAFamilyHaveEachJobOnceAlsoIfManyCameAtOnce) {
  std::vector<Event> events;
  for (int i = 0; i < 30; ++i) {
    Event event = test::make_event_value(std::to_string(100 + i));
    event.time.nanoseconds += i / 7 * kSecond;
    events.push_back(event);
  }
  lab_.put(events);
  const auto records = lab_.search().get({.id = "104"}, {}, 1);
  ASSERT_TRUE(records && records->size() == 1 && records->front().job.family);
  std::vector<std::string> ids;
  std::optional<Timestamp> before;
  for (int page = 0; page < 30; ++page) {
    const auto jobs = lab_.search().family(*records->front().job.family, {}, before, 4);
    ASSERT_TRUE(jobs) << jobs.error().message();
    if (jobs->empty()) break;
    EXPECT_GE(jobs->size(), 4U);
    for (const JobRow& job : *jobs) ids.push_back(job.id);
    before = jobs->back().time;
  }
  std::vector<std::string> expected;
  for (int i = 30; i-- > 0;) expected.push_back(std::to_string(100 + i));
  EXPECT_EQ(ids, expected);
}

// Three segments, of which the second is not a database any more.
class DamagedSegmentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 1; i <= 25; ++i) {
      Event event = test::make_event_value(std::to_string(i));
      event.time.nanoseconds += i * kSecond;
      lab_.put({event});
    }
    ASSERT_EQ(lab_.problem(), "");
    ASSERT_EQ(lab_.segments().size(), 3U);
    const std::string file = catalog::segment_file(lab_.root(), 2);
    for (const char* const suffix : {"", "-wal", "-shm"}) std::filesystem::remove(file + suffix);
    std::ofstream(file) << std::string(8192, 'x');
  }

  SearchLab lab_{10};
};

TEST_F(DamagedSegmentTest, GetFindsJobsOfTheOthersAndSaysWhatIsMissing) {
  for (const char* const id : {"3", "23"}) {
    const auto records = lab_.search().get({.id = id}, {}, 5);
    ASSERT_TRUE(records) << records.error().message();
    ASSERT_EQ(records->size(), 1U);
    EXPECT_EQ(records->front().job.id, id);
    EXPECT_NE(records->front().event, nullptr);
    ASSERT_EQ(records->front().problems.size(), 1U);
    EXPECT_NE(records->front().problems[0].find("segments/000002.db"), std::string::npos);
  }
  // Nobody can know whether there is such a job.
  const auto lost = lab_.search().get({.id = "15"}, {}, 5);
  ASSERT_FALSE(lost);
  EXPECT_NE(lost.error().message().find("segments/000002.db"), std::string::npos);
}

TEST_F(DamagedSegmentTest, AFamilyHasTheJobsOfTheOthers) {
  const auto records = lab_.search().get({.id = "23"}, {}, 1);
  ASSERT_TRUE(records && records->size() == 1 && records->front().job.family);
  const auto jobs = lab_.search().family(*records->front().job.family, {}, std::nullopt, 100);
  ASSERT_TRUE(jobs) << jobs.error().message();
  EXPECT_EQ(jobs->size(), 15U);
}

TEST(CatalogSearchRootTest, AMissingCatalogIsAnErrorAndNoCrash) {
  const auto search = catalog::make_search("/nonexistent/catalog", system_clock());
  EXPECT_FALSE(search->search(everything(Query{})));
  EXPECT_FALSE(search->get({.id = "1"}, {}, 1));
  EXPECT_FALSE(search->family(1, {}, std::nullopt, 1));
}

}  // namespace
}  // namespace scriptorium
