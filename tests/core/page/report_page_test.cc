#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "core/page/pages.h"
#include "core/query/parse.h"
#include "core/query/run_sums.h"

namespace scriptorium::page {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr const char* kHostileCell = "</td><script>alert(1)</script>";
constexpr const char* kSince = "2026-11-20T00:00:00Z";
constexpr const char* kUntil = "2026-11-27T00:00:00Z";
constexpr const char* kPeriod = "since=2026-11-20T00:00:00Z&until=2026-11-27T00:00:00Z";
constexpr std::uint64_t kHour = 3'600;

// Runs that a test puts there; each call sees those that its visibility allows.
class RunStore final : public Searchable {
 public:
  Speed speed() const noexcept override { return Speed::kIndexed; }
  Result<Answer> search(const Request& request) override {
    Answer answer;
    answer.count = Count{.jobs = gives_all || request.visibility.all ? unfinished : 0};
    return answer;
  }
  Result<std::vector<Record>> get(const Selector&, const Visibility&, std::size_t) override {
    return std::vector<Record>{};
  }
  Result<std::vector<JobRow>> family(std::uint64_t, const Visibility&, std::optional<Timestamp>,
                                     std::size_t) override {
    return std::vector<JobRow>{};
  }
  Result<std::vector<CoordinatorList>> coordinators() override {
    return std::vector<CoordinatorList>{{.cluster = "lab",
                                         .asked_at = system_clock().now(),
                                         .accounts = {{.account = "chem", .users = {"prof"}}}}};
  }
  Result<RunAnswer> runs(const RunRequest& request,
                         const std::function<void(const JobRun&)>& use) override {
    if (problem) return *problem;
    ++calls;
    if (waits_for_deadline) {
      std::mutex mutex;
      std::condition_variable_any stopped;
      std::unique_lock lock(mutex);
      stopped.wait_until(lock, request.stop, request.deadline, [] { return false; });
      return RunAnswer{.finished = false};
    }
    std::vector<JobRun> runs = all;
    std::erase_if(runs, [&](const JobRun& run) {
      return run.ended_at < request.from || run.ended_at >= request.until ||
             (!gives_all && !is_visible(run, request.visibility)) ||
             (request.most_wasteful > 0 && wasted_core_seconds(run) == 0);
    });
    if (request.most_wasteful > 0) {
      std::ranges::stable_sort(runs, std::greater{}, wasted_core_seconds);
      runs.resize(std::min(runs.size(), request.most_wasteful));
    }
    for (JobRun& run : runs) {
      const bool is_asked = request.with_event && request.with_event(run);
      events_read += is_asked ? 1 : 0;
      if (!is_asked) run.event = nullptr;
      use(run);
    }
    return RunAnswer{.problems = problems};
  }

  std::vector<JobRun> all;
  std::uint64_t unfinished = 0;
  std::optional<Error> problem;
  std::vector<std::string> problems;
  bool waits_for_deadline = false;
  bool gives_all = false;  // as a store behind the query service may
  int calls = 0;
  int events_read = 0;
};

JobRun run_of(const std::string& user, const std::string& id, const std::string& ended,
              std::uint64_t hours, std::uint64_t wasted) {
  Event event;
  event.id = "event of " + id;
  event.job.id = id;
  event.job.name = "name of " + id;
  JobRun run{.user = user,
             .verified = true,
             .account = "chem",
             .partition = "main",
             .ended_at = *parse_rfc3339(ended),
             .core_seconds = hours * kHour,
             .unused_core_seconds = wasted * kHour,
             .nodes = {"n1"}};
  run.cluster = "lab";
  run.key = "key of " + id;
  run.event = std::make_shared<const Event>(std::move(event));
  return run;
}

class Reports : public ::testing::Test {
 protected:
  Response get(const std::string& target, const std::string& login = "support") {
    const std::function<Result<serve::Caller>(const std::string&)> find_caller =
        [](const std::string& name) -> Result<serve::Caller> {
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
                   .deadline = deadline_});
  }
  nlohmann::json json(const std::string& by, const std::string& login = "support") {
    return nlohmann::json::parse(get("/api/v1/reports?by=" + by + "&" + kPeriod, login).body);
  }

