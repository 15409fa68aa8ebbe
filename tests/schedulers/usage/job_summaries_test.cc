#include "schedulers/usage/job_summaries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "schedulers/usage/events.h"
#include "schedulers/usage/job_events.h"
#include "schedulers/usage/program_table.h"
#include "tests/schedulers/usage/job_fixtures.h"
#include "tests/support/fake_clock.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::usage {
namespace {

using namespace std::literals;
using namespace fixtures;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using Json = nlohmann::json;

// A row as squeue prints it, X standing for the guard.
struct Row {
  std::string id = "4711", state = "COMPLETED", nodes = "1", cpus = "4", restarts = "0",
              exit_code = "0", name = "md", used = "1:00:00";
  std::int64_t submitted = kStart.nanoseconds / 1'000'000'000 - 60,
               started = kStart.nanoseconds / 1'000'000'000;
  std::int64_t ended = started + 3600;

  std::string text() const {
    const std::string memory = std::to_string(4 * std::stoi(nodes)) + "G";
    std::string result;
    for (const std::string& field : {id,
                                     id,
                                     "N/A"s,
                                     "0"s,
                                     "0"s,
                                     std::to_string(submitted),
                                     std::to_string(started),
                                     std::to_string(ended),
                                     used,
                                     "2:00:00"s,
                                     restarts,
                                     state,
                                     exit_code,
                                     nodes,
                                     cpus,
                                     "cpu=" + cpus + ",mem=" + memory + ",node=" + nodes,
                                     "N/A"s,
                                     "chem"s,
                                     "(null)"s,
                                     "batch"s,
                                     "/home"s,
                                     name}) {
      result += field + "X";
    }
    return result + "\n";
  }
};

class JobSummariesTest : public ::testing::Test {
 protected:
  JobSummariesTest() {
    config_.squeue = directory_.path() + "/squeue";
    script(R"(printf '%s' "$SQUEUE_FORMAT2" > "$D/format"; sed "s/X/$G/g" "$D/rows")");
    rows({});
  }
  void script(const std::string& body) {
    directory_.write("squeue",
                     "#!/bin/sh\nD='" + directory_.path() +
                         "'\necho \"$*\" >>\"$D/calls\"\nG=${SQUEUE_FORMAT2#JobID:}; G=${G%%,*}\n" +
                         body + "\n");
    std::filesystem::permissions(config_.squeue, std::filesystem::perms::owner_all);
  }
  void rows(const std::vector<Row>& list) {
    std::string text;
    for (const Row& row : list) text += row.text();
    directory_.write("rows", text);
  }
  std::vector<std::string> calls() const {
    std::vector<std::string> result;
    if (!directory_.exists("calls")) return result;
    std::istringstream lines(directory_.read("calls"));
    for (std::string line; std::getline(lines, line);) result.push_back(line);
    return result;
  }
  JobSummaries& made() {
    if (!summaries_) summaries_.emplace(config_, PluginContext{"usage", "lab", log_, clock_});
    return *summaries_;
  }
  // Polls as the source does, moving the clock, until it gives something or nothing waits.
  JobSummaries::Ready wait() {
    for (int turn = 0; turn < 30; ++turn) {
      auto ready = made().poll({});
      if (!ready.done.empty() || !made().next_poll()) return ready;
      clock_.advance(
          std::max<std::chrono::nanoseconds>(*made().next_poll() - clock_.steady(), 1ms));
    }
    ADD_FAILURE() << "it never comes to an end";
    return {};
  }
  static Json usage(const Event& event) { return Json::parse(event.extra_json).at("usage"); }
  static Json job(const Event& event) { return Json::parse(event.extra_json).at("job"); }

