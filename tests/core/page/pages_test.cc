#include "core/page/pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <kainjow/mustache.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "core/page/home_page.h"
#include "core/page/templates.h"
#include "core/query/answer_json.h"
#include "core/query/job_fields.h"
#include "core/query/parse.h"
#include "tests/support/event_factory.h"
#include "tests/support/zone.h"

namespace scriptorium::page {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kHostile = "</h1><script>alert(1)</script>";

// Records that a test puts there; each call sees those that its visibility allows.
class ListStore final : public Searchable {
 public:
  Speed speed() const noexcept override { return Speed::kIndexed; }
  Result<Answer> search(const Request& request) override {
    if (problem) return *problem;
    Answer answer;
    if (!request.facets.empty()) {
      asked_facets = request;
      answer.facets = facets;
      answer.finished = can_count;
      return answer;
    }
    asked = request;
    answer.next = request.after.empty() ? next : "";
    for (const Record& record : records) {
      if (is_visible(record.job, request.visibility)) answer.hits.push_back({record.job, lines});
    }
    return answer;
  }
  Result<std::vector<Record>> get(const Selector& selector, const Visibility& visibility,
                                  std::size_t) override {
    if (problem) return *problem;
    std::vector<Record> found;
    for (const Record& record : records) {
      if (record.job.id == selector.id && record.job.cluster == selector.cluster &&
          (!selector.time || *selector.time == record.job.time) &&
          is_visible(record.job, visibility))
        found.push_back(record);
    }
    return found;
  }
  Result<std::vector<JobRow>> family(std::uint64_t, const Visibility& visibility,
                                     std::optional<Timestamp>, std::size_t) override {
    std::vector<JobRow> rows;
    for (const Record& record : records) {
      if (is_visible(record.job, visibility)) rows.push_back(record.job);
    }
    return rows;
  }

  std::vector<Record> records;
  std::optional<Error> problem;
  std::vector<Line> lines;  // of each hit
  std::vector<Facet> facets;
  bool can_count = true;
  std::string next;
  Request asked;
  Request asked_facets;
};

Searchable::Record record_of(const std::string& user, const std::string& id,
                             const std::string& script = test::kScript) {
  Event event = test::make_event_value(id, script);
  event.user.name = user;
  Searchable::Record record;
  record.job.cluster = "lab";
  record.job.id = id;
  record.job.time = event.time;
  record.job.event_id = "event of " + id;
  record.job.user = user;
  record.job.verified = true;
  record.event = std::make_shared<const Event>(std::move(event));
  return record;
}

// Without the one script that every page has.
std::string without_own_script(const std::string& body) {
  static const std::regex kOwn(R"re(<script src="[./]*static/[0-9a-f]+/app.js" defer></script>)re");
  std::smatch found;
  EXPECT_TRUE(std::regex_search(body, found, kOwn));
  return std::regex_replace(body, kOwn, "");
}

class Pages : public ::testing::Test {
 protected:
  Response get(const std::string& target, const std::string& login = "alice") {
    const std::function<Result<serve::Caller>(const std::string&)> find_caller =
        [](const std::string& name) -> Result<serve::Caller> {
      if (name == "nobody") return Error{ErrorKind::kPermanent, "nobody has this login"};
      if (name == "slow") return Error{ErrorKind::kTransient, "the directory does not answer"};
      serve::Caller caller{.uid = 1001, .login = name};
      caller.visibility.all = name == "support";
      if (name != "support") caller.visibility.users = {{.name = name}};
      return caller;
    };
    const std::function<Result<void>(const Logger::Fields&)> record =
        [this](const Logger::Fields& fields) -> Result<void> {
      recorded_.push_back(fields);
      if (!can_record_) return Error{ErrorKind::kTransient, "no space left on device"};
      return {};
    };
    return answer({.login = login, .address = "192.0.2.7", .target = target},
                  {.stores = stores_,
                   .find_caller = find_caller,
                   .record = record,
                   .stop = {},
                   .deadline = SteadyTime::max()});
  }
  std::string field(const std::string& name) {
    for (const auto& field : recorded_.back()) {
      if (field.key == name) return field.value;
    }
    return "absent";
  }

