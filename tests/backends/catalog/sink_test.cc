#include "backends/catalog/sink.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "backends/catalog/ingest.h"
#include "backends/catalog/lock.h"
#include "backends/catalog/segments.h"
#include "tests/backends/catalog/catalog_events.h"
#include "tests/support/event_factory.h"
#include "tests/support/fake_clock.h"
#include "tests/support/queries.h"
#include "tests/support/recording_logger.h"
#include "tests/support/scripted_sink.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::catalog {
namespace {

using test::make_event;
using test::make_event_value;
using test_support::job_at;
using test_support::shared;
using test_support::usage_event;
using Shared = std::shared_ptr<const Event>;

class CatalogSinkTest : public ::testing::Test {
 protected:
  CatalogSinkTest() { config_.root = directory_.path_to("catalog"); }

  CatalogSink& sink() {
    if (!sink_) {
      sink_ = std::make_unique<CatalogSink>(config_, PluginContext{"catalog", "lab", log_, clock_});
      const auto started = sink_->start();
      EXPECT_TRUE(started) << started.error().message();
    }
    return *sink_;
  }
  void restart() {
    if (sink_) sink_->stop(SteadyTime::max());
    sink_.reset();
    sink();
  }
  void deliver(std::vector<Shared> events) {
    test::Outbox outbox;
    const auto sent = events;
    sink().deliver(outbox.batch(std::move(events)));
    for (const Shared& event : sent) {
      ASSERT_EQ(outbox.outcome(event->job.id), Outcome::kAcknowledged)
          << event->job.id << ": " << outbox.reason(event->job.id);
    }
  }

  struct Row {
    std::int64_t segment = 0;
    JobEntry entry;
  };
  // All rows, the oldest segment first.
  std::vector<Row> rows() {
    std::vector<Row> all;
    for (const std::int64_t id : segment_ids()) {
      auto reader = EventReader::open(config_.root, id);
      EXPECT_TRUE(reader) << reader.error().message();
      EXPECT_TRUE((*reader)->rows().read_range(0, 1'000'000, [&](JobEntry&& entry) {
        all.push_back({id, std::move(entry)});
        return true;
      }));
    }
    return all;
  }
  std::vector<std::int64_t> segment_ids() { return test_support::segment_ids(config_.root); }
  std::int64_t number(const std::string& sql, std::int64_t segment = 1) {
    auto db = open_segment_reader(config_.root, segment);
    EXPECT_TRUE(db);
    const auto value = (*db)->integer(sql);
    const auto error = (*db)->take_error();
    EXPECT_FALSE(error) << error->message();
    return value.value_or(-1);
  }
  // The event comes back as it was delivered, with its bytes.
  void expect_fetched(const Event& event) {
    const auto fetched = sink().readable()->fetch(test::without_bytes(event));
    ASSERT_TRUE(fetched) << fetched.error().message();
    EXPECT_EQ(event_json(**fetched, {.exact_times = true}),
              event_json(event, {.exact_times = true}));
  }
  void expect_sound() {
    EXPECT_EQ(test_support::problems_of(config_.root), std::vector<std::string>{});
  }

