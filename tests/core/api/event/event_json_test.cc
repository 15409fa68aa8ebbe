#include <gtest/gtest.h>

#include <random>

#include "tests/core/api/event/event_json_oracle.h"

namespace scriptorium {
namespace {

using namespace std::string_literals;

// Events as no cluster would make them: each member there or not, texts of whatever bytes, names
// that repeat.
class EventMaker {
 public:
  explicit EventMaker(std::uint64_t seed) : random_(seed) {}

  Event event() {
    Event event;
    event.id = text();
    event.kind = text();
    event.time = time();
    event.captured_at = time();
    event.capture = text();
    event.complete = chance();
    event.cluster = text();
    event.scheduler = text();
    event.host = text();
    job(event.job);
    if (chance()) {
      event.user = {.name = maybe(),
                    .id = maybe(),
                    .group_name = maybe(),
                    .group_id = maybe(),
                    .verified = chance(),
                    .unverified_reason = maybe()};
    }
    if (chance()) {
      event.script = ScriptInfo{
          .interpreter = maybe(), .directives = texts(), .modules = texts(), .software = {}};
      for (std::size_t i = below(3); i > 0; --i) event.script->software.push_back({text(), text()});
    }
    event.environment_format = std::array{EnvironmentFormat::kNone, EnvironmentFormat::kNulEnded,
                                          EnvironmentFormat::kRaw}[below(3)];
    if (chance()) event.files.push_back(file("script", text(2000)));
    if (event.environment_format != EnvironmentFormat::kNone || below(8) == 0)
      event.files.push_back(file("environment", environment()));
    if (below(4) == 0)
      event.files.push_back(
          {.name = text(), .size = below(100), .sha256 = text(), .bytes = nullptr});
    if (below(4) == 0) event.parts = texts();
    for (std::size_t i = below(4); i > 1; --i) event.redactions.push_back(redaction());
    if (below(4) == 0) event.problems = texts();
    if (below(4) == 0) event.supersedes = text();
    if (below(4) == 0) event.replaces = text();
    if (below(4) == 0) event.lossy = texts();
    if (below(2) == 0) event.extra_json = kExtras[below(std::size(kExtras))];
    return event;
  }
  Redaction redaction() {
    Redaction made{.rule = text(), .where = text(), .count = random_(), .kept = chance()};
    for (std::size_t i = below(4); i > 1; --i)
      made.lines.push_back(static_cast<std::uint32_t>(random_()));
    if (chance()) made.names = texts();
    return made;
  }
  JsonOptions options() {
    return {.script_text = chance(),
            .environment = chance(),
            .exact_times = chance(),
            .indent = static_cast<int>(below(5)) - 1};
  }

 private:
  static constexpr const char* kExtras[] = {
      R"({"usage":{"cpu":1.50,"deep":{"list":[1,-2,{"a":null}],"none":{},"empty":[]}},"ok":true})",
      R"({"job":{"state":"COMPLETED","name":"forged","array":{"job_id":"9","more":1},"nodes":["a","b"],"group":1},"kind":"x"})",
      R"({"user":{"verified":true,"group":{"id":"0","x":1},"unverified_reason":"forged","quota":{"a":{"b":"\u20ac\n"}}},"host":{"name":"y","cpus":64}})",
      R"({"script":{"sha256":"0","text":"forged","interpreter":"/x","lines":7},"environment":{"A":"forged","NEW":"1"}})",
      R"({"lossy":["forged"],"problems":["forged"],"supersedes":"forged","files":[],"after":"lossy"})",
      R"({"job":5,"user":[],"a":1,"a":2,"\"quoted\"":"\u0001"})",
      R"([1,2])",
      R"({"broken":)",
  };

  std::size_t below(std::size_t limit) { return random_() % limit; }
  bool chance() { return below(2) == 0; }
  Timestamp time() { return {static_cast<std::int64_t>(random_() % 4'000'000'000'000'000'000U)}; }
  std::string text(std::size_t longest = 40) {
    static const std::vector<std::string> kPieces = {"a",
                                                     "B c",
                                                     "\"",
                                                     "\\",
                                                     "\n",
                                                     "\t",
                                                     "\r",
                                                     "\b\f",
                                                     "\x01\x1f",
                                                     "\x7f",
                                                     "\0"s,
                                                     "\xC3\xA4",
                                                     "\u20ac",
                                                     "\xF0\x9F\x98\x80",
                                                     "\xFF\xFE",
                                                     "\xC3",
                                                     "\xED\xA0\x80",
                                                     "/",
                                                     "plain words of some length",
                                                     "=",
                                                     "\xF0\x9F\x98"};
    const bool clean = chance();
    std::string text;
    for (std::size_t left = below(longest); left > 0; --left)
      text += kPieces[below(clean ? 10 : kPieces.size())];
    return text;
  }
  std::optional<std::string> maybe() { return chance() ? std::optional(text()) : std::nullopt; }
  std::vector<std::string> texts() {
    std::vector<std::string> list(below(4));
    for (std::string& item : list) item = text();
    return list;
  }
  EventFile file(std::string name, std::string bytes) {
    const std::size_t size = bytes.size();
    return {.name = std::move(name),
            .size = size,
            .sha256 = text(),
            .bytes = below(8) == 0 ? nullptr : make_bytes(std::move(bytes))};
  }
  std::string environment() {
    std::string all;
    for (std::size_t left = below(30); left > 0; --left) {
      all += chance() ? "N" + std::to_string(below(6)) : text(4);
      if (below(6) != 0) all += "=" + text(10);
      if (left > 1 || chance()) all += '\0';
    }
    return all;
  }
  void job(Job& job) {
    job.id = text();
    job.name = maybe();
    if (chance()) job.array = JobArray{.job_id = text(), .task_id = maybe(), .task_spec = maybe()};
    if (chance())
      job.het = HetJob{.job_id = text(), .component = std::nullopt, .synthetic = chance()};
    if (job.het && chance()) job.het->component = static_cast<std::uint32_t>(random_());
    job.account = maybe();
    job.partition = maybe();
    job.qos = maybe();
    if (chance()) job.submitted_at = time();
    job.work_dir = maybe();
  }

