#include "core/redact/rule_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace scriptorium::redact {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using namespace std::string_literals;

class RuleFileTest : public testing::Test {
 protected:
  std::vector<std::string> parse(std::string_view text) {
    Problems problems;
    file_ = parse_rule_file(text, "lab.toml", problems);
    problems.sort();
    std::vector<std::string> texts;
    for (const Problem& problem : problems.list()) texts.push_back(problem.text());
    return texts;
  }
  // In a rule that is good without it, on line 6.
  std::vector<std::string> parse_in_rule(const std::string& line) {
    return parse("[[rule]]\nname = 'r'\nabout = 'x'\nkeywords = ['kk']\nregex = 'x'\n" + line +
                 "\n");
  }

  RuleFile file_;
};

TEST_F(RuleFileTest, PutsPartsIntoExpressions) {
  EXPECT_THAT(parse("[parts]\nhost = 'gw|portal'\n[[rule]]\nname = 'r'\nabout = 'x'\n"
                    "keywords = ['kk']\nregex = 'kk@{{host}}:{{other}}{{host}}'\n"),
              IsEmpty());
  EXPECT_EQ(file_.rules.at(0).expression, "kk@(?:gw|portal):{{other}}(?:gw|portal)");
  EXPECT_THAT(parse("[parts]\nhost = 3\n"), testing::SizeIs(1));
}

TEST_F(RuleFileTest, ReadsEverythingThatAFileMayHold) {
  EXPECT_THAT(parse("off = ['jwt', 'copy']\n"
                    "words = ['hunter2']\n"
                    "[actions]\n"
                    "url-userinfo = 'flag'\n"
                    "[names]\n"
                    "deny = ['LAB_*_PIN']\n"
                    "allow = ['PUBLIC_KEY']\n"
                    "[[rule]]\n"
                    "name = 'lab-token'\n"
                    "about = 'a token of the lab'\n"
                    "keywords = ['labtok_', 'lab-']\n"
                    "regex = '(labtok_[0-9]+)'\n"
                    "entropy = 3\n"
                    "applies = ['value', 'text']\n"
                    "allow = ['^labtok_0+$']\n"
                    "action = 'drop'\n"
                    "strict = true\n"
                    "multi_line = true\n"
                    "hits = [{ text = 'labtok_12', secret = 'labtok_12' }]\n"
                    "misses = ['labtok_']\n"
                    "[[rule]]\n"
                    "name = 'other'\n"
                    "about = 'x'\n"
                    "keywords = ['other']\n"
                    "regex = 'x'\n"),
              IsEmpty());
  EXPECT_EQ(file_.file, "lab.toml");
  EXPECT_THAT(file_.off, ElementsAre("jwt", "copy"));
  EXPECT_THAT(file_.words, ElementsAre("hunter2"));
  EXPECT_THAT(file_.actions, ElementsAre(testing::Pair("url-userinfo", Action::kFlag)));
  EXPECT_THAT(file_.deny_names, ElementsAre("LAB_*_PIN"));
  EXPECT_THAT(file_.allow_names, ElementsAre("PUBLIC_KEY"));
  ASSERT_EQ(file_.rules.size(), 2U);
  const Rule& rule = file_.rules[0];
  EXPECT_EQ(rule.name, "lab-token");
  EXPECT_EQ(rule.about, "a token of the lab");
  EXPECT_THAT(rule.keywords, ElementsAre("labtok_", "lab-"));
  EXPECT_EQ(rule.expression, "(labtok_[0-9]+)");
  EXPECT_EQ(rule.entropy, 3.0);
  EXPECT_THAT(rule.allow, ElementsAre("^labtok_0+$"));
  EXPECT_EQ(rule.action, Action::kDrop);
  EXPECT_FALSE(rule.script);
  EXPECT_TRUE(rule.value && rule.text && rule.strict && rule.multi_line);
  ASSERT_EQ(rule.examples.size(), 2U);
  EXPECT_EQ(rule.examples[0].secret, "labtok_12");
  EXPECT_EQ(rule.examples[1].text, "labtok_");
  EXPECT_EQ(rule.examples[1].line, 20U);
  EXPECT_EQ(rule.lines.at("regex"), 12U);
  const Rule& defaults = file_.rules[1];
  EXPECT_TRUE(defaults.script && defaults.value && defaults.text);
  EXPECT_FALSE(defaults.strict || defaults.multi_line);
  EXPECT_EQ(defaults.action, Action::kReplace);
}

TEST_F(RuleFileTest, AnEmptyFileSaysNothing) {
  EXPECT_THAT(parse(""), IsEmpty());
  EXPECT_THAT(file_.rules, IsEmpty());
}

TEST_F(RuleFileTest, UnknownKeysAreReportedWithTheNearestOne) {
  EXPECT_THAT(parse("word = ['x']\n[names]\ndenny = []\n[[rule]]\nname = 'r'\nabout = 'x'\n"
                    "keywords = ['kk']\nregexp = 'x'\nregex = 'x'\n"
                    "hits = [{ text = 'x', secret = 'x', why = '' }]\n"),
              ElementsAre("lab.toml:1: word: unknown key; did you mean \"words\"?",
                          "lab.toml:3: names.denny: unknown key; did you mean \"deny\"?",
                          "lab.toml:8: rule.r.regexp: unknown key; did you mean \"regex\"?",
                          "lab.toml:10: rule.r.hits.why: unknown key"));
}

