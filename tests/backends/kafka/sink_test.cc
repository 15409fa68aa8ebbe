#include "backends/kafka/sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/sha256.h"
#include "tests/backends/kafka/config_builder.h"
#include "tests/backends/kafka/mock_cluster.h"
#include "tests/support/event_factory.h"
#include "tests/support/fake_clock.h"
#include "tests/support/patience.h"
#include "tests/support/recording_logger.h"
#include "tests/support/scripted_sink.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::kafka {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::kPatience;
using test::make_event;
using test::make_event_value;
using test::MockCluster;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTopic = "jobs";

class KafkaSinkTest : public ::testing::Test {
 protected:
  void SetUp() override { use_brokers(1); }

  void use_brokers(int count, int partitions = 1) {
    sink_.reset();
    cluster_ = std::make_unique<MockCluster>(count);
    cluster_->make_topic(kTopic, partitions, count);
    options_ = {};
    options_.set("brokers", cluster_->brokers().c_str()).set("topic", kTopic);
    options_.property("statistics.interval.ms", 200).property("reconnect.backoff.max.ms", 500);
  }

  void start() { start(context_); }
  void start(const PluginContext& context) {
    auto made = KafkaSink::create(options_.config(), context);
    ASSERT_TRUE(made) << made.error().message();
    sink_ = *std::move(made);
    const auto started = sink_->start();
    ASSERT_TRUE(started) << started.error().message();
  }
  void deliver(std::vector<std::shared_ptr<const Event>> events, std::uint32_t attempt = 1) {
    sink_->deliver(outbox_.batch(std::move(events), attempt));
  }
  // Delivers one and waits for its answer.
  Outcome outcome_of(const std::shared_ptr<const Event>& event, std::uint32_t attempt = 1) {
    deliver({event}, attempt);
    EXPECT_TRUE(outbox_.wait_all_settled(kPatience)) << "no answer; log:\n"
                                                     << log_.text() << sink_->status_json();
    return outbox_.outcome(event->job.id).value_or(Outcome::kRetry);
  }
  std::vector<std::shared_ptr<const Event>> jobs(int first, int count) {
    std::vector<std::shared_ptr<const Event>> events;
    for (int i = first; i < first + count; ++i) {
      events.push_back(
          make_event(std::to_string(i), "#!/bin/sh\n# job " + std::to_string(i) + "\n"));
    }
    return events;
  }
  // Every one acknowledged, and in the topic exactly once.
  void expect_all_once(const std::vector<std::shared_ptr<const Event>>& events,
                       int partitions = 1) {
    ASSERT_TRUE(outbox_.wait_all_settled(kPatience)) << log_.text() << sink_->status_json();
    for (const auto& event : events) {
      EXPECT_EQ(outbox_.outcome(event->job.id), Outcome::kAcknowledged)
          << event->job.id << ": " << outbox_.reason(event->job.id);
    }
    std::map<std::string, int> times;
    for (const auto& message : cluster_->consume(kTopic, partitions))
      ++times[message.header("event-id")];
    for (const auto& event : events) EXPECT_EQ(times[event->id], 1) << event->job.id;
    EXPECT_EQ(times.size(), events.size());
  }
  // Until the status holds this text.
  bool wait_status(const std::string& text) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < until) {
      if (sink_->status_json().find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(milliseconds(5));
    }
    return false;
  }

  test::RecordingLogger log_;
  PluginContext context_{"kafka", "lab", log_, system_clock()};
  test::FakeClock still_clock_;
  std::unique_ptr<MockCluster> cluster_;
  test::ConfigBuilder options_;
  test::Outbox outbox_;
  std::unique_ptr<KafkaSink> sink_;
};

TEST_F(KafkaSinkTest, TheDeliveryReportIsTheAcknowledgementAndTheMessageIsTheEvent) {
  start();
  const auto event = make_event("4711");
  ASSERT_EQ(outcome_of(event), Outcome::kAcknowledged) << outbox_.reason("4711");
  const auto messages = cluster_->consume(kTopic);
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_EQ(messages[0].value, event_json(*event));
  EXPECT_EQ(messages[0].key, "lab/4711");
  EXPECT_EQ(messages[0].header("content-type"), "application/json");
  EXPECT_EQ(messages[0].header("schema"), "scriptorium.event/1");
  EXPECT_EQ(messages[0].header("event-id"), event->id);
  EXPECT_EQ(messages[0].timestamp_ms, test::kJobTime.nanoseconds / 1'000'000);
}

TEST_F(KafkaSinkTest, ABatchIsStoredOnceAndInItsOrder) {
  start();
  const auto events = jobs(1000, 500);
  deliver(events);
  expect_all_once(events);
  const auto messages = cluster_->consume(kTopic);
  for (std::size_t i = 0; i < messages.size(); ++i)
    EXPECT_EQ(messages[i].header("event-id"), events[i]->id) << i;
}