  ListStore store_;
  std::vector<query::Store> stores_{{"catalog", &store_}};
  std::vector<Logger::Fields> recorded_;
  bool can_record_ = true;
};

TEST_F(Pages, TheFirstPageHasTheReadersOwnNewestJobs) {
  store_.records = {record_of("alice", "1"), record_of("bob", "2")};
  const Response page = get("/");
  EXPECT_EQ(page.status, 200U);
  EXPECT_THAT(page.body, AllOf(HasSubstr("href=\"job/lab/1?at="), Not(HasSubstr("job/lab/2"))));
  EXPECT_EQ(field("user"), "alice");
  EXPECT_EQ(field("address"), "192.0.2.7");
  EXPECT_EQ(field("asked"), "/");
  EXPECT_EQ(field("hits"), "1");
  EXPECT_EQ(field("events"), "event of 1");
}

TEST_F(Pages, WhoHasNoJobsGetsTheNewestThatThisPersonMaySee) {
  store_.records = {record_of("alice", "1"), record_of("support", "2")};
  EXPECT_THAT(get("/", "support").body, AllOf(HasSubstr("job/lab/2"), Not(HasSubstr("job/lab/1"))));
  store_.records.pop_back();
  const Response page = get("/", "support");
  EXPECT_THAT(page.body, AllOf(HasSubstr("job/lab/1"), HasSubstr("No job of yours is stored")));
  EXPECT_EQ(field("sees"), "all");
  EXPECT_EQ(field("events"), "event of 1");
  EXPECT_THAT(get("/", "bob").body, Not(HasSubstr("job/lab/1")));
}

TEST_F(Pages, TheFirstPageSaysWhatFailedAndWhy) {
  for (const char* id : {"5", "4", "3", "2", "1"}) {
    Searchable::Record record = record_of("alice", id);
    record.job.state = *id == '1' ? "COMPLETED" : "FAILED";
    record.job.exit_code = *id == '1' ? 0 : 2;
    record.job.family = *id == '3' ? 8 : 7;
    Event use = test::make_event_value(id);
    use.kind = "usage.job";
    use.extra_json = R"({"usage": {"findings": [{"severity": "critical", "text": "why )" +
                     std::string(id) + R"(<b>"}], "suggest": {"directives": ["#SBATCH --mem=)" +
                     id + R"(G"]}}})";
    record.later.push_back(std::make_shared<const Event>(std::move(use)));
    store_.records.push_back(std::move(record));
  }
  store_.records.push_back(record_of("bob", "6"));
  const std::string page = get("/").body;
  const std::string failed =
      page.substr(page.find("What failed"), page.find("Your newest") - page.find("What failed"));
  EXPECT_THAT(
      failed,
      AllOf(HasSubstr("href=\"job/lab/5?at="), HasSubstr("2 more like it failed"),
            HasSubstr("<li class=\"critical\">why 5&lt;b&gt;</li>"), HasSubstr("#SBATCH --mem=5G"),
            HasSubstr("job/lab/3?at="), HasSubstr("#SBATCH --mem=3G"), Not(HasSubstr("why 4")),
            Not(HasSubstr("job/lab/1?")),
            HasSubstr("href=\".?q=user%3Aalice%20verified%3Atrue%20state%3A%2A%20")));
  EXPECT_THAT(page.substr(page.find("Your newest")), HasSubstr("job/lab/1?at="));
  EXPECT_EQ(field("events"),
            "event of 5,event of 4,event of 3,event of 2,event of 1,event of 5,"
            "event of 3");
  EXPECT_FALSE(query::parse(kFailedLately, Timestamp{}).error);
  for (Searchable::Record& record : store_.records) record.job.state = "COMPLETED";
  for (Searchable::Record& record : store_.records) record.job.exit_code = 0;
  EXPECT_THAT(get("/").body, Not(HasSubstr("What failed")));
}

TEST_F(Pages, AListHasBarsOfWhatIsKnown) {
  store_.records = {record_of("alice", "1")};
  EXPECT_THAT(get("/").body, AllOf(Not(HasSubstr("<meter")), Not(HasSubstr(">GPUs<"))));
  JobRow& job = store_.records[0].job;
  job.elapsed_seconds = 1800;
  job.time_limit_seconds = 7200;
  job.cpus = 4;
  job.cpu_ratio = 0.5;
  job.gpus = 2;
  job.gpu_ratio = 0.12;
  EXPECT_THAT(
      get("/").body,
      AllOf(HasSubstr("30 min 0 s of 2 h 0 min"), HasSubstr("value=\"25\" aria-label=\"Time\""),
            HasSubstr("value=\"50\" aria-label=\"CPU\""), HasSubstr("12 % of 2"),
            Not(HasSubstr("aria-label=\"Memory\""))));
  job.runs = 3;  // an array: its row has the figures of one task
  EXPECT_THAT(get("/").body, Not(HasSubstr("<meter")));
}

TEST_F(Pages, ASearchIsParsedAndContinues) {
  store_.records = {record_of("alice", "1")};
  store_.next = "50 \"jobs\"";
  get("/?q=user%3Aalice+name%3Amd&after=x");
  EXPECT_EQ(store_.asked.query.kind, Query::Kind::kAnd);
  EXPECT_EQ(store_.asked.after, "x");
  const Response page = get("/?q=user%3Aalice+name%3Amd");
  EXPECT_THAT(page.body,
              AllOf(HasSubstr("value=\"user:alice name:md\""),
                    HasSubstr("href=\".?q=user%3Aalice%20name%3Amd&amp;after=50%20%22jobs%22\"")));
}

TEST_F(Pages, AHitHasItsLines) {
  store_.records = {record_of("alice", "1")};
  store_.lines = {
      {.number = 17, .text = "<i> srun", .marks = {{4, 8}}},
      {.part = JobPart::kEnvironment, .number = 2, .text = "A=srun", .marks = {{2, 6}}}};
  EXPECT_THAT(get("/?q=srun").body,
              AllOf(HasSubstr("17: &lt;i&gt; <b>srun</b>\n"), HasSubstr("env 2: A=<b>srun</b>\n")));
}