  test::TempDir directory_;
  test::RecordingLogger log_;
  test::FakeClock clock_;
  CatalogConfig config_;
  std::unique_ptr<CatalogSink> sink_;
};

TEST_F(CatalogSinkTest, AnEventComesBackByteForByteAlsoAfterARestart) {
  Event event = make_event_value("4711");
  event.problems = {"environment: count 9, 4 strings"};
  event.extra_json = R"({"site":{"colour":"blue"}})";
  ASSERT_NO_FATAL_FAILURE(deliver({shared(event)}));
  expect_fetched(event);
  restart();
  expect_fetched(event);
  expect_sound();
}

TEST_F(CatalogSinkTest, ASecondDeliveryChangesNothing) {
  const Event event = make_event_value("4711");
  const Event usage = usage_event(event, "COMPLETED");
  ASSERT_NO_FATAL_FAILURE(deliver({shared(event), shared(event)}));
  ASSERT_NO_FATAL_FAILURE(deliver({shared(usage), shared(usage)}));
  restart();
  ASSERT_NO_FATAL_FAILURE(deliver({shared(event)}));
  ASSERT_NO_FATAL_FAILURE(deliver({shared(usage)}));
  ASSERT_EQ(rows().size(), 1U);
  EXPECT_EQ(rows()[0].entry.row.lives, 1U);
  EXPECT_EQ(number("SELECT count(*) FROM contents"), 4);
  expect_sound();
}

TEST_F(CatalogSinkTest, AnOwnersScriptIsStoredOnce) {
  Event other = make_event_value("3");
  other.user.name = "bob";
  other.user.id = "1002";
  ASSERT_NO_FATAL_FAILURE(
      deliver({make_event("1"), make_event("2"), shared(other), make_event("4", "#!/bin/sh\n")}));
  EXPECT_EQ(number("SELECT count(*) FROM contents WHERE kind = 0"), 3);
  expect_fetched(other);
  expect_fetched(make_event_value("2"));
}

TEST_F(CatalogSinkTest, AnIdThatIsUsedAgainIsAnotherJob) {
  ASSERT_NO_FATAL_FAILURE(deliver({shared(job_at("7", 0)), shared(job_at("7", 1'000'000))}));
  EXPECT_EQ(rows().size(), 2U);
  expect_fetched(job_at("7", 0));
  expect_fetched(job_at("7", 1'000'000));
}

TEST_F(CatalogSinkTest, AJobMovesToItsOwnerWhenThatIsKnown) {
  for (const bool with_bytes : {true, false}) {
    for (const bool sealed : {false, true}) {
      SCOPED_TRACE(with_bytes);
      SCOPED_TRACE(sealed);
      const std::string id = std::to_string(10 + 2 * int{with_bytes} + int{sealed});
      const std::string script = "#!/bin/sh\n# " + id + std::string(sealed ? 70'000 : 10, 'x');
      const Event before = test::make_unverified_event(id, script);
      const Event after = test::make_owned_event(before);
      ASSERT_NO_FATAL_FAILURE(deliver({shared(before)}));
      ASSERT_NO_FATAL_FAILURE(deliver({shared(usage_event(before, "FAILED"))}));
      ASSERT_NO_FATAL_FAILURE(deliver({shared(with_bytes ? after : test::without_bytes(after))}));
      expect_fetched(after);
      expect_fetched(before);
      const auto found = rows();
      ASSERT_FALSE(found.empty());
      EXPECT_EQ(found.back().entry.row.user, "alice");
      EXPECT_TRUE(found.back().entry.row.verified);
      EXPECT_EQ(found.back().entry.row.state, "FAILED");
      EXPECT_EQ(number("SELECT count(*) FROM contents c JOIN owners o ON o.id = c.owner WHERE "
                       "o.name = '?mallory'"),
                0);
      EXPECT_EQ(number("SELECT count(*) FROM pending c JOIN owners o ON o.id = c.owner WHERE "
                       "o.name = '?mallory'"),
                0);
      // Core may deliver the first one once more.
      const std::size_t rows_before = found.size();
      ASSERT_NO_FATAL_FAILURE(deliver({shared(before)}));
      ASSERT_NO_FATAL_FAILURE(deliver({shared(after)}));
      EXPECT_EQ(rows().size(), rows_before);
      expect_sound();
    }
  }
}

TEST_F(CatalogSinkTest, AScriptThatAnotherJobStillUsesStaysWhenOneJobMoves) {
  const Event first = test::make_unverified_event("1");
  const Event second = test::make_unverified_event("2");
  ASSERT_NO_FATAL_FAILURE(deliver({shared(first), shared(second)}));
  ASSERT_NO_FATAL_FAILURE(deliver({shared(test::make_owned_event(first))}));
  expect_fetched(second);
  expect_fetched(test::make_owned_event(first));
  expect_sound();
}

TEST_F(CatalogSinkTest, AnOwnedEventWithoutBytesOfAJobThatIsNotHereIsAcknowledged) {
  const Event before = test::make_unverified_event("1");
  ASSERT_NO_FATAL_FAILURE(deliver({shared(test::without_bytes(test::make_owned_event(before)))}));
  EXPECT_TRUE(rows().empty());
}

TEST_F(CatalogSinkTest, AnEventWithoutItsBytesIsRejected) {
  test::Outbox outbox;
  sink().deliver(
      outbox.batch({shared(test::without_bytes(make_event_value("1"))), make_event("2")}));
  EXPECT_EQ(outbox.outcome("1"), Outcome::kRejected);
  EXPECT_EQ(outbox.outcome("2"), Outcome::kAcknowledged);
}

TEST_F(CatalogSinkTest, ALongerCaptureTakesTheRowOfTheShorter) {
  const Event shorter = make_event_value("1", "#!/bin/sh\n");
  Event longer = make_event_value("1", "#!/bin/sh\nsrun hostname\n");
  longer.supersedes = shorter.id;
  ASSERT_NO_FATAL_FAILURE(deliver({shared(shorter)}));
  ASSERT_NO_FATAL_FAILURE(deliver({shared(longer)}));
  ASSERT_NO_FATAL_FAILURE(deliver({shared(shorter)}));
  ASSERT_EQ(rows().size(), 1U);
  EXPECT_EQ(rows()[0].entry.row.event_id, longer.id);
  expect_fetched(longer);
  expect_sound();
}

TEST_F(CatalogSinkTest, LaterEventsJoinTheirJobInAnyOrder) {
  const Event job = job_at("1", 0);
  const Event reused = job_at("1", 5'000'000);
  std::vector<Event> events{job, usage_event(job, "REQUEUED", 1), usage_event(job, "COMPLETED", 2),
                            reused, usage_event(reused, "TIMEOUT", 1)};
  std::vector<std::size_t> order{0, 1, 2, 3, 4};
  int done = 0;
  const auto at = [&](std::size_t event) {
    return std::find(order.begin(), order.end(), event) - order.begin();
  };
  do {
    // An event of a job whose script is not here yet goes to the earlier job with that id.
    if (at(4) > at(0) && at(4) < at(3)) continue;
    const std::string root = directory_.path_to("order" + std::to_string(done++));
    sink_.reset();
    config_.root = root;
    for (const std::size_t i : order) ASSERT_NO_FATAL_FAILURE(deliver({shared(events[i])}));
    const auto found = rows();
    ASSERT_EQ(found.size(), 2U) << done;
    for (const Row& row : found) {
      const bool is_first = row.entry.row.event_id == job.id;
      EXPECT_EQ(row.entry.row.state, is_first ? "COMPLETED" : "TIMEOUT") << done;
      EXPECT_EQ(row.entry.row.lives, is_first ? 2U : 1U) << done;
      EXPECT_EQ(row.entry.row.time, is_first ? job.time : reused.time);
    }
    expect_sound();
    if (HasFailure()) break;
  } while (std::next_permutation(order.begin(), order.end()) && done < 60);
  for (const Event& event : events) expect_fetched(event);
}

TEST_F(CatalogSinkTest, AJobThatStartsInTheSecondOfItsSubmissionIsOneJob) {
  const Event job = job_at("1", 0);
  const Event usage = usage_event(job, "COMPLETED", -60);  // starts then, in whole seconds
  ASSERT_NE(job.time.nanoseconds % kSecond, 0);
  ASSERT_NO_FATAL_FAILURE(deliver({shared(job)}));
  ASSERT_NO_FATAL_FAILURE(deliver({shared(usage)}));
  ASSERT_EQ(rows().size(), 1U);
  EXPECT_EQ(rows()[0].entry.row.state, "COMPLETED");
  expect_sound();
}

// A task's own number is 1000 + task, and its use names the array.
Event task_event(const Event& array, int task, const std::string& state) {
  Event event = usage_event(array, state, task);
  event.job.id = std::to_string(1000 + task);
  event.job.array = JobArray{.job_id = array.job.id, .task_id = std::to_string(task)};
  return event;
}

TEST_F(CatalogSinkTest, TasksOfAnArrayAreRunsOfItsOneJobInAnyOrder) {
  Event array = job_at("900", 0);
  array.job.array = JobArray{.job_id = "900", .task_spec = "0-999"};
  std::vector<Event> tasks;
  for (int task = 0; task < 1000; ++task)
    tasks.push_back(task_event(array, task, task % 400 == 100 ? "FAILED" : "COMPLETED"));
  tasks.push_back(task_event(array, 950, "TIMEOUT"));  // task 950 ran twice
  for (const int script_comes_at : {0, 500, 1001}) {
    config_.root = directory_.path_to("catalog" + std::to_string(script_comes_at));
    sink_.reset();
    std::vector<Shared> batch;
    for (int i = 0; i <= 1001; ++i) {
      if (i == script_comes_at) batch.push_back(shared(array));
      if (i < 1001) batch.push_back(shared(tasks[static_cast<std::size_t>(i)]));
      if (batch.size() < 200 && i < 1001) continue;
      ASSERT_NO_FATAL_FAILURE(deliver(std::move(batch)));
      batch.clear();
    }
    const auto all = rows();
    ASSERT_EQ(all.size(), 1U) << script_comes_at;
    const JobRow& row = all[0].entry.row;
    EXPECT_EQ(row.id, "900");
    EXPECT_EQ(row.event_id, array.id);
    EXPECT_EQ(row.runs, 1001U);
    EXPECT_EQ(row.failed_runs, 4U);
    EXPECT_EQ(row.state, "TIMEOUT") << "of the last run that failed";
    EXPECT_EQ(row.lives, 0U);
    expect_fetched(array);
    expect_fetched(tasks[100]);
    const auto records = sink().searchable()->get({.id = "900_3"}, {}, 10);
    ASSERT_TRUE(records && records->size() == 1);
    EXPECT_EQ((*records)[0].later.size(), 1001U);
    expect_sound();
  }
}

// The node knows the task's own number, and not that it is one of an array.
Event node_event(const Event& task) {
  Event event = task;
  event.kind = "usage.node";
  event.job.array.reset();
  event.user.verified = false;
  event.id = event_id(std::vector<std::string_view>{task.id, "node"});
  return event;
}

TEST_F(CatalogSinkTest, ReadingsOfNodesOfTasksAreKeptAndAreNoJobsOfTheirOwn) {
  Event array = job_at("900", 0);
  array.job.array = JobArray{.job_id = "900", .task_spec = "0-1"};
  const Event task = task_event(array, 0, "COMPLETED");
  const Event node = node_event(task);
  const Event late = node_event(task_event(array, 1, "COMPLETED"));
  const Event job = job_at("7", 0);  // of which the node says something before its script comes
  const Event node_of_job = node_event(usage_event(job, "COMPLETED"));
  const Event lost = usage_event(job_at("8", 0), "COMPLETED");  // whose script never comes
  const auto expect_jobs = [&](const std::set<std::string>& expected) {
    std::set<std::string> found;
    const auto answer = sink().searchable()->search({.count = true, .facets = {QueryField::kUser}});
    ASSERT_TRUE(answer && answer->count);
    for (const auto& hit : answer->hits) found.insert(hit.job.id);
    EXPECT_EQ(found, expected);
    EXPECT_EQ(answer->count->jobs, expected.size());
    for (const Event* event : {&node, &node_of_job}) expect_fetched(*event);
    expect_sound();
  };
  ASSERT_NO_FATAL_FAILURE(
      deliver({shared(array), shared(node), shared(node_of_job), shared(node_event(lost))}));
  expect_jobs({"900"});
  ASSERT_NO_FATAL_FAILURE(deliver({shared(task), shared(late), shared(job), shared(lost)}));
  expect_jobs({"7", "8", "900"});
  sink().stop(SteadyTime::max());
  EXPECT_EQ(test_support::move_all_segments(config_.root), "");
  restart();
  expect_jobs({"7", "8", "900"});
}

TEST_F(CatalogSinkTest, CheckpointsAreRecordsOfTheirJobAlsoThoseBeforeItsScript) {
  const Event job = job_at("7", 0);
  std::vector<Event> steps;
  for (const int number : {1, 2, 3}) {
    Event step = usage_event(job, "RUNNING", number);
    step.kind = "job.checkpoint";
    step.time.nanoseconds += number * (600 * kSecond);
    step.job.name.reset();
    step.extra_json =
        R"({"checkpoint":{"action":"made","image_bytes":)" + std::to_string(number) + "}}";
    steps.push_back(step);
  }
  ASSERT_NO_FATAL_FAILURE(deliver({shared(steps[0])}));
  ASSERT_NO_FATAL_FAILURE(deliver({shared(job), shared(steps[1])}));
  ASSERT_NO_FATAL_FAILURE(deliver({shared(steps[2]), shared(usage_event(job, "COMPLETED"))}));
  ASSERT_NO_FATAL_FAILURE(deliver({shared(steps[1])}));  // once more, after a crash
  sink().stop(SteadyTime::max());
  EXPECT_EQ(test_support::move_all_segments(config_.root), "");
  restart();
  const auto records = sink().searchable()->get({.id = "7"}, {}, 10);
  ASSERT_TRUE(records && records->size() == 1);
  EXPECT_EQ((*records)[0].job.state, "COMPLETED");
  EXPECT_EQ((*records)[0].job.lives, 1U);
  std::set<std::string> found;
  for (const auto& event : (*records)[0].later) {
    if (event->kind == "job.checkpoint") found.insert(event->extra_json);
  }
  ASSERT_EQ((*records)[0].later.size(), 4U);
  for (const Event& step : steps) {
    EXPECT_TRUE(found.contains(step.extra_json));
    expect_fetched(step);
  }
  expect_sound();
}

TEST_F(CatalogSinkTest, UseJoinsTheSubmissionOfItsTimeIfAnIdIsUsedTwice) {
  const Event first = job_at("7", 0);
  const Event second = job_at("7", 86'400, "#!/bin/sh\nsecond\n");
  ASSERT_NO_FATAL_FAILURE(deliver({shared(first), shared(second)}));
  ASSERT_NO_FATAL_FAILURE(
      deliver({shared(usage_event(second, "FAILED")), shared(usage_event(first, "COMPLETED"))}));
  const auto all = rows();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].entry.row.state, "COMPLETED");
  EXPECT_EQ(all[1].entry.row.state, "FAILED");
}

TEST_F(CatalogSinkTest, UseThatComesBeforeItsScriptIsNotOfAnEarlierJobWithTheId) {
  Event of_another_user = job_at("7", 86'400, "#!/bin/sh\nsecond\n");
  of_another_user.user.name = "bob";
  const Event years_later = job_at("8", 300 * 86'400, "#!/bin/sh\nsecond\n");
  ASSERT_NO_FATAL_FAILURE(deliver({shared(job_at("7", 0)), shared(job_at("8", 0))}));
  for (const Event& second : {of_another_user, years_later}) {
    ASSERT_NO_FATAL_FAILURE(deliver({shared(usage_event(second, "FAILED"))}));
    ASSERT_NO_FATAL_FAILURE(deliver({shared(second)}));
  }
  const auto all = rows();
  ASSERT_EQ(all.size(), 4U);
  for (const auto& one : all) {
    const bool is_first = one.entry.row.time == job_at("7", 0).time;
    EXPECT_EQ(one.entry.row.state, is_first ? std::nullopt : std::optional<std::string>("FAILED"));
    EXPECT_NE(one.entry.row.event_id, "");
  }
}

TEST_F(CatalogSinkTest, TheSameIdsInTwoClustersAreTwoJobs) {
  Event here = job_at("7", 0);
  Event there = job_at("7", 0);
  there.cluster = "other";
  there.id = event_id({there.id});
  ASSERT_NO_FATAL_FAILURE(deliver({shared(here)}));
  ASSERT_NO_FATAL_FAILURE(deliver({shared(there)}));
  ASSERT_NO_FATAL_FAILURE(deliver({shared(usage_event(there, "FAILED"))}));
  const auto all = rows();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].entry.row.state, std::nullopt);
  EXPECT_EQ(all[1].entry.row.state, "FAILED");
}

// Such a row stays with the owner of its first event.
TEST_F(CatalogSinkTest, AJobWhoseScriptNeverCameIsFoundByTheUserThatALaterEventNames) {
  Event nameless = usage_event(make_event_value("1"), "RUNNING");
  nameless.user = {};
  ASSERT_NO_FATAL_FAILURE(deliver({shared(nameless)}));
  ASSERT_NO_FATAL_FAILURE(deliver(
      {shared(usage_event(make_event_value("1"), "FAILED", 2)), shared(make_event_value("2"))}));
  Searchable::Request request;
  request.query = test::field_query(QueryField::kUser, "alice");
  const auto answer = sink().searchable()->search(request);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->hits.size(), 2U);
}