TEST_F(KafkaSinkTest, EventsOfAJobComeInTheirOrderHoweverManyPartitions) {
  use_brokers(1, 4);
  start();
  std::vector<std::shared_ptr<const Event>> events;
  for (int round = 0; round < 20; ++round) {
    for (int job = 0; job < 10; ++job) {
      events.push_back(
          make_event(std::to_string(job), "#!/bin/sh\n# round " + std::to_string(round) + "\n"));
    }
  }
  for (std::size_t i = 0; i < events.size(); i += 30) {
    deliver({events.begin() + static_cast<std::ptrdiff_t>(i),
             events.begin() + static_cast<std::ptrdiff_t>(std::min(i + 30, events.size()))});
  }
  expect_all_once(events, 4);
  std::map<std::string, std::vector<std::string>> found;
  std::map<std::string, std::int32_t> partition;
  for (const auto& message : cluster_->consume(kTopic, 4)) {
    found[*message.key].push_back(message.header("event-id"));
    EXPECT_EQ(partition.try_emplace(*message.key, message.partition).first->second,
              message.partition);
  }
  for (int job = 0; job < 10; ++job) {
    std::vector<std::string> expected;
    for (const auto& event : events) {
      if (event->job.id == std::to_string(job)) expected.push_back(event->id);
    }
    EXPECT_EQ(found["lab/" + std::to_string(job)], expected);
  }
}

TEST_F(KafkaSinkTest, WhatLibrdkafkaTriesAgainItselfIsAcknowledgedAndStoredOnce) {
  options_.property("retry.backoff.ms", 10);
  start();
  cluster_->answer_next({RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
                         RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
                         RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT, RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR,
                         RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND});
  const auto events = jobs(1, 20);
  deliver(events);
  expect_all_once(events);
}

class KafkaSinkRejectTest
    : public KafkaSinkTest,
      public ::testing::WithParamInterface<std::pair<rd_kafka_resp_err_t, const char*>> {};

TEST_P(KafkaSinkRejectTest, WhatTheBrokerRefusesIsHeldUntilTheTopicTakesAnother) {
  start();
  for (std::uint32_t attempt = 1; attempt <= 3; ++attempt) {
    cluster_->answer_next({GetParam().first});
    EXPECT_EQ(outcome_of(make_event("1"), attempt), Outcome::kRetry)
        << "it may be the topic's rule";
    EXPECT_EQ(outbox_.settlement("1")->hint, kSlow);
  }
  EXPECT_EQ(log_.count("KAFKA_REFUSED"), 1U) << log_.text();
  EXPECT_EQ(outcome_of(make_event("2")), Outcome::kAcknowledged) << outbox_.reason("2");
  cluster_->answer_next({GetParam().first});
  EXPECT_EQ(outcome_of(make_event("1"), 4), Outcome::kRejected);
  EXPECT_THAT(outbox_.reason("1"), HasSubstr(GetParam().second));
}

TEST_P(KafkaSinkRejectTest, ARefusedBatchIsSentOneByOne) {
  start();
  cluster_->answer_next({GetParam().first});
  const auto events = jobs(1, 20);
  deliver(events);
  expect_all_once(events);
}
INSTANTIATE_TEST_SUITE_P(
    Answers, KafkaSinkRejectTest,
    ::testing::Values(std::pair{RD_KAFKA_RESP_ERR_INVALID_RECORD, "INVALID_RECORD"},
                      std::pair{RD_KAFKA_RESP_ERR_POLICY_VIOLATION, "POLICY_VIOLATION"}),
    [](const auto& info) { return std::string(rd_kafka_err2name(info.param.first)); });

struct Held {
  rd_kafka_resp_err_t error;
  const char* log_id;
};
class KafkaSinkHoldTest : public KafkaSinkTest, public ::testing::WithParamInterface<Held> {};