TEST_F(RuleFileTest, WrongTypesAreReported) {
  EXPECT_THAT(parse("off = 'jwt'\nwords = [1]\nactions = 1\nnames = []\nrule = [1]\n"),
              ElementsAre("lab.toml:1: off: wrong type; allowed: list of strings; given: \"jwt\"",
                          "lab.toml:2: words: item 1 of the list is of the wrong type; allowed: "
                          "string; given: ***",
                          "lab.toml:3: actions: wrong type; allowed: table; given: 1",
                          "lab.toml:4: names: wrong type; allowed: table; given: []",
                          "lab.toml:5: rule: wrong type; allowed: tables [[rule]]; given: 1"));
  EXPECT_THAT(parse("[rule]\nname = 'x'\n"),
              ElementsAre("lab.toml:1: rule: wrong type; allowed: tables [[rule]]; given: { name = "
                          "\"x\" }"));
}

TEST_F(RuleFileTest, ARuleNeedsItsFourKeys) {
  EXPECT_THAT(
      parse("\n[[rule]]\n"),
      ElementsAre(
          "lab.toml:2: rule.name: required key is missing (name of the rule); allowed: "
          "string, a lower-case letter, then at most 39 of a-z, 0-9 and -",
          "lab.toml:2: rule.about: required key is missing (what it finds: \"a token of "
          "GitHub\"); allowed: string, 1 .. 80 printable characters",
          "lab.toml:2: rule.keywords: required key is missing (one of them is on each line "
          "with a secret); allowed: list of strings, 2 .. 64 printable characters, in lower "
          "case",
          "lab.toml:2: rule.regex: required key is missing (RE2 expression that finds the "
          "secret); allowed: string"));
}

TEST_F(RuleFileTest, ValuesThatCannotBeMeantAreReported) {
  EXPECT_THAT(
      parse_in_rule("action = 'remove'"),
      ElementsAre("lab.toml:6: rule.r.action: unknown value; allowed: \"replace\", \"drop\", "
                  "\"flag\"; given: \"remove\""));
  EXPECT_THAT(parse_in_rule("applies = ['scripts', 'value']"),
              ElementsAre("lab.toml:6: rule.r.applies: unknown place; did you mean \"script\"?; "
                          "allowed: \"script\", \"value\", \"text\"; given: \"scripts\""));
  EXPECT_THAT(parse_in_rule("applies = []"),
              ElementsAre("lab.toml:6: rule.r.applies: is empty; allowed: \"script\", \"value\", "
                          "\"text\"; given: []"));
  EXPECT_THAT(parse_in_rule("entropy = 9"),
              ElementsAre("lab.toml:6: rule.r.entropy: out of range; allowed: 0 .. 8; given: 9"));
  EXPECT_THAT(parse_in_rule("hits = [{ text = 'abc', secret = 'x' },\n'abc']"),
              ElementsAre("lab.toml:6: rule.r.hits.secret: is not a part of the text; given: ***",
                          "lab.toml:7: rule.r.hits: wrong type; allowed: list of { text = \"...\", "
                          "secret = \"...\" }; given: \"abc\""));
  EXPECT_THAT(
      parse("words = ['short']\n[names]\ndeny = ['[x']\n[actions]\njwt = 'none'\n"),
      ElementsAre("lab.toml:1: words: a word this short is part of ordinary texts; allowed: "
                  "6 .. 256 bytes in one line; given: ***",
                  "lab.toml:3: names.deny: '[' without ']'; given: \"[x\"",
                  "lab.toml:5: actions.jwt: unknown value; allowed: \"replace\", \"drop\", "
                  "\"flag\"; given: \"none\""));
}

TEST_F(RuleFileTest, KeywordsAreInLowerCaseAndNotTooShort) {
  const auto parse_keywords = [&](const std::string& list) {
    return parse("[[rule]]\nname = 'R'\nabout = ''\nkeywords = " + list + "\nregex = ''\n");
  };
  const std::string rest = "; allowed: 2 .. 64 printable characters, in lower case; given: ";
  EXPECT_THAT(
      parse_keywords("['k', 'Key', \"a\\tb\"]"),
      ElementsAre(
          "lab.toml:2: rule.name: cannot be used; allowed: a lower-case letter, then at "
          "most 39 of a-z, 0-9 and -; given: \"R\"",
          "lab.toml:3: rule.about: cannot be used; allowed: 1 .. 80 printable characters; "
          "given: \"\"",
          "lab.toml:4: rule.keywords: a keyword of one character is on every line" + rest + "\"k\"",
          "lab.toml:4: rule.keywords: keywords match in any case and are written in lower "
          "case" +
              rest + "\"Key\"",
          "lab.toml:4: rule.keywords: keywords are printable ASCII" + rest + "\"a\\tb\"",
          "lab.toml:5: rule.regex: cannot be used; given: \"\""));
  EXPECT_EQ(parse_keywords("[]")[2], "lab.toml:4: rule.keywords: is empty" + rest + "[]");
}

TEST_F(RuleFileTest, AMistakeInTheSyntaxHidesNoOther) {
  EXPECT_THAT(
      parse("off = [\nwords = ['a']\n"),
      ElementsAre("lab.toml:1: off: syntax error: the list that begins here has no closing "
                  "']'",
                  "lab.toml:2: words: a word this short is part of ordinary texts; allowed: "
                  "6 .. 256 bytes in one line; given: ***"));
}

}  // namespace
}  // namespace scriptorium::redact
