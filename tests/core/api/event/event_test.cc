#include "core/api/event.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/base/text.h"
#include "tests/support/event_factory.h"

namespace scriptorium {
namespace {

using namespace std::string_literals;
using Json = nlohmann::ordered_json;

TEST(EventIdTest, DependsOnEveryPartAndOnNothingElse) {
  const std::string id = event_id("lab", "slurm", "job.script", "4711", 17, "ab");
  EXPECT_EQ(id, event_id("lab", "slurm", "job.script", "4711", 17, "ab"));
  EXPECT_EQ(id.size(), 64U);
  EXPECT_NE(id, event_id("la", "bslurm", "job.script", "4711", 17, "ab"))
      << "the parts' borders count";
  EXPECT_NE(id, event_id("lab", "slurm", "job.script", "4712", 17, "ab"));
  EXPECT_NE(id, event_id("lab", "slurm", "job.script", "4711", 18, "ab"));
  EXPECT_NE(id, event_id("lab", "slurm", "job.script", "4711", 17, "ac"));
}

TEST(EventIdTest, NeverChangesBetweenReleases) {
  // Sinks have this id in their indices: a change of the recipe would store every job a second
  // time.
  EXPECT_EQ(
      event_id("lab", "slurm", "job.script", "4711", 1795224382364000000, std::string(64, 'a')),
      "75a24f5e717b135b2b512f084d4bdeedd850f439a8058103f2823000e24650d9");
}

TEST(EnvironmentTest, SplitsAtTheFirstEqualsSignAfterTheFirstByte) {
  const std::string bytes = "A=1\0B=a=b==c=\0M=line 1\nUSER=root\0NOEQUALS\0=odd\0E=\0\0LAST=x"s;
  const auto variables = split_environment(bytes);
  ASSERT_EQ(variables.size(), 8U);
  EXPECT_EQ(variables[1].value, "a=b==c=");
  EXPECT_EQ(variables[2].value, "line 1\nUSER=root");
  EXPECT_EQ(variables[3].name, "NOEQUALS");
  EXPECT_EQ(variables[3].value.data(), nullptr);
  EXPECT_EQ(variables[4].name, "=odd");
  EXPECT_EQ(variables[5].value, "");
  EXPECT_NE(variables[5].value.data(), nullptr);
  EXPECT_EQ(variables[6].name, "");
  EXPECT_EQ(variables[7].value, "x");
}

TEST(EventJsonTest, HasTheShapeOfSchema1) {
  const auto event = test::make_event("4711");
  const Json json = Json::parse(event_json(*event));
  EXPECT_EQ(json["schema"], "scriptorium.event/1");
  EXPECT_EQ(json["id"], event->id);
  EXPECT_EQ(json["time"], "2026-11-21T01:26:22.364Z");
  EXPECT_EQ(json["captured_at"], "2026-11-21T01:26:22.366114Z");
  EXPECT_EQ(json["host"]["name"], "ctl1");
  EXPECT_EQ(json["user"]["group"]["id"], "2001");
  EXPECT_EQ(json["script"]["text"], test::kScript);
  EXPECT_EQ(json["script"]["encoding"], "utf-8");
  EXPECT_EQ(json["environment"]["USER"], "alice");
  EXPECT_EQ(json["files"].size(), 2U);
  EXPECT_FALSE(json["job"].contains("qos")) << "unknown is absent";
  EXPECT_FALSE(json.contains("lossy"));
}

TEST(EventJsonTest, ScriptThatIsNotUtf8GoesAsBase64AndLosesNothing) {
  const std::string script = "#!/bin/sh\necho \xe9\xff\n";
  const Json json = Json::parse(event_json(test::make_event_value("1", script)));
  EXPECT_EQ(json["script"]["encoding"], "base64");
  EXPECT_EQ(base64_decode(json["script"]["text"].get<std::string>()), script);
}

TEST(EventJsonTest, OfEqualNamesTheLastOneCountsAndBadBytesAreSaid) {
  const Json json =
      Json::parse(event_json(test::make_event_value("1", "x", {"A=1", "B=\xff", "A=2"})));
  EXPECT_EQ(json["environment"], (Json{{"A", "2"}, {"B", "\xEF\xBF\xBD"}}));
  EXPECT_EQ(json["lossy"], Json::array({"environment"}));
}

TEST(EventJsonTest, ManyVariablesTakeLinearTime) {
  std::vector<std::string> variables;
  for (int i = 0; i < 100'000; ++i) variables.push_back("V" + std::to_string(i) + "=x");
  // The test's own parser keeps no order: nlohmann's ordered one is quadratic in the number of
  // members.
  const nlohmann::json json =
      nlohmann::json::parse(event_json(test::make_event_value("1", "x", variables)));
  EXPECT_EQ(json["environment"].size(), variables.size());
}

TEST(EventJsonTest, MetadataComeBackAsTheyWere) {
  Event event = test::make_event_value("4711");
  event.job.array = JobArray{"4711", std::nullopt, "0-99%10"};
  event.job.het = HetJob{"4711", 1, true};
  event.complete = false;
  event.problems = {"environment: count 9, 4 strings"};
  event.redactions = {
      {.rule = "environment", .where = "environment", .count = 3},
      {.rule = "jwt", .where = "script", .count = 2, .kept = true, .lines = {3, 12}},
      {.rule = "variable-name", .where = "environment", .count = 1, .names = {"HF_TOKEN"}}};
  event.parts = {"script", "records"};
  event.supersedes = std::string(64, 'b');
  event.replaces = std::string(64, 'c');
  event.environment_format = EnvironmentFormat::kRaw;
  event.script->modules = {"GCC/12.2.0"};
  event.script->software = {{"conda", "torch"}, {"apptainer", "docker://ubuntu:24.04"}};
  event.time.nanoseconds += 123'456;
  event.extra_json = R"({"usage":{"cpu":1}})";
  event.lossy = {"job.name"};
  const JsonOptions exact{.script_text = false, .environment = false, .exact_times = true};
  const std::string text = event_json(event, exact);
  auto back = event_from_json(text);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(event_json(*back, exact), text);
  EXPECT_EQ(back->time, event.time);
  EXPECT_EQ(back->files[1].sha256, event.files[1].sha256);
  EXPECT_EQ(back->files[1].bytes, nullptr);
  EXPECT_EQ(back->environment_format, EnvironmentFormat::kRaw);
  EXPECT_EQ(back->redactions, event.redactions);
  EXPECT_EQ(back->script->software, event.script->software);
  EXPECT_EQ(back->parts, event.parts);
}

TEST(EventJsonTest, ARedactionHasOnlyTheMembersThatSaySomething) {
  Event event = test::make_event_value("1");
  event.redactions = {
      {.rule = "jwt", .where = "job.name", .count = 1},
      {.rule = "jwt", .where = "script", .count = 2, .kept = true, .lines = {3, 12}},
      {.rule = "x", .where = "environment", .count = 1, .names = {"A", "\xff"}}};
  const auto json = nlohmann::json::parse(event_json(event));
  EXPECT_EQ(json["redactions"], nlohmann::json::parse(R"([
      {"rule":"jwt","where":"job.name","count":1},
      {"rule":"jwt","where":"script","count":2,"kept":true,"lines":[3,12]},
      {"rule":"x","where":"environment","count":1,"names":["A","\ufffd"]}])"));
  EXPECT_EQ(json["lossy"], nlohmann::json::parse(R"(["redactions"])"));
}

TEST(EventTest, NamesOfRedactedVariablesAreRepairedOnceAndCounted) {
  Event event = test::make_event_value("1");
  event.redactions = {{.rule = "x", .where = "environment", .count = 1, .names = {"A\xff"}}};
  make_text_utf8(event);
  EXPECT_EQ(event.redactions[0].names[0], "A\xef\xbf\xbd");
  EXPECT_EQ(event.lossy, std::vector<std::string>{"redactions"});
  const std::uint64_t before = event.memory_size();
  event.redactions[0].names.emplace_back(1000, 'n');
  event.redactions[0].lines.assign(100, 7);
  EXPECT_GE(event.memory_size(), before + 1400);
}

TEST(EventJsonTest, NothingButMetadataIsReadBack) {
  const std::string good = event_json(
      *test::make_event("1"), {.script_text = false, .environment = false, .exact_times = true});
  for (const std::string& bad :
       {std::string{}, std::string{"{}"}, std::string{"[1]"}, good.substr(0, good.size() / 2),
        std::string(R"({"schema":"scriptorium.event/2"})")}) {
    auto event = event_from_json(bad);
    ASSERT_FALSE(event) << bad;
    EXPECT_EQ(event.error().kind(), ErrorKind::kCorrupt);
    EXPECT_EQ(event.error().message().find("bash"), std::string::npos)
        << "no script text in an error";
  }
}

TEST(EventTextTest, IsMadeUtf8OnceAndSaysWhere) {
  Event event = test::make_event_value("1");
  event.job.name = "bad\xff\xfename";
  make_text_utf8(event);
  EXPECT_EQ(event.job.name, "bad\xEF\xBF\xBD\xEF\xBF\xBDname");
  EXPECT_THAT(event.lossy, testing::ElementsAre("job.name"));
  const std::string first = event_json(event);
  make_text_utf8(event);
  EXPECT_EQ(event_json(event), first);
}

}  // namespace
}  // namespace scriptorium