TEST_F(Pages, FacetsNarrowTheSearch) {
  store_.records = {record_of("alice", "1")};
  store_.facets = {{.field = QueryField::kState, .values = {{"FAILED", 3}, {"<odd> one", 2}}},
                   {.field = QueryField::kModule,
                    .values = {{"a", 1}, {"b", 1}},
                    .exact = false,
                    .over = 10'000},
                   {.field = QueryField::kUser, .values = {{"alice", 5}}}};
  const std::string page = get("/?q=gmx+OR+vasp&narrow=1").body;
  EXPECT_THAT(page,
              AllOf(HasSubstr("href=\".?q=%28gmx%20OR%20vasp%29%20state%3AFAILED\">FAILED</a> 3"),
                    HasSubstr("&lt;odd&gt; one</a> 2"), HasSubstr("of the newest 10000"),
                    Not(HasSubstr("<h3>user</h3>"))));
  EXPECT_EQ(page.find("of the newest"), page.rfind("of the newest"));
  EXPECT_EQ(store_.asked_facets.limit, 0U);
  EXPECT_FALSE(store_.asked_facets.visibility.all);
  const auto narrowed = query::parse("(gmx OR vasp) state:FAILED", Timestamp{});
  EXPECT_FALSE(narrowed.error);
  EXPECT_THAT(get("/?q=&narrow=1").body, HasSubstr("href=\".?q=state%3AFAILED\""));
  EXPECT_THAT(get("/?q=").body,
              AllOf(HasSubstr("href=\".?q=&amp;narrow=1\""), Not(HasSubstr("Narrow it down"))));
  store_.can_count = false;
  EXPECT_THAT(get("/?q=&narrow=1").body,
              AllOf(HasSubstr("takes too long"), Not(HasSubstr("Narrow it down"))));
}

TEST_F(Pages, ASearchAsCsvHasAllItsPages) {
  store_.records = {record_of("alice", "1"), record_of("bob", "2")};
  store_.records[0].job.name = "=cmd()";
  store_.next = "more";
  const Response csv = get("/jobs.csv?q=user%3Aalice");
  EXPECT_EQ(csv.type, "text/csv; charset=utf-8");
  EXPECT_EQ(std::count(csv.body.begin(), csv.body.end(), '\n'), 3) << csv.body;
  EXPECT_THAT(csv.body, AllOf(HasSubstr("lab"), Not(HasSubstr("bob")), Not(HasSubstr(",=cmd"))));
  EXPECT_EQ(field("hits"), "2");
  EXPECT_THAT(csv.headers,
              Contains(std::pair("Content-Disposition", "attachment; filename=\"jobs.csv\"")));
  EXPECT_EQ(get("/jobs.csv?q=usr%3Aalice").status, 400U);
  can_record_ = false;
  EXPECT_EQ(get("/jobs.csv").status, 503U);
}

TEST_F(Pages, ProgramsGetASearchAsJson) {
  store_.records = {record_of("alice", "1"), record_of("bob", "2")};
  store_.next = "more";
  const Response page = get("/api/v1/jobs?q=user%3Aalice");
  EXPECT_EQ(page.type, "application/json");
  const auto json = nlohmann::json::parse(page.body);
  EXPECT_EQ(json["query"], "user:alice");
  ASSERT_EQ(json["hits"].size(), 1U);
  EXPECT_EQ(json["hits"][0]["job"]["id"], "1");
  EXPECT_EQ(json["next"], "more");
  EXPECT_EQ(json["complete"], true);
  EXPECT_EQ(store_.asked.limit, 50U);
  EXPECT_EQ(field("events"), "event of 1");
  get("/api/v1/jobs?after=more&limit=7");
  EXPECT_EQ(store_.asked.after, "more");
  EXPECT_EQ(store_.asked.limit, 7U);
}

TEST_F(Pages, ProgramsGetAJobWithItsEvents) {
  Searchable::Record record = record_of("alice", "1", "echo \xff\n");
  Event use = test::make_event_value("1");
  use.kind = "usage.job";
  record.later = {std::make_shared<const Event>(std::move(use))};
  store_.records = {record, record_of("bob", "2")};
  const auto json = nlohmann::json::parse(get("/api/v1/job/lab/1").body);
  ASSERT_EQ(json["jobs"].size(), 1U);
  EXPECT_EQ(json["jobs"][0]["job"]["user"], "alice");
  EXPECT_EQ(json["jobs"][0]["event"]["script"]["text"], "ZWNobyD/Cg==");
  JobRow& job = store_.records[0].job;
  job.time.nanoseconds += 5;
  for (const TimePrecision precision :
       {TimePrecision::kSeconds, TimePrecision::kMilliseconds, TimePrecision::kNanoseconds}) {
    const std::string at = "/api/v1/job/lab/1?at=" + format_rfc3339(job.time, precision);
    EXPECT_EQ(nlohmann::json::parse(get(at).body)["jobs"].size(), 1U) << at;
  }
  const Timestamp later{job.time.nanoseconds + kSecond};
  EXPECT_EQ(get("/api/v1/job/lab/1?at=" + format_rfc3339(later, TimePrecision::kSeconds)).status,
            404U);
  EXPECT_EQ(json["jobs"][0]["later"][0]["kind"], "usage.job");
  EXPECT_EQ(get("/api/v1/job/lab/1/script").body, "echo \xff\n");
  EXPECT_EQ(field("events"), "event of 1");
}

TEST_F(Pages, JsonIsWithoutTextsThatAreTooLarge) {
  const std::string large(query::kMostJsonTextBytes + 1, '\x01');
  store_.records = {record_of("alice", "1", large)};
  const Response page = get("/api/v1/job/lab/1");
  EXPECT_LT(page.body.size(), 10'000U);
  const auto job = nlohmann::json::parse(page.body)["jobs"][0];
  EXPECT_EQ(job["event"]["script"].count("text"), 0U);
  EXPECT_THAT(job["problems"][0].get<std::string>(), HasSubstr("too large"));
  EXPECT_EQ(get("/api/v1/job/lab/1/script").body, large);
}

TEST_F(Pages, ProgramsGetASentenceAsJsonWhereThereIsNoAnswer) {
  store_.records = {record_of("bob", "2")};
  const auto error_of = [this](const std::string& target, unsigned status) -> std::string {
    const Response page = get(target);
    EXPECT_EQ(page.status, status) << target;
    EXPECT_EQ(page.type, "application/json") << target;
    return nlohmann::json::parse(page.body).at("error");
  };
  EXPECT_THAT(error_of("/api/v1/jobs?q=usr%3Aalice", 400), HasSubstr("did you mean"));
  for (const char* limit : {"0", "1001", "x", "-1", ""})
    EXPECT_THAT(error_of(std::string("/api/v1/jobs?limit=") + limit, 400), HasSubstr("1 to 1000"));
  EXPECT_EQ(error_of("/api/v1/job/lab/2", 404),
            error_of("/api/v1/job/lab/2?at=2026-01-01T00:00:00Z", 404));
  for (const char* target : {"/api/", "/api/v1", "/api/v2/jobs", "/api/v1/job/lab", "/api/v1/x",
                             "/api/v1/job/lab/2/x", "/api/%00"})
    EXPECT_EQ(error_of(target, 404), "There is no such page.");
  can_record_ = false;
  EXPECT_THAT(error_of("/api/v1/jobs", 503), HasSubstr("no space left"));
  can_record_ = true;
  store_.problem = Error{ErrorKind::kTransient, "the catalog is of a newer version"};
  EXPECT_THAT(error_of("/api/v1/job/lab/2", 503), HasSubstr("newer version"));
  EXPECT_EQ(nlohmann::json::parse(get("/api/v1/jobs", "nobody").body).size(), 1U);
}

// What tests/system/test_page_api.py holds answers against.
TEST_F(Pages, TheDescriptionForProgramsNamesWhatAJobHas) {
  const auto description = nlohmann::json::parse(get("/api/v1/openapi.json").body);
  std::vector<std::string> names;
  for (const auto& [name, schema] :
       description["components"]["schemas"]["Job"]["properties"].items())
    names.push_back(name);
  EXPECT_THAT(query::job_columns(), ::testing::UnorderedElementsAreArray(names));
}

TEST_F(Pages, AFamilyHasTheRunsThatTheReaderMaySee) {
  store_.records = {record_of("alice", "1"), record_of("alice", "2"), record_of("bob", "3")};
  for (Searchable::Record& record : store_.records) record.job.family = 7;
  EXPECT_THAT(get("/job/lab/1").body,
              AllOf(HasSubstr("Its last runs"), HasSubstr("1 (this one)"),
                    HasSubstr("href=\"../../job/lab/2?at="), Not(HasSubstr("job/lab/3"))));
  store_.records.erase(store_.records.begin() + 1);
  EXPECT_THAT(get("/job/lab/1").body, Not(HasSubstr("Its last runs")));
}

TEST_F(Pages, WhatChangedSinceItLastWorked) {
  store_.records = {record_of("alice", "3", "#!/bin/bash\nexit <3>\n"),
                    record_of("alice", "2", "other"), record_of("alice", "1")};
  for (std::size_t i = 0; i < store_.records.size(); ++i) {
    JobRow& job = store_.records[i].job;
    job.family = 7;
    job.state = job.id == "1" ? "COMPLETED" : "FAILED";
    job.time.nanoseconds -= static_cast<std::int64_t>(i);
  }
  store_.records[0].job.modules = {"GROMACS/2024"};
  const std::string page = get("/job/lab/3/compare").body;
  EXPECT_THAT(page, AllOf(HasSubstr("From job 1 to job 3"),
                          HasSubstr("<span class=removed>-srun hostname</span>"),
                          HasSubstr("<span class=added>+exit &lt;3&gt;</span>"),
                          HasSubstr("<span class=added>+GROMACS/2024</span>"),
                          HasSubstr("<td>COMPLETED</td><td>FAILED</td>")));
  EXPECT_EQ(field("events"), "event of 1,event of 3");
  EXPECT_THAT(get("/job/lab/3").body, AllOf(HasSubstr("href=\"../../job/lab/3/compare?at="),
                                            HasSubstr("What changed since it last worked")));

  store_.records.pop_back();
  EXPECT_EQ(get("/job/lab/3/compare").status, 404U);
  EXPECT_THAT(get("/job/lab/3").body, Not(HasSubstr("What changed since")));
}

TEST_F(Pages, ChosenJobsAreCompared) {
  store_.records = {record_of("alice", "3", "#!/bin/bash\nexit <3>\n"), record_of("alice", "2"),
                    record_of("alice", "1"), record_of("bob", "4")};
  for (std::size_t i = 0; i < store_.records.size(); ++i) {
    JobRow& job = store_.records[i].job;
    job.time.nanoseconds -= static_cast<std::int64_t>(i) * kSecond;
    job.partition = job.id == "1" ? "<b>short" : "long";
    job.account = "chem";
    job.state = job.id == "3" ? "FAILED" : "COMPLETED";
  }
  const auto key = [&](std::size_t i) {
    const JobRow& job = store_.records[i].job;
    return "job=" +
           percent_encoded("job/lab/" + job.id + "?at=" +
                           percent_encoded(format_rfc3339(job.time, TimePrecision::kNanoseconds)));
  };
  const std::string pair = get("/compare?" + key(0) + "&" + key(1)).body;
  EXPECT_THAT(
      pair, AllOf(HasSubstr("From job 2 to job 3"), HasSubstr("+exit &lt;3&gt;</span>"),
                  HasSubstr("<td>COMPLETED</td><td>FAILED</td>"), Not(HasSubstr("<td>chem</td>"))));
  EXPECT_EQ(field("events"), "event of 2,event of 3");

  const std::string three = get("/compare?" + key(0) + "&" + key(1) + "&" + key(2)).body;
  EXPECT_THAT(three, AllOf(HasSubstr("3 jobs beside each other"),
                           HasSubstr("<td>COMPLETED</td><td>COMPLETED</td><td>FAILED</td>"),
                           HasSubstr("<td>&lt;b&gt;short</td><td>long</td><td>long</td>"),
                           Not(HasSubstr("<td>chem</td>")), HasSubstr(">From 1 to 2</a>"),
                           HasSubstr(">From 2 to 3</a>"), Not(HasSubstr("exit &lt;3"))));
  std::smatch link;
  ASSERT_TRUE(std::regex_search(three, link, std::regex("href=\"(compare[^\"]*)\">From 2")));
  EXPECT_EQ(get("/" + std::regex_replace(link[1].str(), std::regex("&amp;"), "&")).body, pair);

  EXPECT_EQ(get("/compare?" + key(0) + "&" + key(3)).status, 404U);  // bob's
  EXPECT_EQ(get("/compare?" + key(0) + "&" + key(3)).body.find("event of"), std::string::npos);
  for (const std::string& wrong : {std::string(), key(0), key(0) + "&" + key(0)})
    EXPECT_EQ(get("/compare?" + wrong).status, 400U) << wrong;
  EXPECT_EQ(get("/compare?job=x&job=y").status, 404U);
  std::string many;
  for (int i = 0; i < 9; ++i) many += "&" + key(0);
  EXPECT_EQ(get("/compare?" + many).status, 400U);
}

TEST_F(Pages, AWrongQuerySaysWhereAndAsksNothing) {
  const Response page = get("/?q=usr%3Aalice");
  EXPECT_EQ(page.status, 400U);
  EXPECT_THAT(page.body, AllOf(HasSubstr("did you mean &quot;user&quot;"), HasSubstr("^")));
  EXPECT_THAT(recorded_, IsEmpty());
  EXPECT_EQ(get("/?q=" + std::string(5000, 'x')).status, 400U);
}

TEST_F(Pages, AJobHasItsScriptAndEnvironment) {
  store_.records = {record_of("alice", "1")};
  store_.records[0].job.cpus = 4;
  store_.records[0].job.cpu_ratio = 0.25;
  store_.records[0].job.state = "FAILED";
  store_.records[0].job.exit_code = 2;
  const Response page = get("/job/lab/1");
  EXPECT_EQ(page.status, 200U);
  EXPECT_THAT(
      page.body,
      AllOf(HasSubstr("</a>srun hostname</span>"), HasSubstr("</a>HOME=/home/alice</span>"),
            HasSubstr("Others (2)"), HasSubstr("FAILED (2)"), HasSubstr("25&nbsp;%"),
            HasSubstr("href=\"../../job/lab/1/script?at="), HasSubstr("href=\"../../static/")));
  EXPECT_THAT(page.body, Not(HasSubstr("Findings")));
}

TEST_F(Pages, FindingsAreThoseOfTheNewestRun) {
  Searchable::Record record = record_of("alice", "1");
  for (const char* text : {"old sentence", "<b>new</b> sentence"}) {
    Event use = test::make_event_value("1");
    use.kind = "usage.job";
    use.extra_json = R"({"usage": {"findings": [{"severity": "warning", "text": ")" +
                     std::string(text) + R"("}, {"severity": "\"odd"}, 7]}})";
    record.later.push_back(std::make_shared<const Event>(std::move(use)));
  }
  store_.records = {record};
  EXPECT_THAT(get("/job/lab/1").body,
              AllOf(HasSubstr("<li class=\"warning\">&lt;b&gt;new&lt;/b&gt; sentence</li>"),
                    HasSubstr("<li class=\"info\">"), Not(HasSubstr("old sentence"))));
}