  test::TempDir directory_;
  test::FakeClock clock_;
  test::RecordingLogger log_;
  JobConfig config_;
  std::optional<JobSummaries> summaries_;
};

TEST_F(JobSummariesTest, AJobOfOneNodeComesWithWhatItAskedForAndHowItEnded) {
  rows({Row{}});
  made().node_ended(node());
  const auto ready = wait();
  ASSERT_THAT(ready.events, SizeIs(1));
  EXPECT_THAT(ready.done, ElementsAre(node().job.key()));
  const Event& event = ready.events.front();
  EXPECT_EQ(event.kind, "usage.job");
  EXPECT_EQ(event.scheduler, "slurm");
  EXPECT_EQ(event.host, "n1");
  EXPECT_EQ(event.capture, "cgroup2");
  EXPECT_TRUE(event.complete);
  EXPECT_EQ(event.time.nanoseconds, kStart.nanoseconds - 60'000'000'000)
      << "of submission, as the script's";
  EXPECT_EQ(event.job.name, "md");
  EXPECT_EQ(event.job.account, "chem");
  EXPECT_EQ(event.job.qos, std::nullopt);
  EXPECT_EQ(event.user.name, "root");
  EXPECT_TRUE(event.user.verified);
  EXPECT_EQ(job(event)["state"], "COMPLETED");
  EXPECT_EQ(job(event)["exit_code"], "0:0");
  EXPECT_EQ(job(event)["restarts"], 0);
  const Json all = usage(event);
  EXPECT_EQ(all["request"]["memory_bytes"], 4 * kGiB);
  EXPECT_EQ(all["request"]["time_limit_seconds"], 7200);
  EXPECT_EQ(all["cpu"]["efficiency_ratio"], 1.0);
  EXPECT_EQ(all["memory"]["efficiency_ratio"], 0.75);
  EXPECT_EQ(all["time"]["efficiency_ratio"], 0.5);
  EXPECT_EQ(all["quality"]["status"], "ok");
  EXPECT_EQ(all["nodes"][0]["host"]["name"], "n1");
  EXPECT_EQ(all["findings"][0]["id"], "time_over");
  EXPECT_THAT(log_.text(), IsEmpty());
}

TEST_F(JobSummariesTest, AJobHasTheProgramsOfAllItsNodesOnceAndNotInEachNode) {
  rows({Row{.nodes = "2"}});
  for (const char* name : {"n1", "n2"}) {
    NodeUsage one = node(name);
    one.programs = share_out({{.name = "python3",
                               .script = "a.py",
                               .cpu_seconds = 10'000,
                               .processes = 2,
                               .threads = 4,
                               .busy_threads = 3,
                               .ranks = 2},
                              {.name = name, .cpu_seconds = 400, .processes = 1, .threads = 1}},
                             {}, one.cpu.time_seconds);
    made().node_ended(one);
  }
  const auto ready = wait();
  ASSERT_THAT(ready.events, SizeIs(1));
  const Json all = usage(ready.events.front());
  EXPECT_EQ(all["cpu"]["time_seconds"], 28'800);
  EXPECT_EQ(all["programs"], Json::parse(R"([
    {"name":"python3","script":"a.py","cpu_seconds":20000.0,"cpu_ratio":0.6944,"processes":4,
     "threads":8,"busy_threads":6,"ranks":4},
    {"name":"n1","cpu_seconds":400.0,"cpu_ratio":0.0139,"processes":1,"threads":1},
    {"name":"n2","cpu_seconds":400.0,"cpu_ratio":0.0139,"processes":1,"threads":1}])"));
  EXPECT_EQ(all["programs_unseen"], Json::parse(R"({"cpu_seconds":8000.0,"cpu_ratio":0.2778})"));
  EXPECT_FALSE(all.contains("programs_other"));
  for (const Json& one : all["nodes"])
    EXPECT_FALSE(one.contains("programs") || one.contains("programs_unseen"));
}

TEST_F(JobSummariesTest, AJobHasTheStepsOfAllItsNodesOnceAndNotInEachNode) {
  rows({Row{.nodes = "2"}});
  for (const char* name : {"n1", "n2"}) {
    NodeUsage one = node(name);
    StepUse step{.name = "0",
                 .started_at = one.job.started_at,
                 .ended_at = one.ended_at,
                 .elapsed_seconds = one.elapsed_seconds,
                 .last_read = LastRead::kRemoval};
    step.cpu.time_seconds = 10'000;
    step.memory.oom_kills = 1;
    one.memory.oom_kills = 1;
    one.steps = {.steps = {step}, .other = StepRest{.steps = 2, .cpu_seconds = 4400}};
    made().node_ended(one);
  }
  const auto ready = wait();
  ASSERT_THAT(ready.events, SizeIs(1));
  const Json all = usage(ready.events.front());
  ASSERT_THAT(all["steps"], SizeIs(1));
  EXPECT_EQ(all["steps"][0]["name"], "0");
  EXPECT_EQ(all["steps"][0]["cpu"]["time_seconds"], 20'000);
  EXPECT_EQ(all["steps"][0]["last_read"], "removal");
  EXPECT_EQ(all["steps_other"], Json::parse(R"({"steps":2,"cpu_seconds":8800.0})"));
  EXPECT_EQ(all["findings"][0]["id"], "mem_oom");
  EXPECT_EQ(all["findings"][0]["steps"], Json::parse(R"(["0"])"));
  for (const Json& one : all["nodes"])
    EXPECT_FALSE(one.contains("steps") || one.contains("steps_other"));
}

TEST_F(JobSummariesTest, TheFormatIsNotInTheCommandLineWhereOthersCouldReadTheGuard) {
  rows({Row{}});
  made().node_ended(node());
  wait();
  ASSERT_THAT(calls(), SizeIs(1));
  EXPECT_EQ(calls()[0], "-h -a --local -t all -j 4711");
  EXPECT_THAT(directory_.read("format"),
              ::testing::MatchesRegex("JobID:@[0-9a-f]{32},ArrayJobID:@.*,Name:@[0-9a-f]{32}"));
}

TEST_F(JobSummariesTest, OneQuestionServesAllJobsThatEndedAndNoMoreThanOneIsAskedASecond) {
  Row other;
  other.id = "4712";
  other.state = "RUNNING";
  rows({Row{}, other});
  made().node_ended(node());
  NodeUsage second = node();
  second.job.job_id = "4712";
  made().node_ended(second);
  EXPECT_THAT(made().poll({}).events, SizeIs(1));
  EXPECT_THAT(made().poll({}).events, IsEmpty());
  EXPECT_THAT(calls(), ElementsAre("-h -a --local -t all -j 4711,4712"));
  other.state = "FAILED";
  other.exit_code = "768";
  rows({other});
  const auto ready = wait();
  ASSERT_THAT(ready.events, SizeIs(1));
  EXPECT_EQ(job(ready.events[0])["exit_code"], "3:0");
  EXPECT_EQ(calls().back(), "-h -a --local -t all -j 4712");
}

TEST_F(JobSummariesTest, AStateThatIsNotFinalIsWaitedForButNotForEver) {
  Row row;
  row.state = "COMPLETING";
  rows({row});
  made().node_ended(node());
  const SteadyTime begin = clock_.steady();
  const auto ready = wait();
  EXPECT_LE(clock_.steady() - begin, 8s);
  ASSERT_THAT(ready.events, SizeIs(1));
  EXPECT_FALSE(job(ready.events[0]).contains("state"));
  EXPECT_EQ(usage(ready.events[0])["request"]["cpus"], 4) << "what is known is told";
}

TEST_F(JobSummariesTest, WithoutAnAnswerTheJobIsToldByWhatItsNodeKnows) {
  script("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1");
  made().node_ended(node());
  const auto ready = wait();
  ASSERT_THAT(ready.events, SizeIs(1));
  EXPECT_FALSE(usage(ready.events[0]).contains("request"));
  EXPECT_EQ(ready.events[0].user.name, "root");
  EXPECT_EQ(ready.events[0].time, kStart);
  ASSERT_TRUE(log_.has("USAGE_JOBS_UNANSWERED"));
  EXPECT_THAT(log_.last("USAGE_JOBS_UNANSWERED")->field("reason"),
              HasSubstr("Unable to contact slurm controller"));
  EXPECT_EQ(Json::parse(made().status_json())["unanswered"], 1);
}

TEST_F(JobSummariesTest, AnAnswerThatIsNotAsSlurmWritesItIsRefusedWhole) {
  Row forged;
  forged.name = "x" + std::string("X\n");  // as if a user had known the guard
  rows({Row{}, forged});
  made().node_ended(node());
  const auto ready = wait();
  ASSERT_THAT(ready.events, SizeIs(1));
  EXPECT_FALSE(usage(ready.events[0]).contains("request"));
  EXPECT_THAT(log_.last("USAGE_JOBS_UNANSWERED")->field("reason"), HasSubstr("refused"));
}

TEST_F(JobSummariesTest, NamesMayHoldWhatUsersType) {
  Row row;
  row.name = "a|b\n4711@\x1b[31m";
  rows({row});
  made().node_ended(node());
  const auto ready = wait();
  ASSERT_THAT(ready.events, SizeIs(1));
  EXPECT_EQ(ready.events[0].job.name, row.name);
}

TEST_F(JobSummariesTest, AJobThatSlurmctldHasForgottenIsToldWithoutIt) {
  script("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1");
  made().node_ended(node());
  const SteadyTime begin = clock_.steady();
  EXPECT_THAT(wait().events, SizeIs(1));
  EXPECT_LE(clock_.steady() - begin, 2s) << "two answers without it are enough";
  EXPECT_FALSE(log_.has("USAGE_JOBS_UNANSWERED"));
}

TEST_F(JobSummariesTest, AJobThatSlurmctldShouldKnowAndDoesNotTellIsSaid) {
  clock_.jump_to(after(3600));  // the job ended just now
  made().node_ended(node());
  EXPECT_THAT(wait().events, SizeIs(1));
  ASSERT_TRUE(log_.has("USAGE_JOBS_HIDDEN"));
  EXPECT_THAT(log_.last("USAGE_JOBS_HIDDEN")->sentence, HasSubstr("PrivateData"));
  log_.clear();
  clock_.jump_to(after(7200));  // an hour ago
  made().node_ended(node());
  EXPECT_THAT(wait().events, SizeIs(1));
  EXPECT_FALSE(log_.has("USAGE_JOBS_HIDDEN"));
}

TEST_F(JobSummariesTest, AJobWhoseOtherNodesAreElsewhereIsLeftToAccounting) {
  Row row;
  row.nodes = "2";
  rows({row});
  made().node_ended(node());
  const auto ready = wait();
  EXPECT_THAT(ready.events, IsEmpty());
  EXPECT_THAT(ready.done, ElementsAre(node().job.key())) << "but its node need not be kept";
  EXPECT_EQ(Json::parse(made().status_json())["left_to_accounting"], 1);
}

TEST_F(JobSummariesTest, TheNodesOfOneMachineMakeOneJob) {
  Row row;
  row.nodes = "2";
  row.cpus = "8";
  rows({row});
  NodeUsage other = node("n2");
  other.job.batch_step = false;
  made().node_ended(other);
  EXPECT_THAT(made().poll({}).done, IsEmpty());
  clock_.advance(2s);
  made().node_ended(node());
  const auto ready = wait();
  ASSERT_THAT(ready.events, SizeIs(1));
  EXPECT_THAT(ready.done, UnorderedElementsAre(node().job.key(), other.job.key()));
  const Json all = usage(ready.events[0]);
  EXPECT_EQ(all["nodes"].size(), 2U);
  EXPECT_EQ(all["quality"]["nodes_expected"], 2);
  EXPECT_EQ(all["cpu"]["time_seconds"], 2 * 4 * 3600);
  EXPECT_EQ(all["cpu"]["efficiency_ratio"], 1.0);
}

TEST_F(JobSummariesTest, ANodeWithoutTheScriptAsksLaterSoThatAThousandDoNotAskAtOnce) {
  rows({Row{}});
  std::vector<SteadyTime> moments;
  for (int i = 0; i < 20; ++i) {
    JobSummaries one(config_, {"usage", "lab", log_, clock_});
    NodeUsage n = node("n" + std::to_string(i));
    n.job.batch_step = false;
    one.node_ended(n);
    moments.push_back(*one.next_poll());
  }
  std::sort(moments.begin(), moments.end());
  EXPECT_GT(moments.back() - moments.front(), 3s);
}

TEST_F(JobSummariesTest, ARequeuedJobKeepsItsRequestAndIsSaidToBeRequeued) {
  Row row;
  row.state = "PENDING";
  row.restarts = "1";
  row.started = 0;
  row.ended = 0;
  rows({row});
  made().node_ended(node());
  const auto ready = wait();
  ASSERT_THAT(ready.events, SizeIs(1));
  EXPECT_EQ(job(ready.events[0])["state"], "REQUEUED");
  EXPECT_EQ(job(ready.events[0])["restarts"], 0);
  EXPECT_EQ(usage(ready.events[0])["request"]["cpus"], 4);
  EXPECT_EQ(usage(ready.events[0])["started_at"], "2026-11-21T00:00:00.000Z")
      << "of the life that ended";
}

TEST_F(JobSummariesTest, AnotherJobThatGotTheNumberLendsNothing) {
  Row row;
  row.started = kStart.nanoseconds / 1'000'000'000 + 5000;
  row.name = "foreign";
  rows({row});
  made().node_ended(node());
  const auto ready = wait();
  ASSERT_THAT(ready.events, SizeIs(1));
  EXPECT_EQ(ready.events[0].job.name, std::nullopt);
}

TEST_F(JobSummariesTest, TheIdIsThatOfAccountingAndTheSameWhenTheNodeIsGivenAgain) {
  rows({Row{}});
  made().node_ended(node());
  made().node_ended(node());
  const auto first = wait();
  ASSERT_THAT(first.events, SizeIs(1)) << "the same node twice is one";
  made().node_ended(node());
  const auto second = wait();
  ASSERT_THAT(second.events, SizeIs(1));
  EXPECT_EQ(first.events[0].id, second.events[0].id);
  EXPECT_EQ(first.events[0].extra_json, second.events[0].extra_json);
  EXPECT_EQ(first.events[0].id, job_event_id("lab", "slurm", "4711", kStart));
}

TEST_F(JobSummariesTest, TwoLivesOfOneJobAreTwoEvents) {
  rows({Row{}});
  NodeUsage again = node();
  again.job.started_at = after(4000);
  again.ended_at = after(4100);
  made().node_ended(node());
  made().node_ended(again);
  const auto ready = wait();
  ASSERT_THAT(ready.events, SizeIs(2));
}

TEST_F(JobSummariesTest, WithResolveNoneNobodyIsAsked) {
  config_.resolve = Resolve::kNone;
  made().node_ended(node());
  EXPECT_THAT(wait().events, SizeIs(1));
  EXPECT_THAT(calls(), IsEmpty());
}

TEST_F(JobSummariesTest, WhyNobodyKnowsTheOwnerForSureIsSaid) {
  config_.resolve = Resolve::kNone;
  NodeUsage of = node();
  of.job.uid_trusted = false;
  of.job.uid_problem = "the job's processes run as several users: 0 and 1";
  const Event event_of_node = node_event("lab", of);
  EXPECT_FALSE(event_of_node.user.verified);
  EXPECT_EQ(event_of_node.user.unverified_reason, of.job.uid_problem);
  EXPECT_EQ(event_of_node.id, node_event("lab", node()).id);
  of.job.uid.reset();
  EXPECT_EQ(node_event("lab", of).user.unverified_reason, of.job.uid_problem)
      << "two users at the first look";
  EXPECT_FALSE(node_event("lab", node()).user.unverified_reason);
  made().node_ended(of);
  const auto ready = wait();
  ASSERT_THAT(ready.events, SizeIs(1));
  EXPECT_FALSE(ready.events.front().user.verified);
  EXPECT_EQ(ready.events.front().user.unverified_reason, of.job.uid_problem);
}

TEST_F(JobSummariesTest, OnlyANumberGoesIntoTheCommandLine) {
  NodeUsage odd = node();
  odd.job.job_id = "s0123456789ABC --help";
  made().node_ended(odd);
  EXPECT_THAT(wait().events, SizeIs(1));
  EXPECT_THAT(calls(), IsEmpty());
}

TEST_F(JobSummariesTest, ACommandThatHangsIsEndedByAStop) {
  script("sleep 600");
  made().node_ended(node());
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(made().poll(stop.get_token()).events, IsEmpty());
  EXPECT_EQ(Json::parse(made().status_json())["waiting"], 1) << "it stays the caller's";
}

TEST_F(JobSummariesTest, AThousandJobsAtOnceAreAllTold) {
  std::vector<Row> list;
  for (int i = 0; i < 1000; ++i) {
    NodeUsage n = node();
    n.job.job_id = std::to_string(10'000 + i);
    Row row;
    row.id = n.job.job_id;
    list.push_back(row);
    made().node_ended(n);
  }
  rows(list);
  std::size_t told = 0;
  for (int turn = 0; turn < 20 && made().next_poll(); ++turn) {
    told += made().poll({}).events.size();
    clock_.advance(1s);
  }
  EXPECT_EQ(told, 1000U);
  EXPECT_LE(calls().size(), 3U);
}

}  // namespace
}  // namespace scriptorium::usage
