#include "core/redact/redactor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/sha256.h"

namespace scriptorium::redact {
namespace {

using namespace std::string_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Rule rule_of(std::string name, std::string keyword, std::string expression,
             Action action = Action::kReplace) {
  Rule rule;
  rule.about = "a secret of " + name;
  rule.name = std::move(name);
  rule.keywords = {std::move(keyword)};
  rule.expression = std::move(expression);
  rule.action = action;
  return rule;
}

std::shared_ptr<const RuleSet> test_rules() {
  RuleFile file;
  file.file = "test.toml";
  file.rules = {rule_of("lab", "labtok_", R"((labtok_\w+))"),
                rule_of("password", "password", R"(password[= ](\S+))"),
                rule_of("dropped", "droptok_", R"((droptok_\w+))", Action::kDrop),
                rule_of("flagged", "flagtok_", R"((flagtok_\w+))", Action::kFlag)};
  file.deny_names = {"*_TOKEN"};
  Problems problems;
  auto rules = RuleSet::make({file}, problems);
  EXPECT_TRUE(problems.empty()) << problems.list().front().text();
  return rules;
}

class RedactorTest : public testing::Test {
 protected:
  static std::shared_ptr<const RuleSet> rules() {
    static const auto kRules = test_rules();
    return kRules;
  }
  std::vector<Redaction> redact(Mode mode = Mode::kDefault, EnvironmentRule option = {}) {
    auto result = Redactor(rules(), mode, std::move(option)).redact(job_);
    EXPECT_TRUE(result) << result.error().message();
    return result ? *result : std::vector<Redaction>{};
  }
  void set_script(std::string text) { job_.script = make_bytes(std::move(text)); }
  void set_environment(std::string text) {
    job_.environment = make_bytes(std::move(text));
    job_.environment_format = EnvironmentFormat::kNulEnded;
  }

  ParsedJob job_;
};

TEST_F(RedactorTest, WithoutSecretsEverythingIsTheSameObject) {
  set_script("#!/bin/sh\nsrun md\n");
  set_environment("HOME=/home/alice\0A=1\0"s);
  const Bytes script = job_.script;
  const Bytes environment = job_.environment;
  EXPECT_THAT(redact(), IsEmpty());
  EXPECT_EQ(job_.script, script);
  EXPECT_EQ(job_.environment, environment);
}

TEST_F(RedactorTest, ScriptTellsRulePlaceCountAndLines) {
  set_script("#!/bin/sh\nlogin --password hunter2\n\ncurl labtok_a1 labtok_b2\n");
  EXPECT_THAT(redact(), ElementsAre(Redaction{.rule = "password",
                                              .where = "script",
                                              .count = 1,
                                              .kept = false,
                                              .lines = {2},
                                              .names = {}},
                                    Redaction{.rule = "lab",
                                              .where = "script",
                                              .count = 2,
                                              .kept = false,
                                              .lines = {4},
                                              .names = {}}));
  EXPECT_EQ(*job_.script,
            "#!/bin/sh\nlogin --password [redacted:password]\n\ncurl [redacted:lab] "
            "[redacted:lab]\n");
}

TEST_F(RedactorTest, DeniedVariablesKeepTheirNames) {
  set_environment("A=1\0HF_TOKEN=xy\0B_TOKEN=\0D_TOKEN=false\0C=--password q\0"s);
  const auto found = redact();
  EXPECT_EQ(*job_.environment,
            "A=1\0HF_TOKEN=[redacted:variable-name]\0B_TOKEN=\0D_TOKEN=false\0"
            "C=--password [redacted:password]\0"s);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_THAT(found[0].names, ElementsAre("HF_TOKEN"));
  EXPECT_THAT(found[1].names, ElementsAre("C"));
}

TEST_F(RedactorTest, AnActionMayDropTheVariableWithItsName) {
  set_environment("A=1\0X=droptok_1 password=p\0B=2\0LAST=droptok_2"s);
  const auto found = redact();
  EXPECT_EQ(*job_.environment, "A=1\0B=2\0"s);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].count, 2U);
  EXPECT_THAT(found[0].names, ElementsAre("X", "LAST"));
}

TEST_F(RedactorTest, WhatIsFlaggedIsKeptAndReported) {
  set_script("echo flagtok_1 labtok_1\n");
  const auto found = redact();
  EXPECT_EQ(*job_.script, "echo flagtok_1 [redacted:lab]\n");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_TRUE(found[0].kept);
  EXPECT_FALSE(found[1].kept);
}

TEST_F(RedactorTest, ModeFlagKeepsEveryByte) {
  set_script("echo labtok_1\n");
  set_environment("A_TOKEN=Secret4711x\0"s);
  const auto found = redact(Mode::kFlag);
  EXPECT_EQ(*job_.script, "echo labtok_1\n");
  EXPECT_EQ(*job_.environment, "A_TOKEN=Secret4711x\0"s);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_TRUE(found[0].kept && found[1].kept);
}

TEST_F(RedactorTest, ASecretIsRemovedFromEveryPartOfItsJob) {
  set_script("#!/bin/sh\necho Secret4711x | md5sum; ls /data/Secret4711xyz\n");
  set_environment("A_TOKEN=Secret4711x\0B=also:Secret4711x\0"s);
  job_.job.name = "run-Secret4711x";
  job_.job.work_dir = "/home/alice/Secret4711x/run";
  job_.script_info.directives = {"--comment=Secret4711x"};
  job_.problems = {"environment: Secret4711x"};
  job_.extra_json = R"({"details":{"args":["Secret4711x",1,null]}})";
  job_.mixed_files.push_back({.name = "record", .bytes = make_bytes("Submit_args = Secret4711x")});
  redact();
  std::string all = *job_.script + *job_.environment + *job_.job.name + *job_.job.work_dir +
                    job_.script_info.directives[0] + job_.problems[0] + job_.extra_json +
                    *job_.mixed_files[0].bytes;
  EXPECT_THAT(all, HasSubstr("/data/Secret4711xyz")) << "a longer word is another one";
  all.erase(all.find("Secret4711xyz"), 13);
  EXPECT_THAT(all, Not(HasSubstr("Secret4711x")));
}