TEST_P(KafkaSinkHoldTest, WhatAnAdministratorMustMendIsTriedAgainSlowlyAndSaidOnce) {
  start();
  cluster_->answer_next({GetParam().error, GetParam().error});
  for (const char* job : {"1", "2"}) {
    EXPECT_EQ(outcome_of(make_event(job)), Outcome::kRetry);
    EXPECT_EQ(outbox_.settlement(job)->hint, kSlow);
  }
  EXPECT_EQ(log_.count(GetParam().log_id), 1U) << log_.text();
  EXPECT_EQ(log_.last(GetParam().log_id)->field("topic"), kTopic);
  // Librdkafka itself may refuse the topic for a moment longer.
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (outcome_of(make_event("3")) != Outcome::kAcknowledged &&
         std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(outbox_.outcome("3"), Outcome::kAcknowledged) << outbox_.reason("3");
  EXPECT_TRUE(log_.wait_for("KAFKA_TOPIC_BACK", 1, kPatience));
}
INSTANTIATE_TEST_SUITE_P(
    Answers, KafkaSinkHoldTest,
    ::testing::Values(Held{RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, "KAFKA_NOT_AUTHORIZED"},
                      Held{RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, "KAFKA_NOT_AUTHORIZED"},
                      Held{RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE, "KAFKA_REFUSED"}),
    [](const auto& info) { return std::string(rd_kafka_err2name(info.param.error)); });

TEST_F(KafkaSinkTest, AnUnknownTopicIsHeldNeverADeadLetterAndGoesOnWhenItIsThere) {
  options_.property("topic.metadata.propagation.max.ms", 100)
      .property("topic.metadata.refresh.fast.interval.ms", 50);
  cluster_->answer_topic(kTopic, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  start();
  EXPECT_EQ(outcome_of(make_event("1")), Outcome::kRetry);
  EXPECT_EQ(outcome_of(make_event("2")), Outcome::kRetry);
  EXPECT_EQ(outbox_.reason("2"), "the topic does not exist");
  EXPECT_EQ(outbox_.settlement("2")->hint, kSlow);
  EXPECT_EQ(log_.count("KAFKA_TOPIC"), 1U) << log_.text();
  EXPECT_THAT(sink_->status_json(), HasSubstr("topic jobs: the topic does not exist"));
  cluster_->answer_topic(kTopic, RD_KAFKA_RESP_ERR_NO_ERROR);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (outcome_of(make_event("3")) != Outcome::kAcknowledged &&
         std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(outbox_.outcome("3"), Outcome::kAcknowledged) << outbox_.reason("3");
}

TEST_F(KafkaSinkTest, OneTopicThatIsMissingDoesNotHoldTheOthers) {
  options_ = {};
  options_.set("brokers", cluster_->brokers().c_str()).set("topic", "{kind}");
  options_.property("topic.metadata.propagation.max.ms", 100)
      .property("topic.metadata.refresh.fast.interval.ms", 50);
  cluster_->make_topic("job.script");
  cluster_->make_topic("usage.job");
  cluster_->answer_topic("usage.job", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  start();
  Event usage = make_event_value("2");
  usage.kind = "usage.job";
  deliver({make_event("1"), std::make_shared<const Event>(usage), make_event("3")});
  ASSERT_TRUE(outbox_.wait_all_settled(kPatience));
  EXPECT_EQ(outbox_.outcome("1"), Outcome::kAcknowledged) << outbox_.reason("1");
  EXPECT_EQ(outbox_.outcome("2"), Outcome::kRetry);
  EXPECT_EQ(outbox_.outcome("3"), Outcome::kAcknowledged) << outbox_.reason("3");
}

TEST_F(KafkaSinkTest, AProducerThatLibrdkafkaGivesUpIsReplacedAndTheUnsettledAreSentAgain) {
  start();
  ASSERT_EQ(outcome_of(make_event("1")), Outcome::kAcknowledged);
  cluster_->answer_next({RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER});
  deliver(jobs(100, 50));
  ASSERT_TRUE(outbox_.wait_all_settled(kPatience)) << log_.text();
  for (int i = 100; i < 150; ++i) {
    EXPECT_EQ(outbox_.outcome(std::to_string(i)), Outcome::kAcknowledged)
        << outbox_.reason(std::to_string(i));
  }
  EXPECT_EQ(log_.count("KAFKA_FATAL"), 1U) << log_.text();
  EXPECT_THAT(sink_->status_json(), HasSubstr("\"producers_given_up\":1"));
  EXPECT_THAT(sink_->status_json(), HasSubstr("\"resent\":50"));
}

TEST_F(KafkaSinkTest, ASecondProducerThatIsGivenUpSoonWaits) {
  start();
  ASSERT_EQ(outcome_of(make_event("1")), Outcome::kAcknowledged);
  cluster_->answer_next({RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER});
  ASSERT_EQ(outcome_of(make_event("2")), Outcome::kAcknowledged) << outbox_.reason("2");
  cluster_->answer_next({RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER});
  EXPECT_EQ(outcome_of(make_event("3")), Outcome::kRetry);
  EXPECT_THAT(outbox_.reason("3"), HasSubstr("given up by librdkafka"));
  EXPECT_GE(outbox_.settlement("3")->hint.value_or(milliseconds(0)), seconds(20));
  // And what comes meanwhile is not tried.
  EXPECT_EQ(outcome_of(make_event("4")), Outcome::kRetry);
  EXPECT_THAT(sink_->status_json(), HasSubstr("\"producers_given_up\":2"));
}

TEST_F(KafkaSinkTest, AUserWithoutAnyRightMakesANewProducerEveryHalfMinuteOnly) {
  cluster_->answer_next(
      MockCluster::kInitProducerId,
      std::vector<rd_kafka_resp_err_t>(20, RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED));
  // The producer asks for its number at once, so it may be given up before the event comes, which
  // then waits for what is left of the pause. On this clock that is all of it.
  start({"kafka", "lab", log_, still_clock_});
  EXPECT_EQ(outcome_of(make_event("1")), Outcome::kRetry);
  EXPECT_THAT(outbox_.reason("1"), HasSubstr("no right to write"));
  EXPECT_EQ(outbox_.settlement("1")->hint, kProducerPause);
  EXPECT_EQ(outcome_of(make_event("2")), Outcome::kRetry);
  EXPECT_EQ(log_.count("KAFKA_NOT_AUTHORIZED"), 1U) << log_.text();
  EXPECT_FALSE(log_.has("KAFKA_FATAL"));
  EXPECT_THAT(sink_->status_json(), HasSubstr("\"producers_given_up\":1"));
}

TEST_F(KafkaSinkTest, AForgottenProducerIdAndASequenceThatIsThereAlreadyAreNothingToUs) {
  start();
  ASSERT_EQ(outcome_of(make_event("1")), Outcome::kAcknowledged);
  cluster_->answer_next({RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID});
  EXPECT_EQ(outcome_of(make_event("2")), Outcome::kAcknowledged) << outbox_.reason("2");
  cluster_->answer_next({RD_KAFKA_RESP_ERR_DUPLICATE_SEQUENCE_NUMBER});
  EXPECT_EQ(outcome_of(make_event("3")), Outcome::kAcknowledged) << outbox_.reason("3");
  EXPECT_THAT(sink_->status_json(), HasSubstr("\"producers_given_up\":0"));
}

TEST_F(KafkaSinkTest, WithoutIdempotenceWhatTheBrokerLostCountOfIsSentAgain) {
  options_.set("enable_idempotence", false);
  start();
  ASSERT_EQ(outcome_of(make_event("1")), Outcome::kAcknowledged);
  for (const auto error :
       {RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID}) {
    cluster_->answer_next({error});
    EXPECT_EQ(outcome_of(make_event("2")), Outcome::kAcknowledged) << outbox_.reason("2");
  }
  EXPECT_THAT(sink_->status_json(), HasSubstr("\"producers_given_up\":0"));
}

TEST_F(KafkaSinkTest, AnAnswerThatNobodyKnowsIsTriedSomeTimesAndThenADeadLetter) {
  start();
  ASSERT_EQ(outcome_of(make_event("1")), Outcome::kAcknowledged);
  cluster_->answer_next({RD_KAFKA_RESP_ERR_INVALID_CONFIG});
  EXPECT_EQ(outcome_of(make_event("2"), kUnknownAttempts - 1), Outcome::kRetry);
  EXPECT_THAT(outbox_.reason("2"), HasSubstr("INVALID_CONFIG"));
  cluster_->answer_next({RD_KAFKA_RESP_ERR_INVALID_CONFIG});
  EXPECT_EQ(outcome_of(make_event("2"), kUnknownAttempts), Outcome::kRetry);
  EXPECT_EQ(outcome_of(make_event("3")), Outcome::kAcknowledged);
  cluster_->answer_next({RD_KAFKA_RESP_ERR_INVALID_CONFIG});
  EXPECT_EQ(outcome_of(make_event("2"), kUnknownAttempts + 1), Outcome::kRejected);
}

TEST_F(KafkaSinkTest, StartsWithoutABrokerAndDeliversWhenItIsThere) {
  cluster_->down(1);
  start();
  const auto events = jobs(1, 100);
  deliver(events);
  ASSERT_TRUE(log_.wait_for("KAFKA_BROKER_DOWN", 1, kPatience)) << log_.text();
  EXPECT_TRUE(wait_status("\"connection\":\"down\"")) << sink_->status_json();
  EXPECT_TRUE(wait_status("\"in_flight\":100")) << sink_->status_json();
  EXPECT_EQ(outbox_.unsettled(), 100U);
  cluster_->up(1);
  expect_all_once(events);
  EXPECT_TRUE(wait_status("\"connection\":\"up\"")) << sink_->status_json();
  EXPECT_TRUE(wait_status("\"last_error\":null"));
}

TEST_F(KafkaSinkTest, ABrokerThatGoesUnderLoadLosesNothing) {
  start();
  std::vector<std::shared_ptr<const Event>> all;
  for (int round = 0; round < 6; ++round) {
    const auto events = jobs(1000 * (round + 1), 200);
    all.insert(all.end(), events.begin(), events.end());
    deliver(events);
    if (round % 2 == 0) cluster_->down(1);
    if (round % 2 == 1) cluster_->up(1);
  }
  cluster_->up(1);
  expect_all_once(all);
}

TEST_F(KafkaSinkTest, ALeaderThatMovesAndBrokersThatGoLoseNothing) {
  use_brokers(3);
  start();
  std::vector<std::shared_ptr<const Event>> all;
  for (int round = 0; round < 6; ++round) {
    cluster_->lead(kTopic, 0, round % 3 + 1);
    cluster_->down((round + 1) % 3 + 1);
    const auto events = jobs(1000 * (round + 1), 100);
    all.insert(all.end(), events.begin(), events.end());
    deliver(events);
    cluster_->up((round + 1) % 3 + 1);
  }
  expect_all_once(all);
}

TEST_F(KafkaSinkTest, ABrokerThatDoesNotAnswerIsSaidAfterAWhileAndNothingIsSentTwice) {
  options_.set("stalled_after_seconds", 1);
  start();
  ASSERT_EQ(outcome_of(make_event("1")), Outcome::kAcknowledged);
  cluster_->slow(1, 30'000);
  deliver({make_event("2")});
  ASSERT_TRUE(log_.wait_for("KAFKA_STALLED", 1, kPatience)) << log_.text();
  EXPECT_TRUE(wait_status("\"stalled\":true"));
  EXPECT_THAT(log_.last("KAFKA_STALLED")->field("reason"), HasSubstr("does not answer"));
  cluster_->slow(1, 0);
  expect_all_once({make_event("1"), make_event("2")});
  ASSERT_TRUE(log_.wait_for("KAFKA_GOES_ON", 1, kPatience));
  EXPECT_TRUE(wait_status("\"stalled\":false"));
}

TEST_F(KafkaSinkTest, TooFewReplicasForLongAreSaidAsThat) {
  options_.set("stalled_after_seconds", 2).property("retry.backoff.ms", 50);
  start();
  ASSERT_EQ(outcome_of(make_event("1")), Outcome::kAcknowledged);
  cluster_->answer_next(
      std::vector<rd_kafka_resp_err_t>(500, RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS));
  deliver({make_event("2")});
  ASSERT_TRUE(log_.wait_for("KAFKA_STALLED", 1, kPatience)) << log_.text();
  EXPECT_THAT(log_.last("KAFKA_STALLED")->field("reason"), HasSubstr("too few replicas"))
      << sink_->status_json();
  cluster_->forget_answers();
  expect_all_once({make_event("1"), make_event("2")});
}

// ---- an event whose owner was found later

TEST_F(KafkaSinkTest, AnEventWithoutItsBytesIsDelivered) {
  start();
  const auto first = std::make_shared<const Event>(test::make_unverified_event("1"));
  const auto bare =
      std::make_shared<const Event>(test::without_bytes(test::make_owned_event(*first)));
  deliver({first, bare});
  expect_all_once({first, bare});
  const auto messages = cluster_->consume(kTopic);
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_THAT(messages[1].value, HasSubstr("\"replaces\":\"" + first->id + "\""));
  EXPECT_THAT(messages[1].value, Not(HasSubstr("\"text\"")));
}

TEST_F(KafkaSinkTest, WhatSarchivesFormatCannotSayIsAcknowledgedWithoutAMessage) {
  options_.set("format", "sarchive");
  start();
  const auto first = std::make_shared<const Event>(test::make_unverified_event("1"));
  const auto bare =
      std::make_shared<const Event>(test::without_bytes(test::make_owned_event(*first)));
  ASSERT_EQ(outcome_of(first), Outcome::kAcknowledged);
  EXPECT_EQ(outcome_of(bare), Outcome::kAcknowledged);
  EXPECT_EQ(cluster_->consume(kTopic).size(), 1U);
  EXPECT_THAT(sink_->status_json(), HasSubstr("\"left_out\":1"));
}

// ---- too large

TEST_F(KafkaSinkTest, ABatchThatIsTooLargeIsSentOneByOneAndLaterOnesAreSmaller) {
  start();
  ASSERT_EQ(outcome_of(make_event("1")), Outcome::kAcknowledged);
  cluster_->answer_next({RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE});
  auto events = jobs(100, 100);
  deliver(events);
  events.push_back(make_event("1"));
  expect_all_once(events);
  EXPECT_EQ(log_.count("KAFKA_BATCH_REFUSED"), 1U) << log_.text();
  EXPECT_THAT(sink_->status_json(), HasSubstr("\"refused_batches\":1"));
  EXPECT_THAT(sink_->status_json(), Not(HasSubstr("\"batch_limit_bytes\":999488")));
}

TEST_F(KafkaSinkTest, OnlyTheEventThatIsTooLargeByItselfIsCut) {
  start();
  ASSERT_EQ(outcome_of(make_event("1")), Outcome::kAcknowledged);
  const std::string script = "#!/bin/sh\n" + std::string(20'000, 'x') + "\n";
  // The batch, then the first alone.
  cluster_->answer_next(
      {RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE});
  const auto large = make_event("2", script);
  const auto small = make_event("3");
  deliver({large, small});
  expect_all_once({make_event("1"), large, small});
  EXPECT_FALSE(log_.has("KAFKA_BATCH_REFUSED")) << "the batch was not to blame";
  for (const auto& message : cluster_->consume(kTopic)) {
    if (message.header("event-id") == large->id) {
      EXPECT_EQ(message.header("truncated"), "script");
      EXPECT_THAT(message.value, HasSubstr("\"truncated\":true"));
      EXPECT_THAT(message.value, HasSubstr(sha256_hex(script)));
      EXPECT_THAT(message.value, HasSubstr("\"size\":20011"));
      EXPECT_LT(message.value.size(), 11'000U);
    } else {
      EXPECT_EQ(message.header("truncated"), "");
      EXPECT_THAT(message.value, Not(HasSubstr("\"truncated\"")));
    }
  }
  EXPECT_THAT(sink_->status_json(), HasSubstr("\"truncated\":1"));
}

TEST_F(KafkaSinkTest, ItIsCutUntilTheBrokerTakesIt) {
  start();
  cluster_->answer_next(std::vector<rd_kafka_resp_err_t>(3, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE));
  const auto event = make_event("1", std::string(400'000, 'x'));
  ASSERT_EQ(outcome_of(event), Outcome::kAcknowledged) << outbox_.reason("1");
  const auto messages = cluster_->consume(kTopic);
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_LT(messages[0].value.size(), 51'000U);
  EXPECT_GT(messages[0].value.size(), 40'000U);
}

TEST_F(KafkaSinkTest, WhatCannotBeCutToFitIsRejectedWithItsSize) {
  start();
  cluster_->answer_next(std::vector<rd_kafka_resp_err_t>(50, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE));
  auto event = std::make_shared<Event>(*make_event("1"));
  event->job.name = std::string(100'000, 'x');
  EXPECT_EQ(outcome_of(event), Outcome::kRejected);
  EXPECT_THAT(outbox_.reason("1"), HasSubstr("message too large: "));
  cluster_->forget_answers();
  EXPECT_EQ(outcome_of(make_event("2")), Outcome::kAcknowledged);
}

TEST_F(KafkaSinkTest, ATopicThatTakesNoMessageOfAnySizeHoldsThem) {
  start();
  cluster_->answer_next(std::vector<rd_kafka_resp_err_t>(50, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE));
  const auto event = make_event("1", std::string(100'000, 'x'));
  EXPECT_EQ(outcome_of(event), Outcome::kRetry);
  EXPECT_THAT(log_.last("KAFKA_REFUSED")->field("reason"), HasSubstr("max.message.bytes"));
  cluster_->forget_answers();
  EXPECT_EQ(outcome_of(event, 2), Outcome::kAcknowledged);
}

TEST_F(KafkaSinkTest, WithDeadLetterNothingIsCut) {
  options_.set("oversize", "dead_letter");
  start();
  const auto event = make_event("1", std::string(5000, 'x'));
  cluster_->answer_next({RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE});
  EXPECT_EQ(outcome_of(event), Outcome::kRejected);
  EXPECT_THAT(outbox_.reason("1"), HasSubstr("refused by the broker"));
  EXPECT_THAT(outbox_.reason("1"), Not(HasSubstr("xxx")));
}

TEST_F(KafkaSinkTest, OurOwnLimitCutsOnlyWhatExceedsIt) {
  options_.set("message_max_bytes", 10'000);
  options_.set("archive_location", "/archive/{cluster}/{year}/{month}/{day}/{job_id}");
  start();
  const auto large = make_event("2", "#!/bin/sh\n" + std::string(20'000, 'y'));
  deliver({make_event("1"), large, make_event("3")});
  expect_all_once({make_event("1"), large, make_event("3")});
  for (const auto& message : cluster_->consume(kTopic)) {
    EXPECT_LE(message.value.size(), 10'000U);
    if (message.header("event-id") != large->id) continue;
    EXPECT_GT(message.value.size(), 9'000U);
    EXPECT_THAT(message.value, HasSubstr("\"location\":\"/archive/lab/2026/11/21/2\""));
  }
}

TEST_F(KafkaSinkTest, AnEventLargerThanABatchTravelsAlone) {
  start();
  const auto large = make_event("2", std::string(3'000'000, 'z'));
  deliver({make_event("1"), large, make_event("3")});
  expect_all_once({make_event("1"), large, make_event("3")});
  EXPECT_THAT(sink_->status_json(), HasSubstr("\"truncated\":0"));
}

TEST_F(KafkaSinkTest, ATimeThatTheTopicDoesNotTakeIsReplacedByTheTimeOfSending) {
  start();
  ASSERT_EQ(outcome_of(make_event("1")), Outcome::kAcknowledged);
  const std::int64_t before = system_clock().now().nanoseconds / 1'000'000;
  cluster_->answer_next({RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP});
  const auto event = make_event("2");
  ASSERT_EQ(outcome_of(event), Outcome::kAcknowledged) << outbox_.reason("2");
  const auto messages = cluster_->consume(kTopic);
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_GE(messages[1].timestamp_ms, before);
  EXPECT_EQ(messages[1].value, event_json(*event)) << "the event keeps its own time";
  cluster_->answer_next({RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP, RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP});
  EXPECT_EQ(outcome_of(make_event("3")), Outcome::kRejected);
  EXPECT_THAT(outbox_.reason("3"), HasSubstr("INVALID_TIMESTAMP"));
}

TEST_F(KafkaSinkTest, ATinyQueueOfLibrdkafkaIsWaitedForAndNothingIsDropped) {
  options_.property("queue.buffering.max.messages", 7);
  start();
  const auto events = jobs(1, 300);
  deliver(events);
  expect_all_once(events);
}

TEST_F(KafkaSinkTest, BatchesThatComeBeforeTheLastIsSettledAreStoredInTheirOrder) {
  EXPECT_GT(KafkaSink::create(options_.config(), context_).value()->batches_under_way(), 1U);
  start();
  std::vector<std::shared_ptr<const Event>> all;
  for (int batch = 0; batch < 8; ++batch) {
    const auto events = jobs(1000 + batch * 150, 150);
    all.insert(all.end(), events.begin(), events.end());
    deliver(events);  // none of them waits for the one before
  }
  expect_all_once(all);
  const auto stored = cluster_->consume(kTopic);
  ASSERT_EQ(stored.size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    ASSERT_EQ(stored[i].header("event-id"), all[i]->id) << i;
}

TEST_F(KafkaSinkTest, SeveralWorkersAtOnceSettleEachEventOnce) {
  start();
  std::vector<std::vector<std::shared_ptr<const Event>>> portions;
  std::vector<std::shared_ptr<const Event>> all;
  for (int i = 0; i < 8; ++i) {
    portions.push_back(jobs(1000 * (i + 1), 100));
    all.insert(all.end(), portions.back().begin(), portions.back().end());
  }
  {
    std::vector<std::jthread> workers;
    for (const auto& portion : portions) {
      workers.emplace_back([&] { deliver(portion); });
    }
  }
  expect_all_once(all);
}

// ---- stopping

TEST_F(KafkaSinkTest, StoppingFinishesWhatIsUnderWay) {
  start();
  const auto events = jobs(1, 400);
  deliver(events);
  sink_->stop(std::chrono::steady_clock::now() + kPatience);
  EXPECT_EQ(outbox_.unsettled(), 0U);
  expect_all_once(events);
}

TEST_F(KafkaSinkTest, StoppingWithoutABrokerLeavesAllAsRetryWithinItsTime) {
  start();
  ASSERT_EQ(outcome_of(make_event("1")), Outcome::kAcknowledged);
  cluster_->down(1);
  // More than one chunk.
  std::vector<std::shared_ptr<const Event>> events;
  for (int i = 100; i < 130; ++i)
    events.push_back(make_event(std::to_string(i), std::string(100'000, 'x')));
  deliver(events);
  ASSERT_TRUE(wait_status("\"connection\":\"down\"")) << sink_->status_json();
  const auto began = std::chrono::steady_clock::now();
  sink_->stop(began + seconds(2));
  // What is left undone at the deadline, core gives up waiting for.
  EXPECT_LT(std::chrono::steady_clock::now() - began, kPatience);
  EXPECT_EQ(outbox_.unsettled(), 0U);
  for (const auto& event : events) {
    EXPECT_EQ(outbox_.outcome(event->job.id), Outcome::kRetry) << event->job.id;
    EXPECT_EQ(outbox_.reason(event->job.id), "stopped before the broker answered");
  }
  // A sink that was stopped takes nothing.
  deliver({make_event("999")});
  EXPECT_EQ(outbox_.outcome("999"), Outcome::kRetry);
  // After a restart they are stored, once each.
  cluster_->up(1);
  start();
  deliver(events);
  events.push_back(make_event("1"));
  expect_all_once(events);
}

TEST_F(KafkaSinkTest, AMessageOutlivesTheProducerThatItWasGivenTo) {
  // Messages are not copied, and a request that was purged may still be read from until its handle
  // is gone.
  options_.set("compression", "none");
  start();
  ASSERT_EQ(outcome_of(make_event("1")), Outcome::kAcknowledged);
  const int with_producer = rd_kafka_thread_cnt();
  cluster_->slow(1, 30'000);
  std::atomic<int> at_its_end{-1};
  {
    const auto event =
        std::make_shared<const Event>(make_event_value("2", std::string(100'000, 'x')));
    deliver({std::shared_ptr<const Event>(
        event.get(), [event, &at_its_end](const Event*) { at_its_end = rd_kafka_thread_cnt(); })});
  }
  ASSERT_TRUE(wait_status("\"in_flight\":1")) << sink_->status_json();
  EXPECT_EQ(at_its_end, -1);
  sink_->stop(std::chrono::steady_clock::now());
  EXPECT_GE(at_its_end, 0);
  EXPECT_LT(at_its_end, with_producer) << "it went while the producer's threads were there";
  EXPECT_EQ(outbox_.outcome("2"), Outcome::kRetry);
}

TEST_F(KafkaSinkTest, ADeadlineThatIsOverStopsAtOnce) {
  start();
  cluster_->down(1);
  deliver(jobs(1, 10));
  sink_->stop(std::chrono::steady_clock::now() - seconds(1));
  EXPECT_EQ(outbox_.unsettled(), 0U);
}

// ---- check, setup, status, log

TEST_F(KafkaSinkTest, CheckIsContentWithAReachableTopic) {
  const auto sink = KafkaSink::create(options_.config(), context_);
  ASSERT_TRUE(sink);
  const auto checked = (*sink)->check();
  EXPECT_TRUE(checked) << checked.error().message();
}

TEST_F(KafkaSinkTest, CheckSaysHowToMakeATopicThatIsMissing) {
  cluster_->answer_topic(kTopic, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  const auto sink = KafkaSink::create(options_.config(), context_);
  ASSERT_TRUE(sink);
  const auto checked = (*sink)->check();
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().kind(), ErrorKind::kPermanent);
  EXPECT_THAT(checked.error().message(),
              HasSubstr("topic jobs: the topic does not exist; make it with: kafka-topics.sh"));
}

TEST_F(KafkaSinkTest, CheckFindsAMissingTopicWhateverKindsTheSinkGets) {
  options_ = {};
  options_.set("brokers", cluster_->brokers().c_str()).set("topic", "other");
  const Value all{std::string("*"), {"kafka.toml", 1}};
  options_.set("kinds", test::ConfigBuilder::Data(std::vector<Value>{all}));
  cluster_->answer_topic("other", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  const auto sink = KafkaSink::create(options_.config(), context_);
  ASSERT_TRUE(sink);
  const auto checked = (*sink)->check();
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().message(), HasSubstr("topic other: the topic does not exist"));
}

TEST_F(KafkaSinkTest, CheckSaysThatAPartitionHasNoLeader) {
  use_brokers(1, 2);
  cluster_->lead(kTopic, 1, -1);
  const auto sink = KafkaSink::create(options_.config(), context_);
  ASSERT_TRUE(sink);
  const auto checked = (*sink)->check();
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().message(), HasSubstr("topic jobs: partition 1 has no leader"));
}

TEST_F(KafkaSinkTest, CheckSaysThatTheUserMayWriteNowhere) {
  cluster_->answer_next(MockCluster::kInitProducerId,
                        {RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED});
  const auto sink = KafkaSink::create(options_.config(), context_);
  ASSERT_TRUE(sink);
  const auto checked = (*sink)->check();
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().message(), HasSubstr("CLUSTER_AUTHORIZATION_FAILED"));
}

TEST_F(KafkaSinkTest, CheckOfABrokerThatIsDownEndsAndIsNoFaultOfTheConfiguration) {
  cluster_->down(1);
  const auto sink = KafkaSink::create(options_.config(), context_);
  ASSERT_TRUE(sink);
  const auto checked = (*sink)->check();
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().kind(), ErrorKind::kTransient) << checked.error().message();
  EXPECT_THAT(checked.error().message(), HasSubstr("127.0.0.1:"));
}

TEST_F(KafkaSinkTest, SetupPrintsHowToMakeTheTopics) {
  options_ = {};
  options_.set("brokers", "b1:9092,b2:9092").set("topic", "hpc.{cluster}.{kind}");
  options_.set("kinds", std::vector<Value>{{std::string("job.script"), {}},
                                           {std::string("usage.job"), {}},
                                           {std::string("x.*"), {}}});
  const auto sink = KafkaSink::create(options_.config(), context_);
  ASSERT_TRUE(sink);
  EXPECT_EQ(*(*sink)->setup(true),
            "kafka-topics.sh --bootstrap-server b1:9092 --create --topic hpc.lab.job.script "
            "--partitions 3 "
            "--config max.message.bytes=8388608 --config compression.type=producer "
            "--config cleanup.policy=delete\n"
            "kafka-topics.sh --bootstrap-server b1:9092 --create --topic hpc.lab.usage.job "
            "--partitions 3 "
            "--config max.message.bytes=8388608 --config compression.type=producer "
            "--config cleanup.policy=delete\n");
}

TEST_F(KafkaSinkTest, StatusTellsTheLibraryTheConnectionAndEachBroker) {
  start();
  ASSERT_EQ(outcome_of(make_event("1")), Outcome::kAcknowledged);
  ASSERT_TRUE(wait_status("\"state\":\"UP\"")) << sink_->status_json();
  const std::string status = sink_->status_json();
  EXPECT_THAT(status, HasSubstr("\"librdkafka\":\"" + std::string(rd_kafka_version_str()) + "\""));
  EXPECT_THAT(status, HasSubstr("\"connection\":\"up\""));
  EXPECT_THAT(status, HasSubstr("\"acknowledged\":1"));
  EXPECT_THAT(status, HasSubstr("rtt_p99_ms"));
  EXPECT_THAT(status, HasSubstr("\"idempotence_state\":\"Assigned\""));
}

TEST_F(KafkaSinkTest, AMissingSecretRefusesTheStartInWords) {
  options_.set("security_protocol", "sasl_plaintext")
      .set("sasl_mechanism", "PLAIN")
      .set("sasl_username", "u");
  options_.set("sasl_password_file", "/nonexistent/password");
  const auto sink = KafkaSink::create(options_.config(), context_);
  ASSERT_FALSE(sink);
  EXPECT_EQ(sink.error().kind(), ErrorKind::kInvalidConfig);
  EXPECT_THAT(sink.error().message(), HasSubstr("/nonexistent/password"));
}

TEST_F(KafkaSinkTest, WhatLibrdkafkaRefusesAsAWholeRefusesTheStartWithItsWords) {
  options_.set("tls_ca_file", "/nonexistent/ca.pem");
  const auto sink = KafkaSink::create(options_.config(), context_);
  ASSERT_TRUE(sink) << sink.error().message();
  const auto started = (*sink)->start();
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().kind(), ErrorKind::kInvalidConfig);
  EXPECT_THAT(started.error().message(), HasSubstr("ssl.ca.location"));
}

TEST_F(KafkaSinkTest, NoPasswordAndNoScriptIsEverLogged) {
  const test::TempDir directory;
  const std::string file = directory.write("password", "geheim-4711\n");
  std::filesystem::permissions(file, std::filesystem::perms::owner_read);
  options_.set("security_protocol", "sasl_plaintext")
      .set("sasl_mechanism", "PLAIN")
      .set("sasl_username", "u");
  options_.set("sasl_password_file", file.c_str());
  options_.property("debug", "all");
  start();
  deliver({make_event("1", "#!/bin/sh\n# streng-vertraulich\n", {"SECRET=auch-dies"})});
  // The mock cluster has no login: some complaint comes.
  EXPECT_TRUE(wait_status("\"connection\":\"down\"")) << log_.text();
  sink_->stop(std::chrono::steady_clock::now() + milliseconds(100));
  for (const char* secret : {"geheim-4711", "streng-vertraulich", "auch-dies"}) {
    EXPECT_THAT(log_.text(), Not(HasSubstr(secret)));
    EXPECT_THAT(sink_->status_json(), Not(HasSubstr(secret)));
    EXPECT_THAT(outbox_.reason("1"), Not(HasSubstr(secret)));
  }
  EXPECT_TRUE(log_.has("KAFKA_CLEAR_PASSWORD"));
}

TEST_F(KafkaSinkTest, APasswordFileThatChangesAfterAFailedLoginIsReadAgain) {
  const test::TempDir directory;
  const std::string file = directory.write("password", "old\n");
  std::filesystem::permissions(
      file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  options_.set("security_protocol", "sasl_plaintext")
      .set("sasl_mechanism", "PLAIN")
      .set("sasl_username", "u");
  options_.set("sasl_password_file", file.c_str());
  start();
  deliver({make_event("1")});
  ASSERT_TRUE(wait_status("\"connection\":\"down\"")) << log_.text();
  directory.write("password", "a new one\n");
  EXPECT_TRUE(log_.wait_for("KAFKA_CREDENTIALS", 1, kPatience)) << log_.text();
  sink_->stop(std::chrono::steady_clock::now() + milliseconds(100));
  EXPECT_EQ(outbox_.outcome("1"), Outcome::kRetry);
}

// librdkafka 2.0 gives it up, 2.8 sends it once more itself.
TEST_F(KafkaSinkTest, AMessageThatTheBrokerFoundCorruptIsSentOnceMore) {
  start();
  cluster_->answer_next({RD_KAFKA_RESP_ERR_INVALID_MSG});
  if (outcome_of(make_event("1")) == Outcome::kRetry) {
    EXPECT_THAT(outbox_.reason("1"), HasSubstr("INVALID_MSG"));
  } else {
    EXPECT_EQ(outbox_.outcome("1"), Outcome::kAcknowledged) << outbox_.reason("1");
  }
  EXPECT_EQ(outcome_of(make_event("2")), Outcome::kAcknowledged) << outbox_.reason("2");
}

TEST_F(KafkaSinkTest, AMockClusterOfTheConfigurationIsSaidLoudly) {
  options_ = {};
  options_.set("brokers", "ignored:1").set("topic", kTopic).property("test.mock.num.brokers", 1);
  start();
  EXPECT_TRUE(log_.has("KAFKA_MOCK"));
}

}  // namespace
}  // namespace scriptorium::kafka