TEST_F(Pages, ARunHasItsProgramsAndSteps) {
  Searchable::Record record = record_of("alice", "1");
  Event use = test::make_event_value("1");
  use.kind = "usage.job";
  use.extra_json = R"({"usage": {"cpu": {"time_seconds": 100}, "programs": [
      {"name": "<b>gmx", "cpu_seconds": 75, "processes": 2, "threads": 4}],
      "steps": [{"name": "0", "elapsed_seconds": 30, "started_at": "2026-11-21T01:30:00Z"}]}})";
  record.later.push_back(std::make_shared<const Event>(std::move(use)));
  store_.records = {record};
  EXPECT_THAT(
      get("/job/lab/1").body,
      AllOf(HasSubstr("&lt;b&gt;gmx</td><td class=\"n\">1 min 15 s</td>"), HasSubstr("75 %</td>"),
            HasSubstr("STARTED (" + local_zone(test::kJobTime) + ")"), HasSubstr("30.0 s</td>")));
}

TEST_F(Pages, WhyItFailedComesFirst) {
  Searchable::Record record = record_of("alice", "1");
  record.job.name = "md";
  record.job.state = "OUT_OF_MEMORY";
  record.job.exit_signal = 125;
  record.job.memory_limit_bytes = record.job.memory_peak_bytes = std::uint64_t{1} << 30;
  record.job.cpus = 4;
  record.job.cpu_ratio = 0.1;
  Event use = test::make_event_value("1");
  use.kind = "usage.job";
  use.extra_json = R"({"usage": {"findings": [{"severity": "critical", "text": "It needed more."}],
                                 "suggest": {"directives": ["#SBATCH --mem=2G", 7]}}})";
  record.later.push_back(std::make_shared<const Event>(std::move(use)));
  store_.records = {record};
  const std::string page = get("/job/lab/1").body;
  EXPECT_THAT(page, AllOf(HasSubstr("<title>1 md - OUT_OF_MEMORY - Scriptorium</title>"),
                          Not(HasSubstr("signal 125")), HasSubstr("#SBATCH --mem=2G\n</pre>"),
                          HasSubstr("optimum=\"0\" value=\"100\" aria-label=\"Memory\""),
                          HasSubstr("optimum=\"100\" value=\"10\" aria-label=\"CPUs\"")));
  std::size_t at = 0;
  for (const char* part : {"OUT_OF_MEMORY</strong>", "It needed more.", "Next time",
                           "Asked for and used", "id=\"script\"", ">Facts<"}) {
    const std::size_t here = page.find(part);
    EXPECT_LT(at, here) << part;
    at = here;
  }
}