TEST_F(RedactorTest, OrdinaryValuesOfDeniedVariablesStayElsewhere) {
  const std::string script =
      "cd /run/user/1000\necho 12345678 yes default us-east-1 auth1.lab.org FILE:/tmp/krb5cc_1 "
      "Negotiate\nls /home/alice2024\n";
  set_script(script);
  job_.user.name = "alice2024";
  set_environment(
      "A_TOKEN=/run/user/1000\0B_TOKEN=12345678\0C_TOKEN=yes\0D_TOKEN=default\0"
      "E_TOKEN=us-east-1\0F_TOKEN=auth1.lab.org\0G_TOKEN=FILE:/tmp/krb5cc_1\0"
      "H_TOKEN=Negotiate\0I_TOKEN=alice2024\0"s);
  redact();
  EXPECT_EQ(*job_.script, script);
}

TEST_F(RedactorTest, RecordsLoseTheValuesOfDeniedVariables) {
  job_.mixed_files.push_back(
      {.name = "record",
       .bytes =
           make_bytes("<Variable_List>PBS_O_HOME=/home/a,X_TOKEN=ab,PBS_O_LANG=C</Variable_List>"
                      "\nA_TOKEN=cd\nTOKENS=1")});
  const auto found = redact();
  EXPECT_EQ(*job_.mixed_files[0].bytes,
            "<Variable_List>PBS_O_HOME=/home/a,X_TOKEN=[redacted:variable-name],PBS_O_LANG=C"
            "</Variable_List>\nA_TOKEN=[redacted:variable-name]\nTOKENS=1");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].where, "record");
  EXPECT_EQ(found[0].count, 2U);
}

TEST_F(RedactorTest, ADamagedEnvironmentIsRedactedToo) {
  job_.environment = make_bytes("\x05\0\0\0A=1\0X_TOKEN=abc\0half"s);
  job_.environment_format = EnvironmentFormat::kRaw;
  redact();
  EXPECT_EQ(*job_.environment, "\x05\0\0\0A=1\0X_TOKEN=[redacted:variable-name]\0half"s);
}

TEST_F(RedactorTest, TheOptionEnvironmentComesFirst) {
  set_environment("A=1\0X_TOKEN=abc\0B=2\0"s);
  EnvironmentRule option{.mode = EnvironmentRule::Mode::kPatterns, .keep = {}, .drop = {"X_*"}};
  const auto found = redact(Mode::kDefault, option);
  EXPECT_EQ(*job_.environment, "A=1\0B=2\0"s);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].rule, "environment");
}

TEST_F(RedactorTest, OffKeepsEverythingButNeverByMistake) {
  set_script("echo labtok_1\n");
  EXPECT_THAT(redact(Mode::kOff), IsEmpty());
  EXPECT_EQ(*job_.script, "echo labtok_1\n");
  EXPECT_FALSE(Redactor(nullptr, Mode::kDefault, {}).redact(job_)) << "no rules are no filter";
}

TEST_F(RedactorTest, EventsOfFreeSourcesGetNewHashes) {
  Event event;
  event.kind = "usage.job";
  event.job.name = "labtok_1";
  event.extra_json = R"({"details":{"command":"x --password abc"}})";
  event.files.push_back(
      {.name = "notes", .size = 8, .sha256 = "x", .bytes = make_bytes("labtok_2")});
  event.files.push_back({.name = "other", .size = 1, .sha256 = "y", .bytes = make_bytes("z")});
  ASSERT_TRUE(Redactor(rules(), Mode::kDefault, {}).redact(event));
  EXPECT_EQ(event.job.name, "[redacted:lab]");
  EXPECT_EQ(event.extra_json, R"({"details":{"command":"x --password [redacted:password]"}})");
  EXPECT_EQ(*event.files[0].bytes, "[redacted:lab]");
  EXPECT_EQ(event.files[0].size, 14U);
  EXPECT_EQ(event.files[0].sha256, sha256_hex("[redacted:lab]"));
  EXPECT_EQ(event.files[1].sha256, "y") << "unchanged";
}

TEST_F(RedactorTest, ManyFindingsTakeLinearTimeAndAreAllRemoved) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "x labtok_" + std::to_string(i) + "\n";
  set_script(text);
  const auto found = redact();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].count, 5000U);
  EXPECT_EQ(found[0].lines.size(), kMostRedactionPlaces);
  EXPECT_THAT(*job_.script, Not(HasSubstr("labtok_")));
}

TEST(MergeTest, AddsCountsAndPlacesOfTheSameRuleAndPlace) {
  std::vector<Redaction> all;
  merge(all,
        {{.rule = "a", .where = "script", .count = 1, .kept = false, .lines = {1}, .names = {}}});
  merge(all,
        {{.rule = "a", .where = "script", .count = 2, .kept = false, .lines = {1, 7}, .names = {}},
         {.rule = "a", .where = "script", .count = 4, .kept = true, .lines = {}, .names = {}},
         {.rule = "a", .where = "record", .count = 8, .kept = false, .lines = {}, .names = {}}});
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].count, 3U);
  EXPECT_THAT(all[0].lines, ElementsAre(1, 7));
}

}  // namespace
}  // namespace scriptorium::redact
