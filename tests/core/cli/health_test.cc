#include "core/cli/health.h"

#include <gmock/gmock.h>

#include <string>

namespace scriptorium::cli::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string status(const std::string& source, const std::string& journal, const std::string& sink) {
  return R"({"sources":{"slurm":{"captured":10,"spool_there":true)" + source +
         R"(}},"journal":{"limit_bytes":100,"full":false)" + journal +
         R"(},"sinks":{"archive":{"plugin":"file")" + sink + "}}}";
}
Health judged(const std::string& source, const std::string& journal, const std::string& sink) {
  return judge_health(status(source, journal, sink),
                      {.behind_warning_s = 300, .behind_critical_s = 3600});
}

TEST(HealthTest, AllWellIsOneLineAndZero) {
  const Health health = judged(R"(,"missed":{"vanished":0})", R"(,"bytes":80)",
                               R"(,"waiting":7,"oldest_waiting_seconds":299,"dead":0)");
  EXPECT_EQ(health.state, 0);
  EXPECT_EQ(health.line,
            "SCRIPTORIUM OK - 10 captured, 7 waiting | captured=10c missed=0c waiting=7 dead=0 "
            "journal=80%;80;100");
}

TEST(HealthTest, ASinkThatIsBehindWarnsThenIsCritical) {
  const Health warning = judged(
      "", "", R"(,"waiting":7,"oldest_waiting_seconds":300,"last_error":"no space | left\n")");
  EXPECT_EQ(warning.state, 1);
  EXPECT_THAT(warning.line, StartsWith("SCRIPTORIUM WARNING - archive: behind by 5 min"));
  EXPECT_THAT(warning.line, HasSubstr("(no space / left\\n)"));
  EXPECT_EQ(judged("", "", R"(,"waiting":7,"oldest_waiting_seconds":3600)").state, 2);
  // Nothing waits: then nothing is old.
  EXPECT_EQ(judged("", "", R"(,"waiting":0,"oldest_waiting_seconds":3600)").state, 0);
}

TEST(HealthTest, ASinkThatIsNotReadyOrHangsWarns) {
  EXPECT_THAT(judged("", "", R"(,"ready":false,"not_ready":"no such group")").line,
              StartsWith("SCRIPTORIUM WARNING - archive: not ready: no such group"));
  const auto in_call = [](const char* ready, const char* name, const char* seconds) {
    return judged("", "",
                  std::string(R"(,"not_ready":null,"ready":)") + ready +
                      R"(,"call_under_way":{"name":")" + name + R"(","seconds":)" + seconds + "}");
  };
  EXPECT_EQ(in_call("false", "start", "9.9").state, 0);
  EXPECT_THAT(in_call("false", "start", "10").line,
              StartsWith("SCRIPTORIUM WARNING - archive: in a call (start) for 10"));
  EXPECT_EQ(in_call("true", "deliver", "29.9").state, 0);
  EXPECT_EQ(in_call("true", "deliver", "30").state, 1);
  EXPECT_EQ(judged("", "", R"(,"ready":true,"not_ready":null,"call_under_way":null)").state, 0);
}

TEST(HealthTest, WhatIsLostOrGivenUpWarns) {
  EXPECT_THAT(judged(R"(,"missed":{"vanished":2,"other":1})", "", "").line,
              StartsWith("SCRIPTORIUM WARNING - slurm: 3 missed"));
  EXPECT_THAT(judged(R"(,"gaps":{"suspected":9,"confirmed":1})", "", "").line,
              HasSubstr("slurm: 1 jobs whose script was never seen"));
  EXPECT_EQ(judged(R"(,"gaps":{"suspected":9,"confirmed":0})", "", "").state, 0);
  EXPECT_THAT(judged("", "", R"(,"dead":2)").line, HasSubstr("archive: 2 dead letters"));
}

std::string last_hour(int decided, int unverified, const std::string& reasons = "{}") {
  return R"(,"owners":{"last_hour":{"decided":)" + std::to_string(decided) + R"(,"unverified":)" +
         std::to_string(unverified) + R"(},"unverified":)" + reasons + "}";
}