  RunStore store_;
  std::vector<query::Store> stores_{{"catalog", &store_}};
  std::vector<Logger::Fields> recorded_;
  bool can_record_ = true;
  SteadyTime deadline_ = SteadyTime::max();
};

TEST_F(Reports, EverybodyGetsTheSumsOfTheJobsThatMayBeSeen) {
  JobRun of_bob = run_of("bob", "2", "2026-11-21T00:00:00Z", 10, 7);
  JobRun of_carol = run_of("carol", "3", "2026-11-22T00:00:00Z", 30, 9);
  of_carol.account = "physics";
  store_.all = {run_of("alice", "1", "2026-11-20T00:00:00Z", 20, 5), of_bob, of_carol};
  store_.unfinished = 4;
  const auto rows = [&](const std::string& login) {
    std::vector<std::string> names;
    const nlohmann::json report = json("user", login);
    for (const auto& row : report["rows"]) names.push_back(row["user"]);
    return names;
  };
  EXPECT_THAT(rows("support"), ElementsAre("carol", "bob", "alice", "(no usage)"));
  EXPECT_THAT(rows("prof"), ElementsAre("bob", "alice"));
  EXPECT_THAT(rows("alice"), ElementsAre("alice"));
  EXPECT_EQ(json("user", "alice")["total"]["core_seconds"], 20 * kHour);
  const std::string own = get(std::string("/reports?by=user&") + kPeriod, "alice").body;
  EXPECT_THAT(own, AllOf(HasSubstr(">alice</a>"), Not(HasSubstr("bob")), Not(HasSubstr("carol")),
                         Not(HasSubstr("(no usage)")), HasSubstr("job/lab/1\""),
                         Not(HasSubstr("job/lab/2\"")), Not(HasSubstr(">Owner<"))));
  EXPECT_THAT(get(std::string("/reports?by=user&") + kPeriod, "prof").body,
              AllOf(HasSubstr("job/lab/2\""), Not(HasSubstr("job/lab/3\"")),
                    HasSubstr("<th scope=\"col\">Owner</th>")));
}

TEST_F(Reports, WithoutAChoiceItIsByUserForThoseWhoSeeOthers) {
  const auto chosen = [&](const std::string& login) {
    const std::string page = get("/reports", login).body;
    std::smatch found;
    return std::regex_search(page, found, std::regex("<option selected>(\\w+)<")) ? found[1].str()
                                                                                  : page;
  };
  EXPECT_EQ(chosen("support"), "user");
  EXPECT_EQ(chosen("prof"), "user");
  EXPECT_EQ(chosen("alice"), "program");
  EXPECT_THAT(get("/reports").body,
              AllOf(HasSubstr("name=\"since\" value=\"7d\""),
                    HasSubstr("href=\"reports?by=user&amp;since=7d\" aria-current=\"true\""),
                    HasSubstr("href=\"reports?by=user&amp;since=12mo\">")));
}

TEST_F(Reports, TheDownloadsAreWhatTheCommandPrints) {
  store_.all = {run_of("=cmd()", "1", "2026-11-21T00:00:00Z", 20, 5),
                run_of("alice", "2", "2026-11-14T00:00:00Z", 10, 2)};
  store_.unfinished = 1;
  query::RunSums sums(query::SumBy::kUser,
                      {.from = *parse_rfc3339(kSince), .until = *parse_rfc3339(kUntil)});
  for (const JobRun& run : store_.all) sums.add(run);
  sums.add_unfinished(1, 1);
  const Response csv = get(std::string("/reports.csv?by=user&") + kPeriod);
  EXPECT_EQ(csv.body, sums.csv());
  EXPECT_THAT(csv.body, AllOf(Not(HasSubstr("\n=cmd")), HasSubstr("cmd()"), HasSubstr("before_")));
  EXPECT_EQ(csv.type, "text/csv; charset=utf-8");
  EXPECT_THAT(csv.headers, Contains(std::pair("Content-Disposition",
                                              "attachment; filename=\"report-by-user.csv\"")));
  EXPECT_EQ(get(std::string("/api/v1/reports?by=user&") + kPeriod).body,
            sums.json().dump(2) + "\n");
  EXPECT_EQ(store_.events_read, 0);
}

