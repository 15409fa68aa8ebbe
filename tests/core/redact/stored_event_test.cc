#include "core/redact/stored_event.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/sha256.h"
#include "tests/support/event_factory.h"

namespace scriptorium::redact {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr const char* kToken = "labtok_0123456789abcdef";

std::shared_ptr<const RuleSet> lab_rules() {
  Rule rule;
  rule.name = "lab-token";
  rule.about = "a token of the lab";
  rule.keywords = {"labtok_"};
  rule.expression = "(labtok_[0-9a-f]{16})";
  RuleFile file;
  file.file = "test.toml";
  file.rules = {rule};
  file.deny_names = {"*_PIN"};
  Problems problems;
  auto rules = RuleSet::make({file}, problems);
  EXPECT_TRUE(problems.empty());
  return rules;
}

class RedactStoredTest : public ::testing::Test {
 protected:
  StoredRedaction redact(const Event& event, Mode mode = Mode::kDefault) const {
    auto result = redact_stored(Redactor(rules_, mode, {}), event);
    EXPECT_TRUE(result) << result.error().message();
    return result ? *std::move(result) : StoredRedaction{};
  }
  static Event leaky() {
    return test::make_event_value("1", std::string("#!/bin/sh\nexport T=") + kToken + "\n",
                                  {"HOME=/h", "LAB_PIN=1234"});
  }

  std::shared_ptr<const RuleSet> rules_ = lab_rules();
};

TEST_F(RedactStoredTest, AnEventWithoutSecretsStaysAsItIs) {
  const StoredRedaction result = redact(test::make_event_value("1"));
  EXPECT_EQ(result.event, nullptr);
  EXPECT_THAT(result.found, IsEmpty());
}

TEST_F(RedactStoredTest, SizesHashesAndIdAreThoseOfWhatIsKept) {
  const Event before = leaky();
  const StoredRedaction result = redact(before);
  ASSERT_NE(result.event, nullptr);
  const EventFile& script = *result.event->file("script");
  EXPECT_EQ(*script.bytes, "#!/bin/sh\nexport T=[redacted:lab-token]\n");
  EXPECT_EQ(script.size, script.bytes->size());
  EXPECT_EQ(script.sha256, sha256_hex(*script.bytes));
  EXPECT_EQ(result.event->id, event_id(before.cluster, before.scheduler, before.kind, before.job.id,
                                       before.time.nanoseconds, script.sha256));
  EXPECT_THAT(*result.event->file("environment")->bytes, Not(HasSubstr("1234")));
  ASSERT_THAT(result.found, SizeIs(2));
}

// The option `environment` of today's source, whatever that of the time was.
TEST_F(RedactStoredTest, VariablesThatAreNotKeptAnyMoreGo) {
  const Event before = test::make_event_value("1", "#!/bin/sh\n", {"HOME=/h", "SSH_TTY=/dev/1"});
  EnvironmentRule rule{.mode = EnvironmentRule::Mode::kPatterns, .drop = {"SSH_*"}};
  auto result = redact_stored(Redactor(nullptr, Mode::kOff, rule), before);
  ASSERT_TRUE(result) << result.error().message();
  ASSERT_NE(result->event, nullptr);
  const EventFile& kept = *result->event->file("environment");
  EXPECT_EQ(*kept.bytes, std::string("HOME=/h\0", 8));
  EXPECT_EQ(kept.sha256, sha256_hex(*kept.bytes));
  EXPECT_EQ(kept.size, 8U);
  EXPECT_EQ(result->event->id, before.id);
  EXPECT_EQ(redact_stored(Redactor(nullptr, Mode::kOff, rule), *result->event)->event, nullptr);

  rule = {.mode = EnvironmentRule::Mode::kNone};
  result = redact_stored(Redactor(nullptr, Mode::kOff, rule), before);
  ASSERT_TRUE(result && result->event != nullptr);
  EXPECT_EQ(result->event->file("environment"), nullptr);
  EXPECT_EQ(result->event->environment_format, EnvironmentFormat::kNone);
}

TEST_F(RedactStoredTest, TheIdStaysIfTheScriptDoes) {
  const Event before = test::make_event_value("1", test::kScript, {"LAB_PIN=1234"});
  const StoredRedaction result = redact(before);
  ASSERT_NE(result.event, nullptr);
  EXPECT_EQ(result.event->id, before.id);
}

TEST_F(RedactStoredTest, NoTraceOfAnIdOverTheOriginalBytesRemains) {
  Event before = leaky();
  before.supersedes = std::string(64, 'a');
  before.replaces = std::string(64, 'b');
  const StoredRedaction result = redact(before);
  ASSERT_NE(result.event, nullptr);
  EXPECT_FALSE(result.event->supersedes);
  ASSERT_TRUE(result.event->replaces);
  EXPECT_NE(result.event->replaces, before.replaces);
  EXPECT_EQ(result.event->id, owned_event_id(*result.event->replaces, *before.user.id));
  const std::string json = event_json(*result.event);
  for (const std::string& id : {before.id, *before.supersedes, *before.replaces})
    EXPECT_THAT(json, Not(HasSubstr(id)));
}

TEST_F(RedactStoredTest, TheHashOfAFileThatNobodyCanLookIntoGoes) {
  Event before = leaky();
  before.files.push_back({.name = "record", .size = 7, .sha256 = std::string(64, 'c')});
  const StoredRedaction result = redact(before);
  ASSERT_NE(result.event, nullptr);
  EXPECT_EQ(result.event->file("record"), nullptr);
  EXPECT_THAT(result.event->problems,
              ElementsAre("record: not in the archive; its hash was removed"));
}

TEST_F(RedactStoredTest, AppliedAgainItFindsNothing) {
  const StoredRedaction first = redact(leaky());
  ASSERT_NE(first.event, nullptr);
  const StoredRedaction second = redact(*first.event);
  EXPECT_EQ(second.event, nullptr);
  EXPECT_THAT(second.found, IsEmpty());
}

TEST_F(RedactStoredTest, WhatIsOnlyReportedChangesNothing) {
  const StoredRedaction result = redact(leaky(), Mode::kFlag);
  EXPECT_EQ(result.event, nullptr);
  ASSERT_THAT(result.found, SizeIs(2));
  EXPECT_TRUE(result.found[0].kept);
}

TEST_F(RedactStoredTest, AUsageRecordKeepsItsId) {
  Event usage = test::make_event_value("1");
  usage.kind = "usage.job";
  usage.files.clear();
  usage.script.reset();
  usage.job.name = std::string("run-") + kToken;
  const StoredRedaction result = redact(usage);
  ASSERT_NE(result.event, nullptr);
  EXPECT_EQ(result.event->id, usage.id);
  EXPECT_EQ(result.event->job.name, "run-[redacted:lab-token]");
}

}  // namespace
}  // namespace scriptorium::redact