TEST(HealthTest, ManyUnverifiedOwnersWarnWithTheMostFrequentReason) {
  const Health health = judged(last_hour(100, 11, R"({"rare":1,"hidden":10})"), "", "");
  EXPECT_EQ(health.state, 1);
  EXPECT_THAT(health.line, StartsWith("SCRIPTORIUM WARNING - slurm: the owners of 11 of the last "
                                      "hour's 100 jobs are unverified (hidden)"));
  EXPECT_EQ(judged(last_hour(110, 11), "", "").state, 0) << "a tenth";
  EXPECT_EQ(judged(last_hour(20, 9), "", "").state, 0) << "a few";
  EXPECT_EQ(judged(last_hour(2, 2), "", "").state, 1) << "a small site's are few, and all of them";
  EXPECT_EQ(judged(last_hour(0, 0), "", "").state, 0);
  EXPECT_EQ(judged(R"(,"owners":{"unverified":{"hidden":99}})", "", "").state, 0) << "long ago";
}

TEST(HealthTest, WhatStopsCaptureIsCriticalAndComesFirst) {
  const Health health =
      judged(R"(,"missed":{"vanished":1},"x":0)", R"(,"bytes":100,"full":true)", "");
  EXPECT_EQ(health.state, 1 + 1);
  EXPECT_THAT(health.line, HasSubstr("CRITICAL - "));
  EXPECT_LT(health.line.find("the journal is full"), health.line.find("1 missed"));
  EXPECT_EQ(judge_health(R"({"sources":{"slurm":{"spool_there":false}}})", {}).state, 2);
  EXPECT_EQ(judged("", R"(,"last_error":"disk I/O error")", "").state, 2);
  EXPECT_THAT(judged("", R"(,"bytes":81)", "").line, HasSubstr("the journal is at 81 %"));
}

TEST(HealthTest, ASinkOfThePastWarnsWhileEventsWaitForIt) {
  const Health health =
      judged("", "", R"(,"configured":false,"waiting":1,"oldest_waiting_seconds":99999)");
  EXPECT_EQ(health.state, 1);
  EXPECT_THAT(
      health.line,
      HasSubstr("archive: not configured: 1 waiting (see: scriptorium sinks forget archive)"));
  EXPECT_EQ(judged("", "", R"(,"configured":false,"waiting":0)").state, 0);
}

TEST(HealthTest, ARefusedReloadWarnsWithItsReason) {
  const Health health =
      judge_health(R"({"reload_refused":"scriptorium.toml:3: cluster: missing"})", {});
  EXPECT_EQ(health.state, 1);
  EXPECT_THAT(health.line,
              HasSubstr("the last reload was refused: scriptorium.toml:3: cluster: missing"));
  EXPECT_EQ(judge_health(R"({"reload_refused":null})", {}).state, 0);
}

TEST(HealthTest, MailsThatWaitOrMayBeLostWarn) {
  const Health health = judge_health(
      R"({"mail":{"waiting":3,"waiting_for_a_day":2,"may_be_lost":["alice on lab, 2026-W46"]}})",
      {});
  EXPECT_EQ(health.state, 1);
  EXPECT_THAT(health.line, HasSubstr("2 mails could not be handed over for a day"));
  EXPECT_THAT(health.line, HasSubstr("1 user may have got no mail"));
  EXPECT_EQ(judge_health(R"({"mail":{"waiting":3,"may_be_lost":[]}})", {}).state, 0);
  EXPECT_EQ(judge_health(R"({"mail":null})", {}).state, 0);
}

TEST(HealthTest, NoAnswerIsCritical) {
  for (const char* text : {"", "[]", "null"}) EXPECT_EQ(judge_health(text, {}).state, 2) << text;
  EXPECT_EQ(no_answer("no daemon runs").line, "SCRIPTORIUM CRITICAL - no daemon runs");
  EXPECT_THAT(no_answer("x\ny").line, Not(HasSubstr("\n")));
}

}  // namespace
}  // namespace scriptorium::cli::test