TEST_F(Reports, ARowLeadsToItsJobs) {
  store_.all = {run_of("alice", "1", "2026-11-21T00:00:00Z", 20, 5),
                run_of("a b\"*", "2", "2026-11-21T00:00:00Z", 20, 5),
                run_of("a b\"", "3", "2026-11-21T00:00:00Z", 20, 5)};
  store_.all.push_back(store_.all[0]);
  store_.all.back().verified = false;
  store_.all.push_back(store_.all[0]);
  store_.all.back().unused_core_seconds.reset();
  const std::string page = get(std::string("/reports?by=user&") + kPeriod).body;
  std::vector<std::string> queries;
  const std::regex link("href=\"\\.\\?q=([^\"]+)\"");
  for (auto it = std::sregex_iterator(page.begin(), page.end(), link); it != std::sregex_iterator();
       ++it)
    queries.push_back(parse_target("/?q=" + (*it)[1].str())->query_value("q"));
  const std::string ended = "ended:2026-11-20T00:00:00Z..2026-11-26T23:59:59Z";
  EXPECT_THAT(queries,
              ::testing::UnorderedElementsAre("user:alice verified:true " + ended,
                                              "user:\"a b\\\"\" verified:true " + ended,
                                              "user:alice verified:false " + ended, ended));
  for (const std::string& text : queries)
    EXPECT_FALSE(query::parse(text, Timestamp{}).error) << text;
}

TEST_F(Reports, AWeekLeadsToThePartOfItThatWasAskedFor) {
  store_.all = {run_of("alice", "1", "2026-11-21T12:00:00Z", 20, 5)};
  const std::string page = get(std::string("/reports?by=week&") + kPeriod).body;
  EXPECT_THAT(page, AllOf(HasSubstr("2026-11-16</a>"),
                          HasSubstr("ended%3A2026-11-20T00%3A00%3A00Z..2026-11-2"),
                          Not(HasSubstr(">Trend<"))));
}

TEST_F(Reports, TheRowsAndTheTotalAreThereWithWhatTheyMean) {
  store_.all = {run_of("alice", "1", "2026-11-21T00:00:00Z", 20, 5),
                run_of("alice", "2", "2026-11-14T00:00:00Z", 10, 2),
                run_of("bob", "3", "2026-11-22T00:00:00Z", 30, 0)};
  store_.all[0].findings = {"cpu_low"};
  store_.all[2].unused_core_seconds.reset();
  store_.unfinished = 2;
  const std::string page = get(std::string("/reports?by=account&") + kPeriod).body;
  EXPECT_THAT(
      page,
      AllOf(HasSubstr("<td class=\"n\">1</td><td class=\"n\">20.0</td><td class=\"n\">5.0</td>"),
            HasSubstr("25 % <meter "), HasSubstr("value=\"25\" aria-label=\"chem\"></meter>"),
            HasSubstr(">+150 %<"), HasSubstr("cpu_low (1)"),
            HasSubstr("(no usage) has 1 job whose use was not measured."),
            HasSubstr("(no usage) has 2 jobs submitted in this time"),
            HasSubstr("<td class=\"n\">50.0</td><td class=\"n\">5.0</td>"),
            Not(HasSubstr("GPU hours"))));
  // What is not measured is left out.
  EXPECT_THAT(page, HasSubstr("(no usage)</th><td class=\"n\">3</td><td class=\"n\">30.0</td>"
                              "<td class=\"n\"></td><td></td>"));
}

TEST_F(Reports, TheMostWastefulJobsOfThePeriodHaveLinks) {
  for (int i = 1; i <= 14; ++i) {
    store_.all.push_back(run_of("alice", std::to_string(100 + i),
                                i <= 12 ? "2026-11-21T00:00:00Z" : "2026-11-14T00:00:00Z", 100,
                                static_cast<std::uint64_t>(i)));
  }
  Event task = *store_.all[11].event;
  task.job.array = JobArray{.job_id = "90", .task_id = "3"};
  store_.all[11].event = std::make_shared<const Event>(std::move(task));
  const std::string page = get(std::string("/reports?") + kPeriod).body;
  std::vector<std::string> jobs;
  const std::regex link("href=\"job/lab/([^\"]+)\"");
  for (auto it = std::sregex_iterator(page.begin(), page.end(), link); it != std::sregex_iterator();
       ++it)
    jobs.push_back((*it)[1]);
  EXPECT_THAT(jobs,
              ElementsAre("90_3", "111", "110", "109", "108", "107", "106", "105", "104", "103"));
  EXPECT_EQ(store_.events_read, 10);
  EXPECT_THAT(page, HasSubstr("name of 111"));
  bool has_events = false;
  for (const auto& field : recorded_.back())
    has_events = has_events || (field.key == "events" &&
                                std::string(field.value).starts_with("event of 112,event of 111"));
  EXPECT_TRUE(has_events);
}

