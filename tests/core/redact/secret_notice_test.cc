#include "core/redact/secret_notice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/redact/tally.h"

namespace scriptorium::redact {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

constexpr const char* kRevoke =
    "Revoke what is secret: the scheduler's own copies of the job still hold it.";

std::shared_ptr<const RuleSet> lab_rules() {
  Rule rule;
  rule.name = "lab-token";
  rule.about = "a token of the lab's gateway";
  rule.keywords = {"labtok_"};
  rule.expression = "labtok_[0-9]+";
  RuleFile file;
  file.file = "lab.toml";
  file.rules.push_back(rule);
  Problems problems;
  auto rules = RuleSet::make({file}, problems);
  EXPECT_TRUE(problems.empty());
  return rules;
}

std::vector<std::string> notice_of(const std::vector<Redaction>& redactions,
                                   Reader reader = Reader::kOwner) {
  return secret_notice(redactions, lab_rules().get(), reader);
}

TEST(SecretNoticeTest, SaysWhatWasWhereAndThatItIsToBeRevoked) {
  EXPECT_THAT(notice_of({{.rule = "lab-token", .where = "script", .count = 1, .lines = {12}}}),
              ElementsAre("Your job script held what looks like a token of the lab's gateway in "
                          "line 12. It was not archived.",
                          kRevoke));
}

TEST(SecretNoticeTest, IsNotAddressedToSomebodyElse) {
  EXPECT_THAT(
      notice_of({{.rule = "lab-token", .where = "script", .count = 1}}, Reader::kAnybody).front(),
      HasSubstr("The job script held"));
}

TEST(SecretNoticeTest, CountsWhatWasFoundInSeveralLines) {
  EXPECT_THAT(
      notice_of({{.rule = "lab-token", .where = "script", .count = 4, .lines = {3, 12, 40}}})
          .front(),
      HasSubstr("gateway, 4 times in lines 3, 12 and 40. They were not archived."));
}

TEST(SecretNoticeTest, DoesNotPretendThatACutListIsAll) {
  std::vector<std::uint32_t> lines(kMostRedactionPlaces);
  std::iota(lines.begin(), lines.end(), 1);
  EXPECT_THAT(
      notice_of({{.rule = "lab-token", .where = "script", .count = 30, .lines = lines}}).front(),
      HasSubstr("18, 19, 20 and more."));
}

TEST(SecretNoticeTest, NamesVariables) {
  EXPECT_THAT(
      notice_of({{.rule = "lab-token", .where = "environment", .count = 1, .names = {"GATE"}}})
          .front(),
      "Your job's variable GATE held what looks like a token of the lab's gateway. It was not "
      "archived.");
  EXPECT_THAT(notice_of({{.rule = "variable-name",
                          .where = "environment",
                          .count = 2,
                          .names = {"HF_TOKEN", "PGPASSWORD"}}})
                  .front(),
              "Your job's variables HF_TOKEN and PGPASSWORD have names of secrets. Their values "
              "were not archived.");
}

TEST(SecretNoticeTest, SaysWhatIsInTheArchiveAllTheSame) {
  const auto notice =
      notice_of({{.rule = "lab-token", .where = "job.name", .count = 1, .kept = true},
                 {.rule = "variable-name",
                  .where = "environment",
                  .count = 1,
                  .kept = true,
                  .names = {"A_KEY"}}});
  EXPECT_THAT(
      notice,
      ElementsAre("Your job's name held what looks like a token of the lab's gateway. It IS "
                  "in the archive.",
                  "Your job's variable A_KEY has the name of a secret. Its value IS in the "
                  "archive.",
                  "Revoke what is secret: whoever may read the archive can read it."));
}

TEST(SecretNoticeTest, CallsAnUnknownRuleByItsName) {
  const std::vector<Redaction> found = {{.rule = "elsewhere", .where = "script", .count = 1}};
  EXPECT_THAT(notice_of(found).front(), HasSubstr("what looks like a secret (rule elsewhere)."));
  EXPECT_EQ(secret_notice(found, nullptr, Reader::kOwner), notice_of(found));
}

TEST(SecretNoticeTest, TellsAFindingInTheScriptOnce) {
  const Redaction script{.rule = "lab-token", .where = "script", .count = 1, .lines = {2}};
  const Redaction directive{.rule = "lab-token", .where = "script.directives", .count = 1};
  EXPECT_THAT(notice_of({script, directive}), SizeIs(2));
  EXPECT_THAT(notice_of({directive}).front(), HasSubstr("Your job's directives held"));
}

TEST(SecretNoticeTest, HasNothingToTellOfWhatASiteLeavesOut) {
  EXPECT_THAT(notice_of({}), IsEmpty());
  EXPECT_THAT(notice_of({{.rule = "environment", .where = "environment", .count = 3},
                         {.rule = "environment.unparsable", .where = "record", .count = 1}}),
              IsEmpty());
}

TEST(TallyTest, AddsUpByRule) {
  Tally tally;
  add(tally, std::vector<Redaction>{{.rule = "jwt", .where = "script", .count = 2},
                                    {.rule = "jwt", .where = "job.name", .count = 1, .kept = true},
                                    {.rule = "x", .where = "script", .count = 1}});
  add(tally, Tally{{"x", 4}});
  EXPECT_THAT(tally, ElementsAre(Pair("jwt", 3), Pair("x", 5)));
}

}  // namespace
}  // namespace scriptorium::redact