TEST_F(CatalogSinkTest, AJobWhoseScriptNeverCameHasARow) {
  const Event usage = usage_event(make_event_value("1"), "COMPLETED");
  ASSERT_NO_FATAL_FAILURE(deliver({shared(usage)}));
  ASSERT_EQ(rows().size(), 1U);
  EXPECT_EQ(rows()[0].entry.row.event_id, "");
  EXPECT_EQ(rows()[0].entry.row.user, "alice");
  expect_fetched(usage);
}

TEST_F(CatalogSinkTest, FullOwnersAreSealedIntoBlocksWithWords) {
  std::vector<Shared> events;
  for (int i = 0; i < 60; ++i) {
    events.push_back(make_event(std::to_string(i), "#!/bin/sh\nunusual" + std::to_string(i) + "\n" +
                                                       std::string(3'000, 'a' + i % 26) + "\n"));
  }
  ASSERT_NO_FATAL_FAILURE(deliver(events));
  EXPECT_GE(number("SELECT count(*) FROM blocks WHERE kind = 0"), 2);
  EXPECT_EQ(number("SELECT count(*) FROM script_blocks"),
            number("SELECT count(*) FROM blocks WHERE kind = 0"));
  EXPECT_EQ(number("SELECT count(*) FROM pairs"),
            number("SELECT count(*) FROM blocks WHERE kind = 0"));
  EXPECT_EQ(number("SELECT count(*) FROM words WHERE words MATCH '\"unusual0\"'"), 1);
  EXPECT_LT(number("SELECT sum(raw) FROM pending WHERE kind = 0"), 65'536);
  for (const Shared& event : events) expect_fetched(*event);
  expect_sound();
}

TEST_F(CatalogSinkTest, AnOldScriptThatIsUsedAgainMakesItsBlockNewer) {
  const std::string script = "#!/bin/sh\n" + std::string(70'000, 'x');
  ASSERT_NO_FATAL_FAILURE(deliver({shared(job_at("1", 0, script))}));
  ASSERT_EQ(number("SELECT count(*) FROM script_blocks"), 1);
  ASSERT_NO_FATAL_FAILURE(deliver({shared(job_at("2", 500, script))}));
  ASSERT_NO_FATAL_FAILURE(deliver({shared(job_at("3", -500, script))}));
  EXPECT_EQ(number("SELECT newest FROM script_blocks"), job_at("2", 500).time.nanoseconds);
  EXPECT_EQ(number("SELECT oldest FROM script_blocks"), job_at("3", -500).time.nanoseconds);
  expect_sound();
}

TEST_F(CatalogSinkTest, WhatWaitsToBeSealedIsBounded) {
  for (int batch = 0; batch < 6; ++batch) {
    std::vector<Shared> events;
    for (int i = 0; i < 50; ++i) {
      Event event = make_event_value(
          std::to_string(batch * 50 + i),
          "#!/bin/sh\n# " + std::to_string(batch * 50 + i) + std::string(60'000, 'x'));
      event.user.name = "user" + std::to_string(batch * 50 + i);
      events.push_back(shared(event));
    }
    ASSERT_NO_FATAL_FAILURE(deliver(std::move(events)));
  }
  EXPECT_LE(number("SELECT sum(raw) FROM pending WHERE kind = 0"),
            static_cast<std::int64_t>(kMostPendingScripts));
  // Those who were quiet the longest.
  EXPECT_EQ(number("SELECT count(*) FROM pending p JOIN owners o ON o.id = p.owner WHERE o.name = "
                   "'user0' AND p.kind = 0"),
            0);
  EXPECT_EQ(number("SELECT count(*) FROM pending p JOIN owners o ON o.id = p.owner WHERE o.name = "
                   "'user299' AND p.kind = 0"),
            1);
  expect_sound();
}

// 300 owners in turn, each with more and more scripts: what is sealed early is small.
TEST_F(CatalogSinkTest, YoungBlocksOfAnOwnerGrowUntilTheyAreIndexed) {
  constexpr int kOwners = 300;
  constexpr int kRounds = 38;
  std::vector<Shared> last;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<Shared> events;
    for (int owner = 0; owner < kOwners; ++owner) {
      const std::string job = std::to_string(round * kOwners + owner);
      std::string script = "#!/bin/sh\n# only" + job + "\n";
      for (int line = 0; line < 60; ++line)
        script += "srun step_" + job + "_" + std::to_string(line) + " --in data.txt\n";
      Event event = job_at(job, round * kOwners + owner, script);
      event.user.name = "user" + std::to_string(owner);
      event.user.id = std::to_string(5'000 + owner);
      events.push_back(shared(event));
    }
    last = events;
    ASSERT_NO_FATAL_FAILURE(deliver(std::move(events)));
  }
  const std::int64_t blocks = number("SELECT count(*) FROM blocks WHERE kind = 0");
  ASSERT_GT(blocks, 100);
  const std::int64_t pending = number("SELECT count(*) FROM pending WHERE kind = 0");
  // About 2 KB each; alone, a block would have what an owner has waiting when he is sealed early.
  EXPECT_GT(number("SELECT avg(raw) FROM blocks WHERE kind = 0"), 12'000);
  EXPECT_GT(number("SELECT count(*) FROM script_blocks WHERE young"), 0);
  EXPECT_GT(number("SELECT count(*) FROM script_blocks WHERE NOT young"), 0);
  EXPECT_EQ(number("SELECT count(*) FROM script_blocks s JOIN blocks b ON b.id = s.id WHERE young "
                   "<> (raw < 65536)"),
            0);
  EXPECT_EQ(number("SELECT sum(count) FROM blocks WHERE kind = 0"), kOwners * kRounds - pending);
  EXPECT_EQ(number("SELECT count(*) FROM script_blocks"), blocks);
  EXPECT_EQ(number("SELECT count(*) FROM pairs"), blocks);
  // A word of one script names its block, and not one that it was in before.
  for (const int job : {7, kOwners * (kRounds - 1) + 7}) {
    const std::string its_block =
        "(SELECT s.id FROM jobs j JOIN contents c ON c.id = j.script JOIN script_blocks s ON s.id "
        "= c.block WHERE NOT s.young AND j.job = " +
        std::to_string(job) + ")";
    EXPECT_EQ(
        number("SELECT count(*) FROM words WHERE words MATCH 'only" + std::to_string(job) +
               "' AND rowid IN " + its_block),
        number("SELECT count(*) FROM words WHERE words MATCH 'only" + std::to_string(job) + "'"));
    EXPECT_EQ(
        number("SELECT count(*) FROM words WHERE words MATCH 'only" + std::to_string(job) + "'"),
        number("SELECT count(*) FROM " + its_block));
  }
  expect_sound();
  restart();
  for (const Shared& event : last) expect_fetched(*event);
  expect_sound();
}

TEST_F(CatalogSinkTest, SegmentsFollowEachOtherAndOldOnesAreFinished) {
  config_.segment_jobs = 10;
  std::vector<Event> events;
  for (int i = 0; i < 30; ++i)
    events.push_back(job_at(std::to_string(i), i, "#!/bin/sh\nsrun step" + std::to_string(i)));
  for (int i = 0; i < 30; i += 5) {
    std::vector<Shared> batch;
    for (int j = i; j < i + 5; ++j) batch.push_back(shared(events[j]));
    ASSERT_NO_FATAL_FAILURE(deliver(std::move(batch)));
  }
  EXPECT_EQ(segment_ids(), (std::vector<std::int64_t>{1, 2, 3}));
  // Later deliveries finish the old ones, a step each.
  for (int i = 0; i < 20; ++i) ASSERT_NO_FATAL_FAILURE(deliver({shared(events[0])}));
  for (const std::int64_t segment : {1, 2}) {
    EXPECT_EQ(number("SELECT count(*) FROM pending", segment), 0);
    EXPECT_EQ(number("SELECT value FROM meta WHERE key = 'finished'", segment), 1);
    EXPECT_EQ(number("SELECT count(*) FROM words WHERE words MATCH '\"srun\"'", segment), 1);
  }
  EXPECT_EQ(rows().size(), 30U);
  // Everything of an old job goes to its segment.
  ASSERT_NO_FATAL_FAILURE(deliver({shared(usage_event(events[3], "FAILED"))}));
  restart();
  ASSERT_NO_FATAL_FAILURE(deliver({shared(events[4]), shared(usage_event(events[5], "FAILED"))}));
  const auto found = rows();
  ASSERT_EQ(found.size(), 30U);
  EXPECT_EQ(found[3].segment, 1);
  EXPECT_EQ(found[3].entry.row.state, "FAILED");
  EXPECT_EQ(found[5].entry.row.state, "FAILED");
  for (const Event& event : events) expect_fetched(event);
  expect_sound();
}

TEST_F(CatalogSinkTest, AQuarterEndsASegment) {
  clock_.jump_to(*parse_rfc3339("2026-03-31T23:59:59Z"));
  ASSERT_NO_FATAL_FAILURE(deliver({make_event("1")}));
  clock_.jump_to(*parse_rfc3339("2026-04-01T00:00:00Z"));
  ASSERT_NO_FATAL_FAILURE(deliver({make_event("2")}));
  EXPECT_EQ(segment_ids(), (std::vector<std::int64_t>{1, 2}));
}

TEST_F(CatalogSinkTest, JobsOfOneFamilyHaveItsNumber) {
  const std::string script =
      "#!/bin/bash\nmodule load GROMACS\nexport OMP_NUM_THREADS=8\ncd /scratch/alice/run\n"
      "gmx grompp -f md.mdp -c start.gro -o topol.tpr\nmpirun gmx_mpi mdrun -deffnm run\n";
  Event edited = make_event_value("2", script + "echo done\n");
  Event other = make_event_value("3", "#!/usr/bin/env python3\nimport numpy as np\nprint(np.e)\n");
  other.job.name = "python";
  ASSERT_NO_FATAL_FAILURE(deliver({make_event("1", script), shared(edited)}));
  restart();
  ASSERT_NO_FATAL_FAILURE(deliver({shared(other), make_event("4", script)}));
  const auto found = rows();
  ASSERT_EQ(found.size(), 4U);
  ASSERT_TRUE(found[0].entry.row.family);
  EXPECT_EQ(found[1].entry.row.family, found[0].entry.row.family);
  EXPECT_NE(found[2].entry.row.family, found[0].entry.row.family);
  EXPECT_EQ(found[3].entry.row.family, found[0].entry.row.family);
}

TEST_F(CatalogSinkTest, EveryEventIsListedOnceWhateverThePageSize) {
  config_.segment_jobs = 4;
  std::set<std::string> wanted;
  for (int i = 0; i < 10; ++i) {
    const Event job = job_at(std::to_string(i), i);
    const Event usage = usage_event(job, "COMPLETED");
    wanted.insert(job.id);
    wanted.insert(usage.id);
    ASSERT_NO_FATAL_FAILURE(deliver({shared(job)}));
    ASSERT_NO_FATAL_FAILURE(deliver({shared(usage)}));
  }
  for (const std::size_t limit : {1, 3, 100}) {
    std::multiset<std::string> listed;
    std::string position;
    for (bool end = false; !end;) {
      const auto page = sink().readable()->list({}, position, limit);
      ASSERT_TRUE(page) << page.error().message();
      ASSERT_LE(page->events.size(), limit);
      for (const auto& event : page->events) listed.insert(event->id);
      position = page->position;
      end = page->end;
    }
    EXPECT_EQ(listed.size(), wanted.size());
    EXPECT_EQ(std::set<std::string>(listed.begin(), listed.end()), wanted);
  }
  const auto page =
      sink().readable()->list({.kinds = {"usage.*"}, .since = job_at("0", 5).time}, "", 99);
  ASSERT_TRUE(page);
  EXPECT_EQ(page->events.size(), 5U);
}

TEST_F(CatalogSinkTest, TwoWritersTakeTurns) {
  CatalogSink other(config_, PluginContext{"other", "lab", log_, clock_});
  sink();
  ASSERT_TRUE(other.start());
  const auto write = [&](CatalogSink& to, int from) {
    for (int i = 0; i < 10; ++i) {
      test::Outbox outbox;
      std::vector<Shared> events;
      for (int j = 0; j < 5; ++j) events.push_back(make_event(std::to_string(from + i * 5 + j)));
      to.deliver(outbox.batch(events));
      for (const Shared& event : events)
        EXPECT_EQ(outbox.outcome(event->job.id), Outcome::kAcknowledged)
            << outbox.reason(event->job.id);
    }
  };
  std::thread second([&] { write(other, 1'000); });
  write(sink(), 0);
  second.join();
  EXPECT_EQ(rows().size(), 100U);
  EXPECT_EQ(number("SELECT count(*) FROM contents WHERE kind = 0"), 1);
  expect_sound();
}

TEST_F(CatalogSinkTest, ReadersWorkBesideTheWriterAndAfterIt) {
  ASSERT_NO_FATAL_FAILURE(deliver({make_event("1")}));
  auto reader = EventReader::open(config_.root, 1);
  ASSERT_TRUE(reader);
  ASSERT_NO_FATAL_FAILURE(deliver({make_event("2")}));
  EXPECT_EQ((*reader)->db().integer("SELECT count(*) FROM jobs"), 2);
  sink().stop(SteadyTime::max());
  sink_.reset();
  EXPECT_TRUE(directory_.exists("catalog/segments/000001.db-wal"));
  EXPECT_TRUE(directory_.exists("catalog/segments/000001.db-shm"));
  EXPECT_EQ(std::filesystem::file_size(config_.root + "/segments/000001.db-wal"), 0U);
  EXPECT_EQ(rows().size(), 2U);
}

TEST_F(CatalogSinkTest, FilesAreReadableByTheGroupAndNobodyElse) {
  ASSERT_NO_FATAL_FAILURE(deliver({make_event("1")}));
  for (const char* file : {"catalog.db", "catalog.db-wal", "segments/000001.db",
                           "segments/000001.db-wal", "segments/000001.db-shm"}) {
    struct stat st{};
    ASSERT_EQ(::stat((config_.root + "/" + file).c_str(), &st), 0) << file;
    EXPECT_EQ(st.st_mode & 0777, 0640U) << file;
  }
  struct stat st{};
  ASSERT_EQ(::stat(config_.root.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0750U);
}

TEST_F(CatalogSinkTest, ADamagedOldSegmentStopsNoNewJob) {
  config_.segment_jobs = 2;
  ASSERT_NO_FATAL_FAILURE(deliver({make_event("1"), make_event("2")}));
  ASSERT_NO_FATAL_FAILURE(deliver({make_event("3"), make_event("4")}));
  sink().stop(SteadyTime::max());
  sink_.reset();
  directory_.write("catalog/segments/000001.db", std::string(8192, 'x'));
  ASSERT_NO_FATAL_FAILURE(deliver({make_event("5")}));
  EXPECT_EQ(log_.count("CATALOG_SEGMENT_DAMAGED"), 1U);
}

TEST_F(CatalogSinkTest, ADamagedNewestSegmentAsksForARetryAndSaysWhy) {
  ASSERT_NO_FATAL_FAILURE(deliver({make_event("1")}));
  sink().stop(SteadyTime::max());
  directory_.write("catalog/segments/000001.db", std::string(8192, 'x'));
  test::Outbox outbox;
  sink().deliver(outbox.batch({make_event("2")}));
  EXPECT_EQ(outbox.outcome("2"), Outcome::kRetry);
  EXPECT_NE(outbox.reason("2").find("damaged"), std::string::npos) << outbox.reason("2");
}

TEST_F(CatalogSinkTest, AnotherProcessThatKeepsTheLockDelaysTheBatch) {
  sink();
  auto lock = WriterLock::take(config_.root);
  ASSERT_TRUE(lock);
  test::Outbox outbox;
  std::thread delivering([&] { sink().deliver(outbox.batch({make_event("1")})); });
  {
    const WriterLock released = *std::move(lock);
  }
  delivering.join();
  EXPECT_EQ(outbox.outcome("1"), Outcome::kAcknowledged);
}

TEST_F(CatalogSinkTest, ACheckChangesNothingAndNamesWhatIsWrong) {
  CatalogSink fresh(config_, PluginContext{"catalog", "lab", log_, clock_});
  EXPECT_TRUE(fresh.check());
  EXPECT_FALSE(directory_.exists("catalog"));
  config_.root = directory_.path_to("missing/catalog");
  CatalogSink deep(config_, PluginContext{"catalog", "lab", log_, clock_});
  ASSERT_FALSE(deep.check());
  EXPECT_EQ(deep.check().error().kind(), ErrorKind::kInvalidConfig);
  config_.root = directory_.path_to("catalog");
  config_.reader_group = "no-such-group-here";
  CatalogSink group(config_, PluginContext{"catalog", "lab", log_, clock_});
  ASSERT_FALSE(group.check());
  EXPECT_NE(group.check().error().message().find("no-such-group-here"), std::string::npos);
}

}  // namespace
}  // namespace scriptorium::catalog