// The text alternative, and a bar for each day, week, month.
TEST_F(Reports, ThePictureHasABarForEachPartOfThePeriod) {
  store_.all = {run_of("alice", "1", "2026-11-21T12:00:00Z", 20, 5),
                run_of("alice", "2", "2026-11-23T12:00:00Z", 40, 10)};
  const auto bars = [&](const std::string& period) {
    const std::string page = get("/reports?" + period).body;
    std::size_t count = 0;
    for (std::size_t at = 0; (at = page.find("<g><title>", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  EXPECT_EQ(bars("since=2026-11-20&until=2026-11-27"), 7U);
  EXPECT_EQ(bars("since=2026-10-27&until=2026-11-27"), 31U);
  EXPECT_EQ(bars("since=2025-11-27&until=2026-11-27"), 53U);  // weeks
  EXPECT_EQ(bars("since=2024-11-27&until=2026-11-27"), 25U);  // months
  EXPECT_EQ(bars("since=1970&until=2100"), 3U);               // from the first run to the last
  const std::string page = get(std::string("/reports?") + kPeriod).body;
  EXPECT_THAT(page, AllOf(HasSubstr("role=\"img\""), HasSubstr("40.0 core hours, 10.0 of them"),
                          HasSubstr("y=\"0\" width=\"8\" height=\"1000\"/><rect class=\"wasted\""),
                          HasSubstr("y=\"500\" width=\"8\" height=\"500\"")));
}

TEST_F(Reports, WithoutRunsThereIsNoPicture) {
  const Response page = get("/reports");
  EXPECT_EQ(page.status, 200U);
  EXPECT_THAT(page.body,
              AllOf(HasSubstr("No job that you may see ended in this time."),
                    Not(HasSubstr("<svg")), Not(HasSubstr("<table")), Not(HasSubstr("csv"))));
}

TEST_F(Reports, NamesCannotLeaveTheirPlace) {
  JobRun run = run_of(kHostileCell, "</td>1", "2026-11-21T00:00:00Z", 20, 5);
  run.account = run.partition = kHostileCell;
  run.nodes = run.modules = run.findings = {kHostileCell};
  run.programs = {{kHostileCell, 10'000}};
  Event event = *run.event;
  event.job.name = kHostileCell;
  run.event = std::make_shared<const Event>(std::move(event));
  store_.all = {run};
  store_.problems = {kHostileCell};
  for (const std::string& by : query::sum_by_words()) {
    const Response page = get("/reports?by=" + by + "&" + kPeriod);
    EXPECT_EQ(page.status, 200U);
    EXPECT_THAT(page.body, AllOf(HasSubstr("&lt;/td&gt;&lt;script"),
                                 Not(HasSubstr("<script>alert")), Not(HasSubstr("</td>1"))))
        << by;
  }
  EXPECT_THAT(get("/reports?by=%22%3E%3Cscript%3E&since=%22%3E%3Cscript%3E").body,
              Not(HasSubstr("<script>")));
}

TEST_F(Reports, WhatIsLateHasNoFigures) {
  store_.all = {run_of("alice", "1", "2026-11-21T00:00:00Z", 20, 5)};
  store_.waits_for_deadline = true;
  deadline_ = std::chrono::steady_clock::now();
  const Response page = get(std::string("/reports?") + kPeriod);
  EXPECT_EQ(page.status, 200U);
  EXPECT_THAT(page.body, AllOf(HasSubstr("Choose a shorter time."), HasSubstr("name=\"since\""),
                               Not(HasSubstr("alice")), Not(HasSubstr("<table"))));
  for (const char* file : {"/reports.csv?", "/api/v1/reports?"}) {
    const Response late = get(file + std::string(kPeriod));
    EXPECT_EQ(late.status, 503U);
    EXPECT_THAT(late.body, AllOf(HasSubstr("Choose a shorter time."), Not(HasSubstr("alice"))));
  }
}

TEST_F(Reports, WhatIsWrongInTheAddressIsSaidAndAsksNothing) {
  for (const char* query : {"by=colour", "since=x", "until=x", "since=2026&until=2025"}) {
    const Response page = get(std::string("/reports?") + query);
    EXPECT_EQ(page.status, 400U) << query;
    EXPECT_THAT(page.body, HasSubstr("class=\"bad\"")) << query;
    EXPECT_EQ(get(std::string("/reports.csv?") + query).status, 400U) << query;
  }
  EXPECT_EQ(store_.calls, 0);
  EXPECT_THAT(recorded_, IsEmpty());
}

TEST_F(Reports, WithoutARecordOrAStoreThereIsNoAnswer) {
  store_.all = {run_of("alice", "1", "2026-11-21T00:00:00Z", 20, 5)};
  can_record_ = false;
  for (const char* file : {"/reports?", "/reports.csv?", "/api/v1/reports?"}) {
    const Response page = get(file + std::string(kPeriod));
    EXPECT_EQ(page.status, 503U);
    EXPECT_THAT(page.body, AllOf(HasSubstr("no space left"), Not(HasSubstr("alice"))));
  }
  can_record_ = true;
  store_.problem = Error{ErrorKind::kTransient, "the catalog is of a newer version"};
  EXPECT_THAT(get("/reports").body, HasSubstr("the catalog is of a newer version"));
  EXPECT_EQ(get("/reports.csv").status, 503U);
}

TEST_F(Reports, TheFirstPageSaysWhatTheReadersLastDaysUsedAndWasted) {
  const auto ended = [](std::int64_t hours_ago) {
    return format_rfc3339(
        {system_clock().now().nanoseconds / kSecond * kSecond - hours_ago * 3'600 * kSecond},
        TimePrecision::kSeconds);
  };
  store_.all = {run_of("support", "1", ended(1), 20, 5), run_of("support", "2", ended(2), 10, 9),
                run_of("alice", "3", ended(1), 100, 99), run_of("support", "4", ended(500), 7, 7),
                run_of("support", "5", ended(3), 2, 2),  run_of("support", "6", ended(3), 1, 1),
                run_of("support", "7", ended(4), 8, 8)};
  Event event = *store_.all[1].event;
  event.extra_json = R"({"usage": {"findings": [{"severity": "warning", "text": "1 of <16> CPUs"}],
                         "suggest": {"directives": ["#SBATCH --cpus-per-task=1"]}}})";
  store_.all[1].event = std::make_shared<const Event>(event);
  event = *store_.all.back().event;
  event.job.name = "name of 2";  // the same job again
  store_.all.back().event = std::make_shared<const Event>(event);
  store_.unfinished = 4;  // of them nothing is known
  for (const bool gives_all : {false, true}) {
    store_.gives_all = gives_all;
    const std::string page = get("/").body;
    EXPECT_THAT(page, AllOf(HasSubstr("5 jobs had 41.0 core hours and left 25.0 of them unused."),
                            HasSubstr("9.0 of 10.0 core hours unused"),
                            HasSubstr("<li class=\"warning\">1 of &lt;16&gt; CPUs</li>"),
                            HasSubstr("#SBATCH --cpus-per-task=1"), Not(HasSubstr("job/lab/3")),
                            Not(HasSubstr("job/lab/4")), Not(HasSubstr("job/lab/6")),
                            Not(HasSubstr("job/lab/7"))));
    EXPECT_LT(page.find("job/lab/2\""), page.find("job/lab/1\""));
    EXPECT_LT(page.find("job/lab/1\""), page.find("job/lab/5\""));
  }
  EXPECT_THAT(get("/", "bob").body, Not(HasSubstr("core hours")));
}

TEST_F(Reports, TheFirstStoreThatHasRunsAnswersWhole) {
  RunStore other;
  other.all = {run_of("alice", "1", "2026-11-21T00:00:00Z", 20, 5)};
  store_.problem = Error{ErrorKind::kInvalidConfig, "this sink has no sums of jobs"};
  stores_.push_back({"second", &other});
  EXPECT_EQ(json("user")["total"]["jobs"], 1);
}

}  // namespace
}  // namespace scriptorium::page