// One step of a program, to be added to a record's later events.
std::shared_ptr<const Event> checkpoint_step(const std::string& time, const std::string& host,
                                             const std::string& checkpoint,
                                             bool is_verified = true) {
  Event event = test::make_event_value("1");
  event.id = time + checkpoint;
  event.kind = "job.checkpoint";
  event.time = parse_rfc3339("2026-11-28T" + time + "Z").value();
  event.host = host;
  event.user.verified = is_verified;
  event.extra_json = R"({"checkpoint":{"action":)" + checkpoint + "}}";
  return std::make_shared<const Event>(std::move(event));
}

TEST_F(Pages, AJobThatWasSavedAndResumedHasATableOfItsLives) {
  const test::Zone zone("UTC");
  Searchable::Record record = record_of("alice", "1");
  store_.records = {record};
  EXPECT_THAT(get("/job/lab/1").body, Not(HasSubstr("Saved and resumed")));
  record.later = {
      checkpoint_step("10:00:00", "n1", R"("made")"),
      checkpoint_step("10:30:00", "n1", R"("made","image_bytes":7549747,"frozen_seconds":0.098)"),
      checkpoint_step("10:40:00", "n2", R"("restart_failed","reason":"pid_taken")"),
      checkpoint_step("10:41:00", "n2", R"("restart_failed","reason":"pid_taken")"),
      checkpoint_step("11:30:00", "n2", R"("restarted")"),
      checkpoint_step("12:00:00", "n2", R"("ended","exit_code":7)")};
  store_.records = {record};
  const std::string page = get("/job/lab/1").body;
  EXPECT_THAT(
      page,
      AllOf(HasSubstr("<h2>Saved and resumed</h2>"),
            HasSubstr("<p>2 lives, 1 h 0 min lost of 1 h 30 min</p>"), HasSubstr("Resumed (UTC)"),
            HasSubstr("<th scope=\"row\" class=\"n\">1</th><td class=\"name\">n1</td>"
                      "<td class=\"n\"></td><td></td>"
                      "<td>2026-11-28 10:30:00 (the last of 2)</td><td class=\"n\">7.2 MiB</td>"
                      "<td class=\"n\">98 ms</td>"
                      "<td class=\"name\">not resumed on n2: pid_taken (2 times)</td></tr>"),
            HasSubstr("<th scope=\"row\" class=\"n\">2</th><td class=\"name\">n2</td>"
                      "<td class=\"n\">1 h 0 min</td><td>2026-11-28 11:30:00</td><td></td>"
                      "<td class=\"n\"></td><td class=\"n\"></td>"
                      "<td class=\"name\">ended 2026-11-28 12:00:00: exit code 7</td></tr>"),
            Not(HasSubstr("unverified")), Not(HasSubstr("Program "))));
  const auto json = nlohmann::json::parse(get("/api/v1/job/lab/1").body);
  const auto& chain = json["jobs"][0]["checkpoint"];
  EXPECT_EQ(chain["programs"][0]["lives"], 2);
  EXPECT_EQ(chain["programs"][0]["lost_seconds"], 3600);
  EXPECT_EQ(chain["findings"], nlohmann::json::array());
}