  std::mt19937_64 random_;
};

constexpr std::uint64_t kEvents = 4000;

TEST(EventJsonTest, EveryByteIsAsATreeOfItWouldBeWritten) {
  for (std::uint64_t seed = 1; seed <= kEvents; ++seed) {
    EventMaker maker(seed);
    const Event event = maker.event();
    const JsonOptions options = maker.options();
    ASSERT_EQ(event_json(event, options), test::oracle_event_json(event, options))
        << "seed " << seed;
  }
}

TEST(EventJsonTest, ALongEnvironmentIsWrittenAsATreeOfItWouldBe) {
  std::string environment;
  for (int i = 0; i < 5000; ++i)
    environment += "V" + std::to_string(i * 7919 % 3001) + "=" + std::to_string(i) + '\0';
  Event event;
  event.environment_format = EnvironmentFormat::kNulEnded;
  event.files = {{.name = "environment",
                  .size = environment.size(),
                  .sha256 = "",
                  .bytes = make_bytes(environment)}};
  EXPECT_EQ(event_json(event), test::oracle_event_json(event));
}

TEST(EventJsonTest, MetadataAreReadAsATreeOfThemWouldBe) {
  const JsonOptions exact{.script_text = false, .environment = false, .exact_times = true};
  int read = 0;
  for (std::uint64_t seed = 1; seed <= kEvents; ++seed) {
    const Event event = EventMaker(seed).event();
    const std::string json = event_json(event, exact);
    const auto read_back = event_from_json(json);
    const auto expected = test::oracle_event_from_json(json);
    ASSERT_EQ(read_back.has_value(), expected.has_value()) << "seed " << seed;
    if (!read_back) continue;
    ++read;
    EXPECT_EQ(read_back->extra_json, expected->extra_json) << "seed " << seed;
    EXPECT_EQ(read_back->environment_format, expected->environment_format) << "seed " << seed;
    EXPECT_EQ(read_back->lossy, expected->lossy) << "seed " << seed;
    ASSERT_EQ(event_json(*read_back, exact), event_json(*expected, exact)) << "seed " << seed;
  }
  EXPECT_GT(read, static_cast<int>(kEvents / 2)) << "the events must be ones that can be read back";
}

TEST(EventJsonTest, MetadataThatAreCutOrAlteredAreReadAsATreeOfThemWouldBe) {
  const JsonOptions exact{.script_text = false, .environment = false, .exact_times = true};
  std::mt19937_64 random(7);
  for (std::uint64_t seed = 1; seed <= kEvents; ++seed) {
    std::string json = event_json(EventMaker(seed).event(), exact);
    static constexpr std::string_view kBytes = "\"\\{}[]:,0159eE.-+tfnu /aZ\n\xC3";
    for (int changes = static_cast<int>(random() % 3) + 1; changes > 0; --changes) {
      const std::size_t at = random() % json.size();
      switch (random() % 4) {
        case 0: json.erase(at, 1); break;
        case 1: json[at] = kBytes[random() % kBytes.size()]; break;
        case 2: json.insert(at, 1, kBytes[random() % kBytes.size()]); break;
        default: json.resize(random() % 8 == 0 ? at + 1 : json.size()); break;
      }
    }
    const auto read_back = event_from_json(json);
    const auto expected = test::oracle_event_from_json(json);
    ASSERT_EQ(read_back.has_value(), expected.has_value()) << json;
    if (!read_back) continue;
    ASSERT_EQ(event_json(*read_back, exact), event_json(*expected, exact)) << json;
  }
}

TEST(EventJsonTest, WhatASourceAddsToAJobComesBackFromTheJournal) {
  Event event;
  event.job.id = "1";
  event.extra_json =
      R"({"job":{"id":"forged","state":"FAILED"},"host":{"cpus":8},"usage":{"cpu":1}})";
  const JsonOptions exact{.script_text = false, .environment = false, .exact_times = true};
  const auto back = event_from_json(event_json(event, exact));
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->job.id, "1");
  const auto json = nlohmann::json::parse(event_json(*back));
  EXPECT_EQ(json["job"]["state"], "FAILED");
  EXPECT_EQ(json["host"]["cpus"], 8);
  EXPECT_EQ(json["usage"]["cpu"], 1);
}

}  // namespace
}  // namespace scriptorium
