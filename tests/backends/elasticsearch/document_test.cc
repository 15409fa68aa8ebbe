#include "backends/elasticsearch/document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "backends/elasticsearch/bulk.h"
#include "core/base/gzip.h"
#include "core/base/text.h"
#include "tests/support/event_factory.h"

namespace scriptorium::elasticsearch {
namespace {

using OrderedJson = nlohmann::ordered_json;
using namespace std::string_literals;

class DocumentTest : public ::testing::Test {
 protected:
  DocumentTest() { config_.index_name = *IndexName::parse(IndexName::kDefault); }

  // The document, and the action before it in action_. Names that stand twice are a failure.
  OrderedJson render(const Event& event) {
    std::string body;
    cuts_ = append_document(event, config_, replacing_, body);
    EXPECT_TRUE(body.ends_with('\n'));
    EXPECT_EQ(std::ranges::count(body, '\n'), 2);
    const std::size_t line = body.find('\n');
    action_ = OrderedJson::parse(body.substr(0, line));
    std::vector<std::set<std::string>> names;
    return OrderedJson::parse(body.substr(line + 1),
                              [&names](int, OrderedJson::parse_event_t what, OrderedJson& value) {
                                if (what == OrderedJson::parse_event_t::object_start)
                                  names.emplace_back();
                                if (what == OrderedJson::parse_event_t::object_end)
                                  names.pop_back();
                                if (what == OrderedJson::parse_event_t::key) {
                                  EXPECT_TRUE(names.back().insert(value.get<std::string>()).second)
                                      << value << " stands there twice";
                                }
                                return true;
                              });
  }