TEST_F(Pages, FindingsOfCheckpointsAreAmongThoseOfTheJob) {
  Searchable::Record record = record_of("alice", "1");
  record.job.state = "FAILED";
  record.later = {checkpoint_step("10:00:00", "n1", R"("made")"),
                  checkpoint_step("10:40:00", "n2", R"("restart_failed","reason":"pid_taken")")};
  store_.records = {record};
  const auto finding = HasSubstr("<li class=\"warning\">The image of 2026-11-28 ");
  EXPECT_THAT(get("/job/lab/1").body, AllOf(HasSubstr("<h2>Findings</h2>"), finding));
  EXPECT_THAT(get("/").body, finding);
  EXPECT_THAT(get("/api/v1/job/lab/1").body,
              AllOf(HasSubstr("\"ckpt_never_restored\""), HasSubstr("\"severity\": \"warning\"")));
  store_.records[0].later.push_back(checkpoint_step("10:41:00", "n2", R"("restarted")"));
  EXPECT_THAT(get("/job/lab/1").body, Not(HasSubstr("<h2>Findings</h2>")));
}

TEST_F(Pages, HostileAndUnverifiedStepsOfAProgramAreShownAsSuch) {
  Searchable::Record record = record_of("alice", "1");
  record.later = {
      checkpoint_step("10:00:00", kHostile,
                      R"("failed","reason":"<script>alert(2)</script>","root_pid":10)", false),
      checkpoint_step("10:30:00", "n1", R"("made","root_pid":20)")};
  Event another = *checkpoint_step("10:40:00", "n7", R"("made","root_pid":30)", false);
  another.user.name = "mallory";
  record.later.push_back(std::make_shared<const Event>(another));
  store_.records = {record};
  const std::string page = get("/job/lab/1").body;
  EXPECT_THAT(page, Not(AnyOf(HasSubstr("mallory"), HasSubstr("n7"))));
  EXPECT_THAT(page, AllOf(HasSubstr("<p>Program 10</p>"), HasSubstr("<p>Program 20</p>"),
                          HasSubstr("; unverified, written by alice</td>"),
                          HasSubstr("&lt;script&gt;alert(2)")));
  EXPECT_EQ(page.find("; unverified"), page.rfind("; unverified"));
  EXPECT_THAT(without_own_script(page), Not(HasSubstr("<script")));
}

TEST_F(Pages, OfThousandsOfLivesThePageHasTheLastOfAProgram) {
  Searchable::Record record = record_of("alice", "1");
  for (int minute = 0; minute < 59; ++minute) {
    for (int second = 10; second < 20; ++second) {
      const std::string time =
          "10:" + std::to_string(100 + minute).substr(1) + ":" + std::to_string(second);
      record.later.push_back(checkpoint_step(time, "n1", R"("restarted")"));
    }
  }
  store_.records = {record};
  const std::string page = get("/job/lab/1").body;
  EXPECT_THAT(page, AllOf(HasSubstr("390 lives are left out"), HasSubstr(">590</th>"),
                          HasSubstr(">391</th>"), Not(HasSubstr(">390</th>"))));
}

