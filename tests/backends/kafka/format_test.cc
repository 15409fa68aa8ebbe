#include "backends/kafka/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/base/sha256.h"
#include "core/base/text.h"
#include "tests/backends/kafka/config_builder.h"
#include "tests/support/event_factory.h"

namespace scriptorium::kafka {
namespace {

using Json = nlohmann::ordered_json;
using test::make_event_value;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class KafkaFormatTest : public ::testing::Test {
 protected:
  KafkaFormatTest() { options_.set("brokers", "b1").set("topic", "{cluster}.{kind}"); }

  Message render(const Event& event) {
    const KafkaConfig config = options_.config();
    return Formatter(config).render(event);
  }
  std::optional<Message> cut(const Event& event, std::size_t limit) {
    const KafkaConfig config = options_.config();
    auto message = Formatter(config).render_cut(event, limit);
    if (message) {
      EXPECT_LE(message->size(), limit);
    }
    return message;
  }

  test::ConfigBuilder options_;
};

TEST_F(KafkaFormatTest, TheEventIsTheValue) {
  const Event event = make_event_value("4711");
  const Message message = render(event);
  EXPECT_EQ(message.topic, "lab.job.script");
  EXPECT_EQ(message.key, "lab/4711");
  EXPECT_EQ(message.value, event_json(event));
  EXPECT_THAT(message.headers,
              ElementsAre(Pair("content-type", "application/json"),
                          Pair("schema", "scriptorium.event/1"), Pair("event-id", event.id)));
  EXPECT_EQ(message.timestamp_ms, 1795224382364);
  EXPECT_EQ(message.truncated, "");
}

TEST_F(KafkaFormatTest, WithoutHeadersThereAreNone) {
  options_.set("headers", false);
  EXPECT_TRUE(render(make_event_value("1")).headers.empty());
  options_.set("format", "sarchive");
  EXPECT_TRUE(render(make_event_value("1")).headers.empty());
}

TEST_F(KafkaFormatTest, AnEmptyKeyIsNoKey) {
  options_.set("key", "");
  EXPECT_FALSE(render(make_event_value("1")).key);
}

TEST_F(KafkaFormatTest, TopicsAreNamesThatBrokersTake) {
  Event event = make_event_value("1");
  event.kind = "usage.job";
  EXPECT_EQ(render(event).topic, "lab.usage.job");
  options_ = {};
  options_.set("brokers", "b1").set("topic", "x-{scheduler}");
  event.scheduler = "my sched!\xc3\xa9";
  EXPECT_EQ(render(event).topic, "x-my_sched___");
  event.scheduler = std::string(400, 's');
  EXPECT_EQ(render(event).topic.size(), 249U);
}

TEST_F(KafkaFormatTest, ATimeBefore1970IsTheTimeOfSending) {
  Event event = make_event_value("1");
  event.time = Timestamp{-5'000'000'000};
  EXPECT_EQ(render(event).timestamp_ms, 0);
}

// ---- SArchive

TEST_F(KafkaFormatTest, SarchiveIsByteForByteWhatItsConsumersRead) {
  options_.set("format", "sarchive");
  Event event = make_event_value(
      "4711", "#!/bin/bash\necho \"Grü\xc3\x9f\x65\"\t\\\x01\x7f\n",
      {"HOME=/home/alice", "OPTS=a=b=c", " PAD = x ", "NOTHING", "EMPTY=", "A=1", "A=2"});
  const Message message = render(event);
  EXPECT_EQ(
      message.value,
      R"({"id":"4711","timestamp":"2026-11-21T01:26:22.366114Z","cluster":"lab",)"
      R"("script":"#!/bin/bash\necho \"Grüße\"\t\\\u0001)"
      "\x7f"
      R"(\n","environment":{"HOME":"/home/alice","OPTS":"a=b=c"," PAD ":" x ","NOTHING":"","EMPTY":"","A":"2"}})");
  EXPECT_THAT(message.headers,
              ElementsAre(Pair("content-type", "application/json"), Pair("event-id", event.id)));
}

TEST_F(KafkaFormatTest, SarchiveHasNoEnvironmentWhereNoneIsKnownAndItsScriptIsLossy) {
  options_.set("format", "sarchive");
  Event event = make_event_value("1",
                                 "a\xff\xfe"
                                 "b\n",
                                 {});
  event.captured_at = Timestamp{1795224382LL * 1'000'000'000};
  EXPECT_EQ(render(event).value,
            "{\"id\":\"1\",\"timestamp\":\"2026-11-21T01:26:22Z\",\"cluster\":\"lab\","
            "\"script\":\"a\xef\xbf\xbd\xef\xbf\xbd"
            "b\\n\",\"environment\":null}");
}

TEST_F(KafkaFormatTest, SarchiveTakesATorqueJobsRecordsByTheirFilesNames) {
  options_.set("format", "sarchive");
  Event event = make_event_value("123.server.dom", "#!/bin/sh\n", {});
  event.scheduler = "torque";
  event.files.push_back(test::make_file("123.server.dom.jb", "<job/>\n"));
  EXPECT_THAT(render(event).value, HasSubstr(R"("environment":{"123.server.dom.jb":"<job/>\n"}})"));
}

// As it comes from an archive that keeps script and environment alone.
TEST_F(KafkaFormatTest, SarchiveSaysThatATorqueJobsRecordsAreMissingInsteadOfGivingEmptyOnes) {
  options_.set("format", "sarchive");
  Event event = make_event_value("123.server.dom", "#!/bin/sh\n", {});
  event.scheduler = "torque";
  event.files.push_back(test::make_file("record", "<job/>\n"));
  const Message whole = render(event);
  EXPECT_EQ(whole.truncated, "");
  event.files.back().bytes = nullptr;
  const Message message = render(event);
  EXPECT_THAT(message.value, HasSubstr(R"("script":"#!/bin/sh\n","environment":null})"));
  EXPECT_EQ(message.truncated, "record");
  EXPECT_THAT(message.headers, testing::Contains(Pair("truncated", "record")));

  // Nothing is missing where the variables are known.
  event = make_event_value("123.server.dom", "#!/bin/sh\n", {"A=1"});
  event.files.push_back(test::make_file("record", "<job/>\n"));
  event.files.back().bytes = nullptr;
  EXPECT_EQ(render(event).truncated, "");
  // The event itself has no records in it, only their sizes and hashes.
  options_ = {};
  options_.set("brokers", "b1").set("topic", "lab.{kind}");
  EXPECT_EQ(render(event).value, event_json(event));
  EXPECT_EQ(render(event).truncated, "");
}

// ---- CloudEvents

TEST_F(KafkaFormatTest, CloudEventsInBinaryModeHaveTheirAttributesInHeaders) {
  options_.set("format", "cloudevents");
  Event event = make_event_value("4711");
  event.host = "ctl 1";
  const Message message = render(event);
  EXPECT_EQ(message.value, event_json(event));
  EXPECT_THAT(
      message.headers,
      ElementsAre(Pair("content-type", "application/json"), Pair("schema", "scriptorium.event/1"),
                  Pair("event-id", event.id), Pair("ce_specversion", "1.0"),
                  Pair("ce_id", event.id), Pair("ce_source", "/cluster/lab/slurm/ctl%201"),
                  Pair("ce_type", "scriptorium.job.script.v1"),
                  Pair("ce_time", "2026-11-21T01:26:22.364Z"), Pair("ce_subject", "4711"),
                  Pair("ce_dataschema", "https://scriptorium.invalid/schema/event-1.schema.json"),
                  Pair("ce_partitionkey", "lab/4711")));
}

TEST_F(KafkaFormatTest, CloudEventsInStructuredModeAreOneObject) {
  options_.set("format", "cloudevents").set("cloudevents_mode", "structured");
  const Event event = make_event_value("4711");
  const Message message = render(event);
  EXPECT_EQ(
      message.value,
      R"({"specversion":"1.0","id":")" + event.id +
          R"(","source":"/cluster/lab/slurm/ctl1","type":"scriptorium.job.script.v1",)"
          R"("time":"2026-11-21T01:26:22.364Z","subject":"4711",)"
          R"("dataschema":"https://scriptorium.invalid/schema/event-1.schema.json","partitionkey":"lab/4711",)"
          R"("datacontenttype":"application/json","data":)" +
          event_json(event) + "}");
  EXPECT_THAT(message.headers, ElementsAre(Pair("content-type", "application/cloudevents+json"),
                                           Pair("event-id", event.id)));
  EXPECT_TRUE(Json::accept(message.value));
}

TEST_F(KafkaFormatTest, CloudEventsLeaveOutWhatIsEmpty) {
  options_.set("format", "cloudevents").set("headers", false).set("key", "");
  Event event = make_event_value("");
  for (const auto& [name, value] : render(event).headers) {
    EXPECT_NE(name, "ce_subject");
    EXPECT_NE(name, "ce_partitionkey");
    EXPECT_FALSE(value.empty()) << name;
  }
}

// ---- cutting

TEST_F(KafkaFormatTest, ACutScriptEndsBetweenCharactersAndKeepsTheHashOfTheWhole) {
  options_.set("archive_location", "/a/{year}{month}{day}/{job_id}-{event_id}");
  std::string script;
  for (int i = 0; i < 3000; ++i) script += "\xe2\x82\xac";  // three bytes each
  const Event event = make_event_value("4711", script);
  for (std::size_t limit = 3000; limit < 3006; ++limit) {
    const auto message = cut(event, limit);
    ASSERT_TRUE(message) << limit;
    EXPECT_EQ(message->truncated, "script");
    const Json json = Json::parse(message->value);
    const std::string text = json["script"]["text"];
    EXPECT_TRUE(is_utf8(text));
    EXPECT_EQ(text.size() % 3, 0U);
    EXPECT_GT(message->size() + 16, limit) << "more would have fitted";
    EXPECT_EQ(script.substr(0, text.size()), text);
    EXPECT_EQ(json["script"]["truncated"], true);
    EXPECT_EQ(json["script"]["sha256"], sha256_hex(script));
    EXPECT_EQ(json["script"]["size"], 9000);
    EXPECT_EQ(json["script"]["location"], "/a/20261121/4711-" + event.id);
    EXPECT_EQ(json["environment"]["HOME"], "/home/alice");
    EXPECT_FALSE(json.contains("environment_truncated"));
    EXPECT_THAT(message->headers, ::testing::Contains(Pair("truncated", "script")));
  }
}

TEST_F(KafkaFormatTest, CharactersThatJsonWritesLongerAreCountedAsThat) {
  const Event event = make_event_value("1", std::string(5000, '\x01') + std::string(5000, '"'));
  const auto message = cut(event, 4000);
  ASSERT_TRUE(message);
  EXPECT_GT(message->size(), 3900U);
}

TEST_F(KafkaFormatTest, AScriptThatIsNotUtf8IsCutToo) {
  const std::string script = "#!/bin/sh\n\xff\xfe" + std::string(9000, 'x');
  const auto message = cut(make_event_value("1", script), 4000);
  ASSERT_TRUE(message);
  const Json json = Json::parse(message->value);
  EXPECT_EQ(json["script"]["encoding"], "base64");
  const auto decoded = base64_decode(json["script"]["text"].get<std::string>());
  ASSERT_TRUE(decoded);
  EXPECT_EQ(script.substr(0, decoded->size()), *decoded);
  EXPECT_GT(decoded->size(), 1000U);
}

TEST_F(KafkaFormatTest, AnEnvironmentThatAloneIsTooLargeLosesItsLargestVariables) {
  const Event event =
      make_event_value("1", "#!/bin/sh\nexit 0\n",
                       {"HOME=/home/alice", "BIG=" + std::string(50'000, 'b'), "LANG=C", "ODD"});
  const auto message = cut(event, 10'000);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->truncated, "environment");
  const Json json = Json::parse(message->value);
  EXPECT_EQ(json["environment"].dump(), R"({"HOME":"/home/alice","LANG":"C","ODD":""})");
  EXPECT_EQ(json["environment_truncated"], true);
  EXPECT_GT(json["environment_size"], 50'000);
  EXPECT_EQ(json["script"]["text"], "#!/bin/sh\nexit 0\n");
  EXPECT_FALSE(json["script"].contains("truncated"));
}

TEST_F(KafkaFormatTest, BothAreCutWhereBothAreTooLarge) {
  const Event event =
      make_event_value("1", std::string(100'000, 's'), {"A=" + std::string(60'000, 'a'), "B=1"});
  const auto message = cut(event, 10'000);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->truncated, "script,environment");
  const Json json = Json::parse(message->value);
  EXPECT_EQ(json["environment"].dump(), R"({"B":"1"})");
  EXPECT_EQ(json["script"]["truncated"], true);
  EXPECT_GT(message->size(), 9'900U);
}

TEST_F(KafkaFormatTest, WhatCannotBeMadeSmallerIsNotMade) {
  EXPECT_FALSE(cut(make_event_value("1"), 300));
  Event named = make_event_value("1");
  named.job.name = std::string(4096, 'n');
  EXPECT_FALSE(cut(named, 4000));
  Event bare = make_event_value("1");
  bare.files.clear();
  bare.environment_format = EnvironmentFormat::kNone;
  EXPECT_FALSE(cut(bare, 100));
}

TEST_F(KafkaFormatTest, EveryFormatCanBeCut) {
  const Event event =
      make_event_value("1", std::string(100'000, 's'), {"A=" + std::string(60'000, 'a'), "B=1"});
  for (const char* format : {"sarchive", "cloudevents"}) {
    options_ = {};
    options_.set("brokers", "b1").set("topic", "t").set("format", format);
    const auto message = cut(event, 10'000);
    ASSERT_TRUE(message) << format;
    EXPECT_TRUE(Json::accept(message->value)) << format;
    EXPECT_THAT(message->headers, ::testing::Contains(Pair("truncated", "script,environment")));
  }
  options_.set("cloudevents_mode", "structured");
  const auto message = cut(event, 10'000);
  ASSERT_TRUE(message);
  EXPECT_EQ(Json::parse(message->value)["data"]["script"]["truncated"], true);
}

// ---- an event whose owner was found later

TEST_F(KafkaFormatTest, ALateOwnersEventIsAMessageAsAnyOther) {
  const Event owned = test::make_owned_event(test::make_unverified_event("4711"));
  const Message message = render(owned);
  EXPECT_EQ(message.key, "lab/4711");
  EXPECT_EQ(message.value, event_json(owned));
  EXPECT_EQ(Json::parse(message.value)["replaces"], *owned.replaces);
  EXPECT_THAT(message.headers, ::testing::Contains(Pair("event-id", owned.id)));
}

TEST_F(KafkaFormatTest, WithoutItsBytesAnEventHasNoTexts) {
  const Event bare =
      test::without_bytes(test::make_owned_event(test::make_unverified_event("4711")));
  for (const char* format : {"event", "cloudevents"}) {
    options_ = {};
    options_.set("brokers", "b1").set("topic", "t").set("format", format);
    const KafkaConfig config = options_.config();
    EXPECT_TRUE(Formatter(config).has_a_message(bare)) << format;
    const Json json = Json::parse(render(bare).value);
    EXPECT_EQ(json["replaces"], *bare.replaces) << format;
    EXPECT_EQ(json["script"]["sha256"], bare.files.front().sha256) << format;
    EXPECT_FALSE(json["script"].contains("text")) << format;
    EXPECT_FALSE(json.contains("environment")) << format;
  }
}

// An empty text would be a script that nobody submitted.
TEST_F(KafkaFormatTest, CuttingAnEventMakesNoTextWhereThereAreNoBytes) {
  Event event = make_event_value("1", "#!/bin/sh\n", {"A=" + std::string(20'000, 'a'), "B=1"});
  event.files.front().bytes = nullptr;  // the script
  const auto message = cut(event, 4000);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->truncated, "environment");
  const Json json = Json::parse(message->value);
  EXPECT_FALSE(json["script"].contains("text"));
  EXPECT_EQ(json["environment"].dump(), R"({"B":"1"})");
  EXPECT_FALSE(cut(test::without_bytes(event), 300));
}

TEST_F(KafkaFormatTest, SarchivesConsumersNeverGetAJobWithAnEmptyScriptForALostOne) {
  options_.set("format", "sarchive");
  const KafkaConfig config = options_.config();
  const Formatter formatter(config);
  const Event owned = test::make_owned_event(test::make_unverified_event("4711"));
  EXPECT_TRUE(formatter.has_a_message(owned));
  EXPECT_EQ(Json::parse(formatter.render(owned).value)["script"], test::kScript);
  EXPECT_FALSE(formatter.has_a_message(test::without_bytes(owned)));
  EXPECT_TRUE(formatter.has_a_message(make_event_value("1")));
}

TEST_F(KafkaFormatTest, TheSizeIsNeverLessThanWhatIsSent) {
  options_.set("format", "cloudevents");
  const Message message = render(make_event_value("1"));
  std::size_t bytes = message.value.size() + message.key->size();
  for (const auto& [name, value] : message.headers) bytes += name.size() + value.size();
  EXPECT_GT(message.size(), bytes);
}

}  // namespace
}  // namespace scriptorium::kafka