  ElasticsearchConfig config_;
  Replacing replacing_ = Replacing::kInPlace;
  Cuts cuts_;
  OrderedJson action_;
};

TEST_F(DocumentTest, IsTheEventWithItsTimeInFront) {
  const auto event = test::make_event("4711", "#!/bin/sh\necho \"a\\b\"\t\x01\n",
                                      {"HOME=/home/alice", "A=b=c", "EMPTY="});
  const OrderedJson document = render(*event);
  EXPECT_EQ(document["@timestamp"], document["time"]);
  OrderedJson rest = document;
  rest.erase("@timestamp");
  EXPECT_EQ(OrderedJson::parse(rest.dump()).flatten().dump(), [&] {
    // The members' order differs; nothing else does.
    const OrderedJson expected = OrderedJson::parse(event_json(*event));
    OrderedJson ordered = OrderedJson::object();
    for (const auto& [key, value] : rest.items()) ordered[key] = expected.at(key);
    EXPECT_EQ(expected.size(), rest.size());
    ordered["script"] = OrderedJson::object();
    for (const auto& [key, value] : rest["script"].items())
      ordered["script"][key] = expected["script"].at(key);
    return ordered.flatten().dump();
  }());
  EXPECT_EQ(action_["create"]["_id"], event->id);
  EXPECT_EQ(action_["create"]["_index"], "scriptorium-job-2026.11");
  EXPECT_FALSE(cuts_.script);
  EXPECT_FALSE(cuts_.environment);
}

TEST_F(DocumentTest, IsTheSameAtEveryAttempt) {
  const auto event = test::make_event("4711");
  std::string first;
  std::string second;
  append_document(*event, config_, Replacing::kInPlace, first);
  append_document(*event, config_, Replacing::kInPlace, second);
  EXPECT_EQ(first, second);
}

TEST_F(DocumentTest, CutsALongScriptAtACharacterAndSaysSo) {
  config_.script_max_bytes = 1024;
  const OrderedJson document =
      render(*test::make_event("1", "#!/bin/sh\n" + std::string(1013, 'x') + "\u20ac and more"));
  EXPECT_EQ(document["script"]["text"].get<std::string>().size(), 1023U);
  EXPECT_EQ(document["script"]["truncated"], true);
  EXPECT_EQ(document["script"]["size"], 1035);
  EXPECT_TRUE(cuts_.script);
}

TEST_F(DocumentTest, MakesBytesThatAreNotUtf8SearchableAndKeepsThem) {
  const std::string script = "#!/bin/sh\n# caf\xe9\n"s;
  const OrderedJson document = render(*test::make_event("1", script));
  EXPECT_EQ(document["script"]["text"], "#!/bin/sh\n# caf\ufffd\n");
  EXPECT_EQ(document["script"]["encoding"], "base64");
  EXPECT_EQ(document["script"]["raw"], base64_encode(script));
  EXPECT_FALSE(document["script"].contains("truncated"));
}

TEST_F(DocumentTest, CutsBytesThatAreNotUtf8Too) {
  config_.script_max_bytes = 1024;
  const OrderedJson document = render(*test::make_event("1", std::string(5000, '\xe9')));
  EXPECT_LE(document["script"]["text"].get<std::string>().size(), 1024U);
  EXPECT_EQ(base64_decode(document["script"]["raw"].get<std::string>())->size(), 1024U);
  EXPECT_EQ(document["script"]["truncated"], true);
}

TEST_F(DocumentTest, CutsLongValuesAndLeavesOutNamesThatServersRefuse) {
  const OrderedJson document =
      render(*test::make_event("1", "x",
                               {"LONG=" + std::string(7999, 'v') + "\u20ac", "=odd",
                                std::string(600, 'N') + "=1", "GOOD=1", "", "NOVALUE"}));
  const OrderedJson& environment = document["environment"];
  EXPECT_EQ(environment["LONG"].get<std::string>(), std::string(7999, 'v'));
  EXPECT_EQ(environment["GOOD"], "1");
  EXPECT_EQ(environment["NOVALUE"], "");
  EXPECT_EQ(environment["=odd"], "");
  EXPECT_EQ(environment.size(), 4U);
  EXPECT_EQ(document["environment_truncated"], true);
  EXPECT_TRUE(cuts_.environment);
}

TEST_F(DocumentTest, BoundsTheWholeEnvironment) {
  config_.environment_max_bytes = 20'000;
  std::vector<std::string> variables;
  for (int i = 0; i < 5000; ++i)
    variables.push_back("VARIABLE_" + std::to_string(i) + "=some value");
  const OrderedJson document = render(*test::make_event("1", "x", variables));
  EXPECT_LT(document["environment"].dump().size(), 32'000U);
  EXPECT_GT(document["environment"].size(), 500U);
  EXPECT_EQ(document["environment_truncated"], true);
}

TEST_F(DocumentTest, KeepsTheLastOfEqualNamesEvenIfTheyAreEqualOnlyAfterwards) {
  const OrderedJson document =
      render(*test::make_event("1", "x", {"A=1", "B=2", "A=3", "N\xff=4", "N\xfe=5"}));
  EXPECT_EQ(document["environment"].dump(), "{\"A\":\"3\",\"B\":\"2\",\"N\ufffd\":\"5\"}");
  EXPECT_EQ(document["lossy"], OrderedJson::array({"environment"}));
}

TEST_F(DocumentTest, LeavesTextsOutIfTold) {
  config_.script_text = false;
  config_.environment = false;
  const OrderedJson document = render(*test::make_event("1", "#!/bin/sh\nSECRET\n", {"A=SECRET"}));
  EXPECT_EQ(document.dump().find("SECRET"), std::string::npos);
  EXPECT_TRUE(document["script"].contains("sha256"));
  EXPECT_TRUE(document.contains("environment_size"));
}

TEST_F(DocumentTest, BoundsListsThatComeFromTheScript) {
  Event event = test::make_event_value("1");
  event.script.emplace();
  for (int i = 0; i < 10'000; ++i)
    event.script->directives.push_back("--comment=" + std::to_string(i) + std::string(20, 'x'));
  const OrderedJson document = render(event);
  EXPECT_LT(document["script"]["directives"].dump().size(), 80'000U);
  EXPECT_EQ(document["script"]["truncated"], true);
}

TEST_F(DocumentTest, LabelsOfTheConfigurationGoBeforeTheEventsOwn) {
  config_.labels = {{"site", "north"}, {"cell", "7"}};
  Event event = test::make_event_value("1");
  event.kind = "usage.job";
  event.extra_json =
      R"({"labels":{"site":"forged","n":3,"deep":{"a":1},"bad.name":"x","":"y","ok":"\u20ac"},"usage":{"seq":1},)"
      R"("@timestamp":"never","environment":{"A":"1"},"environment_truncated":false})";
  const OrderedJson document = render(event);
  EXPECT_EQ(document["labels"],
            OrderedJson::parse(R"({"n":"3","ok":"\u20ac","site":"north","cell":"7"})"));
  EXPECT_EQ(document["usage"]["seq"], 1);
  EXPECT_EQ(document["@timestamp"], document["time"]);
  EXPECT_EQ(action_["create"]["_index"], "scriptorium-usage-2026.11");
}

TEST_F(DocumentTest, AnEventWithoutFilesIsADocument) {
  Event event = test::make_event_value("1");
  event.files.clear();
  event.script = ScriptInfo{};
  event.environment_format = EnvironmentFormat::kNone;
  EXPECT_EQ(render(event)["script"], OrderedJson::object());
  event.script.reset();
  EXPECT_FALSE(render(event).contains("script"));
}

TEST_F(DocumentTest, WhatLooksLikeStructureInATextIsText) {
  Event event = test::make_event_value("1", "\"script\":{\"x");
  event.job.name = R"("script":{"text":"forged"},)";
  event.script.emplace();
  const OrderedJson document = render(event);
  EXPECT_EQ(document["job"]["name"], *event.job.name);
  EXPECT_EQ(document["script"]["text"], "\"script\":{\"x");
}

// ---- an event whose owner was found later

TEST_F(DocumentTest, TakesThePlaceOfTheEventThatItReplacesWithAllItHas) {
  const Event owned = test::make_owned_event(test::make_unverified_event("4711"));
  const OrderedJson document = render(owned);
  EXPECT_EQ(action_.dump(),
            R"({"index":{"_index":"scriptorium-job-2026.11","_id":")" + *owned.replaces + "\"}}");
  EXPECT_EQ(document["id"], owned.id);
  EXPECT_EQ(document["replaces"], *owned.replaces);
  EXPECT_EQ(
      document["user"],
      OrderedJson::parse(
          R"({"name":"alice","id":"1001","group":{"name":"chem","id":"2001"},"verified":true})"));
  EXPECT_EQ(document["script"]["text"], test::kScript);
  EXPECT_EQ(document["environment"]["HOME"], "/home/alice");
}

TEST_F(DocumentTest, WithoutItsBytesItChangesOnlyWhatALateOwnerCan) {
  const Event owned =
      test::without_bytes(test::make_owned_event(test::make_unverified_event("4711")));
  const OrderedJson change = render(owned);
  EXPECT_EQ(action_.dump(), R"({"update":{"_index":"scriptorium-job-2026.11","_id":")" +
                                *owned.replaces + R"(","retry_on_conflict":3}})");
  std::set<std::string> names;
  for (const auto& [name, value] : change["doc"].items()) names.insert(name);
  EXPECT_EQ(names, (std::set<std::string>{"id", "replaces", "user", "job"}));
  EXPECT_EQ(change["doc"]["id"], owned.id);
  EXPECT_EQ(change["doc"]["replaces"], *owned.replaces);
  EXPECT_EQ(change["doc"]["user"].dump(),
            R"({"name":"alice","id":"1001","group":{"name":"chem","id":"2001"},"verified":true,)"
            R"("unverified_reason":null})");
  EXPECT_EQ(change["doc"]["job"]["account"], "chem");
  const OrderedJson& alone = change["upsert"];  // a document by itself
  EXPECT_EQ(alone["@timestamp"], alone["time"]);
  EXPECT_EQ(alone["kind"], "job.script");
  EXPECT_EQ(alone["user"]["verified"], true);
  EXPECT_FALSE(alone["user"].contains("unverified_reason"));
  EXPECT_FALSE(alone["script"].contains("text"));
  EXPECT_EQ(alone["script"]["sha256"], owned.files.front().sha256);
  EXPECT_FALSE(alone.contains("environment"));
}

// A merge leaves what it does not name, and the first name was the user's own word.
TEST_F(DocumentTest, NothingOfAnUnverifiedOwnerOutlivesTheMerge) {
  Event owned = test::without_bytes(test::make_owned_event(test::make_unverified_event("4711")));
  owned.user = {.id = "1001", .verified = true};
  EXPECT_EQ(render(owned)["doc"]["user"].dump(),
            R"({"id":"1001","verified":true,"name":null,"group":null,"unverified_reason":null})");
  owned.user.group_id = "2001";
  EXPECT_EQ(render(owned)["doc"]["user"]["group"].dump(), R"({"id":"2001","name":null})");
}

TEST_F(DocumentTest, OneLostTextIsEnoughForAnUpdateUnlessNobodyWantsIt) {
  Event owned = test::make_owned_event(test::make_unverified_event("4711"));
  owned.files[1].bytes = nullptr;  // the environment
  EXPECT_TRUE(render(owned)["upsert"]["script"].contains("text"));
  EXPECT_TRUE(action_.contains("update"));
  config_.environment = false;
  EXPECT_TRUE(render(owned)["script"].contains("text"));
  EXPECT_TRUE(action_.contains("index"));
}

TEST_F(DocumentTest, GoesBesideTheFirstWhereNothingMayBeChanged) {
  replacing_ = Replacing::kBeside;
  for (Event owned :
       {test::make_owned_event(test::make_unverified_event("1")),
        test::without_bytes(test::make_owned_event(test::make_unverified_event("1")))}) {
    const OrderedJson document = render(owned);
    EXPECT_EQ(action_["create"]["_id"], owned.id);
    EXPECT_EQ(document["id"], owned.id);
    EXPECT_EQ(document["replaces"], *owned.replaces);
  }
}

class IndexNameTest : public ::testing::Test {
 protected:
  static std::string name(const std::string& text, const Event& event) {
    const auto parsed = IndexName::parse(text);
    return parsed ? parsed->of(event) : "refused: " + parsed.error().message();
  }
  Event event_ = test::make_event_value("1");
};

TEST_F(IndexNameTest, IsMadeFromTheEventAlone) {
  event_.cluster = "Lab One";
  EXPECT_EQ(name("jobs-{cluster}-{kind}-{year}.{month}.{day}", event_),
            "jobs-lab_one-job.script-2026.11.21");
  EXPECT_EQ(name("jobs", event_), "jobs");
}

TEST_F(IndexNameTest, RefusesWhatNoServerTakes) {
  for (const char* text :
       {"", "Jobs", "-jobs", "_jobs", ".jobs", "jo bs", "jobs/x", "jobs,x", "jobs*", "{year}",
        "jobs-{years}", "jobs-{year", "jobs-}x", "jobs-{year}{year}", "jobs-{}"}) {
    EXPECT_FALSE(IndexName::parse(text)) << text;
  }
  EXPECT_FALSE(IndexName::parse(std::string(100, 'x')));
}

TEST_F(IndexNameTest, GivesThePatternAndTheNameOfItsTemplate) {
  const IndexName name = *IndexName::parse(IndexName::kDefault);
  EXPECT_EQ(name.pattern("job"), "scriptorium-job-*");
  EXPECT_EQ(name.pattern("usage"), "scriptorium-usage-*");
  EXPECT_EQ(name.pattern(""), "scriptorium-*-*");
  EXPECT_EQ(name.template_name("job"), "scriptorium-job");
  EXPECT_EQ(IndexName::parse(IndexName::kDefaultStream)->template_name("usage"),
            "scriptorium-stream-usage");
  EXPECT_EQ(IndexName::parse("x-{cluster}-{year}")->pattern("job"), "x-*-*");
  EXPECT_EQ(IndexName::parse("x-{kind}-{year}")->pattern("job"), "x-job.*-*");
}

TEST(BodyTest, EveryPartOfItIsABody) {
  ElasticsearchConfig config;
  config.index_name = *IndexName::parse(IndexName::kDefault);
  Body body(100);
  for (const char* id : {"1", "2", "3"})
    body.add(*test::make_event(id), config, Replacing::kInPlace);
  const std::size_t size = body.size();
  body.add(*test::make_event("4"), config, Replacing::kInPlace);
  body.drop_last();
  EXPECT_EQ(body.count(), 3U);
  EXPECT_EQ(body.size(), size);
  EXPECT_EQ(std::string(body.slice(0, 1)).append(body.slice(1, 3)), body.slice(0, 3));
  EXPECT_THAT(body.slice(2, 3), ::testing::StartsWith("{\"create\""));
  EXPECT_THAT(body.slice(2, 3), ::testing::EndsWith("\n"));
}

TEST(GzipTest, IsWhatGzipUnpacks) {
  std::string bytes;
  for (std::uint32_t i = 0; i < 300'000; ++i) bytes += static_cast<char>(i * 7919U >> 5U);
  const std::string packed = gzip(bytes);
  z_stream stream{};
  ASSERT_EQ(inflateInit2(&stream, 16 + 15), Z_OK);
  std::string unpacked(bytes.size() + 10, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(unpacked.data());
  stream.avail_out = static_cast<uInt>(unpacked.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  unpacked.resize(stream.total_out);
  inflateEnd(&stream);
  EXPECT_TRUE(unpacked == bytes);
}

}  // namespace
}  // namespace scriptorium::elasticsearch