TEST_F(Pages, AnArrayOpensToItsTasks) {
  Searchable::Record record = record_of("alice", "1");
  record.job.runs = 2;
  record.job.failed_runs = 1;
  record.job.memory_peak_bytes = 1;
  record.job.state = "FAILED";
  for (const char* task : {"10", "9"}) {
    Event use = test::make_event_value("1_" + std::string(task));
    use.kind = "usage.job";
    use.job.array = JobArray{.job_id = "1", .task_id = task};
    use.extra_json = R"({"usage": {"elapsed_seconds": 90}, "job": {"state": ")" +
                     std::string(*task == '9' ? "FAILED" : "COMPLETED") + R"("}})";
    record.later.push_back(std::make_shared<const Event>(std::move(use)));
  }
  store_.records = {record};
  const std::string page = get("/job/lab/1").body;
  EXPECT_THAT(page, AllOf(HasSubstr("1 of 2 failed"), HasSubstr("<li>9: "),
                          Not(HasSubstr("<li>10: ")), HasSubstr("Tasks that ended (2)")));
  EXPECT_LT(page.find("<th scope=\"row\">9</th>"), page.find("<th scope=\"row\">10</th>")) << page;
}

// Of an array: it ran for an hour and needed 1 GiB of 4, but one of six hours and another of 3 GiB.
std::shared_ptr<const Event> task_event(int number, const char* state = "COMPLETED") {
  Event use = test::make_event_value("1" + std::to_string(number));
  use.kind = "usage.job";
  use.job.array = JobArray{.job_id = "1", .task_id = std::to_string(number)};
  nlohmann::json usage = {
      {"elapsed_seconds", number == 7 ? 21600 : 3600},
      {"started_at", "2026-11-21T08:00:00Z"},
      {"request", {{"nodes", 1}, {"time_limit_seconds", 86400}}},
      {"cpu", {{"allocated", 4}, {"efficiency_ratio", 0.5 + 0.01 * number}}},
      {"memory", {{"peak_node_bytes", std::int64_t{number == 3 ? 3 : 1} << 30}}},
      {"quality", {{"status", "ok"}}},
      {"findings", {{{"id", "mem_over"}, {"severity", "warning"}, {"text", "Ask for less."}}}},
      {"suggest", {{"memory_bytes", 1288490188}, {"directives", {"#SBATCH --mem=1229M"}}}}};
  use.extra_json =
      nlohmann::json{{"job", {{"state", state}, {"exit_code", "0:0"}}}, {"usage", usage}}.dump();
  return std::make_shared<const Event>(std::move(use));
}

TEST_F(Pages, AnArrayShowsTheSpreadOfItsTasks) {
  store_.records = {record_of("alice", "1")};
  store_.records[0].job.runs = 20;
  for (int i = 0; i < 20; ++i) store_.records[0].later.push_back(task_event(i));
  EXPECT_THAT(
      get("/job/lab/1").body,
      AllOf(
          HasSubstr("<h2>Its 20 tasks</h2>"),
          HasSubstr("<tr><th scope=\"row\">Time</th><td class=\"n\">1 h 0 min</td><td "
                    "class=\"n\">1 h 0 min</td><td class=\"n\">6 h 0 min</td>"),
          HasSubstr("<title>Memory: tasks in each tenth from the least to the most: 19, 0, 0, 0, "
                    "0, 0, 0, 0, 0, 1</title>"),
          HasSubstr("<li>1_7: ran 6 h 0 min (median 1 h 0 min)</li>"),
          HasSubstr("<li>1_3: needed 3.0 GiB of memory (median 1.0 GiB)</li>"),
          HasSubstr("<tr><th scope=\"row\" class=\"warning\">mem_over</th><td class=\"n\">20</td>"),
          HasSubstr("By the most that 19 of its 20 tasks needed"), HasSubstr("#SBATCH --mem="),
          HasSubstr("<li>1_3 (--mem=")));
}

TEST_F(Pages, OneTaskIsNoSpread) {
  store_.records = {record_of("alice", "1")};
  store_.records[0].job.runs = 1;
  store_.records[0].later = {task_event(7)};
  EXPECT_THAT(get("/job/lab/1").body,
              AllOf(HasSubstr("Tasks that ended (1)"), Not(HasSubstr("Its 1 tasks")),
                    Not(HasSubstr("unlike")), Not(HasSubstr("Next time"))));
}

TEST_F(Pages, WhatMayNotBeSeenIsWhatDoesNotExist) {
  store_.records = {record_of("bob", "2")};
  Response denied = get("/job/lab/2");
  store_.records.clear();
  const Response absent = get("/job/lab/2");
  EXPECT_EQ(denied.status, 404U);
  EXPECT_EQ(denied.body, absent.body);
  EXPECT_EQ(denied.headers, absent.headers);
  EXPECT_EQ(field("hits"), "0");
  EXPECT_EQ(get("/job/lab/2/script").status, 404U);
  EXPECT_EQ(get("/job/lab/2?at=yesterday").status, 404U);
}

TEST_F(Pages, AnIdThatWasUsedTwiceShowsTheNewestAndLinksTheOther) {
  store_.records = {record_of("alice", "1", "new\n"), record_of("alice", "1", "old\n")};
  store_.records[1].job.time = Timestamp{1'000'000'000 * kSecond};
  EXPECT_THAT(get("/job/lab/1").body,
              AllOf(HasSubstr("</a>new<"), Not(HasSubstr("</a>old<")),
                    HasSubstr("href=\"../../job/lab/1?at=2001-09-09T01%3A46%3A40Z\"")));
  EXPECT_THAT(get("/job/lab/1?at=2001-09-09T01%3A46%3A40Z").body, HasSubstr("</a>old<"));
}

TEST_F(Pages, TextsOfUsersCannotLeaveTheirPlace) {
  Searchable::Record record = record_of("alice", "1", std::string(kHostile) + "\n\u202e");
  JobRow& job = record.job;
  job.name = job.account = job.partition = job.qos = job.work_dir = job.group = job.interpreter =
      job.array_task_spec = kHostile;
  job.state = kHostile;
  job.directives = job.modules = job.nodes = job.software = {kHostile, "\"'"};
  record.problems = {kHostile};
  store_.records = {record};
  for (const char* target : {"/job/lab/1", "/", "/?q="}) {
    const std::string body = without_own_script(get(target).body);
    EXPECT_THAT(body, AllOf(Not(HasSubstr("<script")), Not(HasSubstr("</h1><")))) << target;
    EXPECT_THAT(body, HasSubstr("&lt;script")) << target;
  }
  for (const char* target : {"/?q=%22%3E%3Cscript%3E", "/job/lab/%3Cscript%3E"})
    EXPECT_THAT(without_own_script(get(target).body), Not(HasSubstr("<script"))) << target;
  EXPECT_THAT(get("/", "<script>").body, Not(HasSubstr("<script>")));
}

TEST_F(Pages, ADownloadHasTheBytesAndIsShownByNoBrowser) {
  const std::string bytes("\xff\0<script>", 10);
  store_.records = {record_of("alice", "1[]\"2", bytes)};
  const Response page = get("/job/lab/1%5B%5D%222/script");
  EXPECT_EQ(page.status, 200U);
  EXPECT_EQ(page.body, bytes);
  EXPECT_EQ(page.type, "application/octet-stream");
  EXPECT_THAT(page.headers,
              ElementsAre(std::pair("Content-Disposition", "attachment; filename=\"1___2.sh\""),
                          std::pair("Content-Security-Policy", "sandbox")));
}

TEST_F(Pages, WithoutARecordThereIsNoAnswer) {
  store_.records = {record_of("alice", "1")};
  can_record_ = false;
  for (const char* target : {"/", "/?q=", "/job/lab/1", "/job/lab/1/script"}) {
    const Response page = get(target);
    EXPECT_EQ(page.status, 503U);
    EXPECT_THAT(page.body, AllOf(HasSubstr("no space left"), Not(HasSubstr("event of"))));
  }
}

TEST_F(Pages, AStoreThatCannotAnswerIsNoEmptyAnswer) {
  store_.problem = Error{ErrorKind::kTransient, "the catalog is of a newer version"};
  for (const char* target : {"/", "/job/lab/1"}) {
    const Response page = get(target);
    EXPECT_EQ(page.status, 503U);
    EXPECT_THAT(page.body, HasSubstr("the catalog is of a newer version"));
  }
}

TEST_F(Pages, WhoIsNotKnownGetsNothing) {
  store_.records = {record_of("nobody", "1")};
  EXPECT_EQ(get("/", "nobody").status, 403U);
  EXPECT_EQ(get("/", "slow").status, 503U);
  EXPECT_THAT(recorded_, IsEmpty());
}

TEST_F(Pages, AssetsAreForGoodAndOthersAreNot) {
  const std::string base = "/static/" + assets_hash() + "/";
  const Response css = get(base + "app.css");
  EXPECT_EQ(css.status, 200U);
  EXPECT_EQ(css.type, "text/css; charset=utf-8");
  EXPECT_THAT(css.headers, ElementsAre(std::pair("Cache-Control", "max-age=31536000, immutable")));
  EXPECT_EQ(get(base + "icon.svg").type, "image/svg+xml");
  EXPECT_EQ(get(base + "app.js").type, "text/javascript; charset=utf-8");
  for (const std::string& other :
       {base + "head.mustache", base + "texts.txt", base + "x", std::string("/static/0/app.css"),
        std::string("/static/app.css"), std::string("/x"), std::string("/job"),
        std::string("/job/lab/1/environment"), std::string("/%00")})
    EXPECT_EQ(get(other).status, 404U) << other;
}

TEST(Templates, ClassesOfTheStyleSheetAreThoseOfThePages) {
  const std::string css(asset("app.css").bytes);
  EXPECT_EQ(css.find(".."), std::string::npos);
  std::string pages;
  for (const auto& [name, text] : all_templates()) pages += text;
  const std::regex used(R"re(class="([a-z_]+)")re");
  for (auto it = std::sregex_iterator(pages.begin(), pages.end(), used);
       it != std::sregex_iterator(); ++it) {
    const std::string name = (*it)[1];
    EXPECT_TRUE(std::regex_search(css, std::regex("\\." + name + R"([ ,.:{])"))) << name;
  }
}

TEST(Templates, CanBeParsedAndHaveOneRawPlace) {
  ASSERT_THAT(all_templates(), Not(IsEmpty()));
  for (const auto& [name, text] : all_templates()) {
    const std::string bytes(text);
    EXPECT_TRUE(kainjow::mustache::mustache(bytes).is_valid()) << name;
    EXPECT_EQ(bytes.find("{{&"), std::string::npos) << name;
    EXPECT_FALSE(std::regex_search(bytes, std::regex(R"(\{\{\{(?!html\}\}\}))"))) << name;
    EXPECT_FALSE(std::regex_search(bytes, std::regex(R"(=\{\{)"))) << name << ": quotes";
    EXPECT_FALSE(std::regex_search(bytes, std::regex(R"(\b(style|on[a-z]+)=)"))) << name;
  }
}

}  // namespace
}  // namespace scriptorium::page
