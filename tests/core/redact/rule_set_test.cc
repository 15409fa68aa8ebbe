#include "core/redact/rule_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/redact/expression.h"
#include "core/redact/rule_file.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::redact {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
using namespace std::string_literals;

// A rule for "tok_" and eight hexadecimal digits, for tests that need any rule at all.
constexpr const char* kTokenRule =
    "[[rule]]\n"
    "name = 'lab-token'\n"
    "about = 'a token of the lab'\n"
    "keywords = ['tok_']\n"
    "regex = '(tok_[0-9a-f]{8})'\n";

// What was found, as "rule:line[the bytes]", with "?" before one that is only reported.
std::vector<std::string> described(std::string_view text, const std::vector<Finding>& findings) {
  std::vector<std::string> result;
  for (const Finding& f : findings) {
    result.push_back((f.kept ? "?" : "") + f.rule->name + ":" + std::to_string(f.line) + "[" +
                     std::string(text.substr(f.begin, f.end - f.begin)) + "]");
  }
  return result;
}

std::vector<std::string> texts_of(const Problems& problems) {
  std::vector<std::string> result;
  for (const Problem& problem : problems.list()) result.push_back(problem.text());
  return result;
}

class RuleSetTest : public testing::Test {
 protected:
  std::vector<std::string> make(const std::vector<std::string>& files) {
    Problems problems;
    std::vector<RuleFile> parsed;
    for (std::size_t n = 0; n < files.size(); ++n)
      parsed.push_back(parse_rule_file(files[n], std::string(1, "abc"[n]) + ".toml", problems));
    rules_ = RuleSet::make(std::move(parsed), problems);
    problems.sort();
    return texts_of(problems);
  }
  std::vector<std::string> find(std::string_view text, Place place = Place::kScript,
                                Mode mode = Mode::kDefault) {
    return described(text, rules_->find(mode, place, text));
  }

  std::shared_ptr<const RuleSet> rules_;
};

TEST_F(RuleSetTest, FindsASecretAtTheStartInTheMiddleAndAtTheEnd) {
  ASSERT_THAT(make({kTokenRule}), IsEmpty());
  EXPECT_THAT(find("tok_00000001"), ElementsAre("lab-token:1[tok_00000001]"));
  EXPECT_THAT(find("tok_00000001 and\nx=tok_00000002\n\nTOK_ tok_00000003"),
              ElementsAre("lab-token:1[tok_00000001]", "lab-token:2[tok_00000002]",
                          "lab-token:4[tok_00000003]"));
  EXPECT_THAT(find(""), IsEmpty());
  EXPECT_THAT(find("tok_0000"), IsEmpty());
}

TEST_F(RuleSetTest, SeveralSecretsOnOneLineAreAllFound) {
  ASSERT_THAT(make({kTokenRule}), IsEmpty());
  EXPECT_THAT(find("a=tok_00000001;b=tok_00000002,tok_x,tok_00000003"),
              ElementsAre("lab-token:1[tok_00000001]", "lab-token:1[tok_00000002]",
                          "lab-token:1[tok_00000003]"));
}

TEST_F(RuleSetTest, ALineOfAScriptThatEndsInABackslashIsJoinedWithTheNext) {
  ASSERT_THAT(make({"[[rule]]\nname='login'\nabout='a password'\nkeywords=['login']\n"
                    "regex='login .*-p (\\w+)'\n"}),
              IsEmpty());
  EXPECT_THAT(find("x\nlogin \\\n  -u me \\\n  -p pa55word\ny"), ElementsAre("login:4[pa55word]"));
  EXPECT_THAT(find("login \\\r\n  -p pa55word\r\n"), ElementsAre("login:2[pa55word]"));
  // The keyword and the secret themselves may be split.
  EXPECT_THAT(find("lo\\\ngin -p pa55\\\nword\n"), ElementsAre("login:2[pa55\\\nword]"));
  EXPECT_THAT(find("login -p pa55word\\\n"), ElementsAre("login:1[pa55word]"));
  EXPECT_THAT(find("\\\n\\\nlogin -p pa55word\\"), ElementsAre("login:3[pa55word]"));
  // Neither a quoted backslash nor one in a comment continues a line.
  EXPECT_THAT(find("login \\\\\n -p pa55word"), IsEmpty());
  EXPECT_THAT(find("  # login \\\n -p pa55word"), IsEmpty());
  // Only the shell joins lines.
  EXPECT_THAT(find("login \\\n -p pa55word", Place::kValue), IsEmpty());
  EXPECT_THAT(find("login \\\n -p pa55word", Place::kText), IsEmpty());
}

TEST_F(RuleSetTest, AnExpressionSeesOneLineWithoutItsEnd) {
  ASSERT_THAT(make({"[[rule]]\nname='whole'\nabout='a line'\nkeywords=['pin']\n"
                    "regex='^pin=(.*)$'\n"}),
              IsEmpty());
  EXPECT_THAT(find("a\r\npin=12\r\nb\r\n"), ElementsAre("whole:2[12]"));
  EXPECT_THAT(find("a\0pin=12\0pin=34"s, Place::kText), ElementsAre("whole:1[12]", "whole:1[34]"));
  EXPECT_THAT(find("x pin=12\n"), IsEmpty());
}

TEST_F(RuleSetTest, BytesThatAreNoCharactersAreMatchedAsBytes) {
  ASSERT_THAT(make({"[[rule]]\nname='whole'\nabout='a line'\nkeywords=['pin']\n"
                    "regex='pin=([^ ]{3})'\n"}),
              IsEmpty());
  EXPECT_THAT(find("\xE4 pin=\xFF\xE4\xC3 \x80"), ElementsAre("whole:1[\xFF\xE4\xC3]"));
  EXPECT_THAT(find("pin=a\0b c"s), ElementsAre());  // NUL ends a line
}

TEST_F(RuleSetTest, ARuleOfSeveralLinesRunsOnceFromItsFirstKeywordOn) {
  ASSERT_THAT(make({"[[rule]]\nname='block'\nabout='a block'\nkeywords=['begin']\n"
                    "regex='(?s)BEGIN.*?END'\nmulti_line=true\n"}),
              IsEmpty());
  EXPECT_THAT(find("no\nthe BEGIN\n1\nEND\nbegin\nBEGIN 2\nEND END"),
              ElementsAre("block:2[BEGIN\n1\nEND]", "block:6[BEGIN 2\nEND]"));
  EXPECT_THAT(find("BEGIN\n"), IsEmpty());
}

TEST_F(RuleSetTest, ARuleAppliesWhereItSays) {
  ASSERT_THAT(make({kTokenRule + "applies = ['value']\n"s}), IsEmpty());
  EXPECT_THAT(find("tok_00000001", Place::kValue), ElementsAre("lab-token:1[tok_00000001]"));
  EXPECT_THAT(find("tok_00000001", Place::kScript), IsEmpty());
  EXPECT_THAT(find("tok_00000001", Place::kText), IsEmpty());
}

TEST_F(RuleSetTest, TheModeDecidesWhichRulesRunAndWhatIsKept) {
  ASSERT_THAT(make({kTokenRule + "strict = true\n"s +
                    "[[rule]]\nname='pin'\nabout='a pin'\nkeywords=['pin=']\n"
                    "regex='pin=(\\d+)'\n"
                    "[[rule]]\nname='url'\nabout='a url'\nkeywords=['url=']\n"
                    "regex='url=(\\w+)'\naction='flag'\n"}),
              IsEmpty());
  constexpr const char* kText = "pin=12 tok_00000001 url=here";
  EXPECT_THAT(find(kText, Place::kScript, Mode::kDefault),
              ElementsAre("pin:1[12]", "?url:1[here]"));
  EXPECT_THAT(find(kText, Place::kScript, Mode::kStrict),
              ElementsAre("pin:1[12]", "lab-token:1[tok_00000001]", "?url:1[here]"));
  EXPECT_THAT(find(kText, Place::kScript, Mode::kFlag), ElementsAre("?pin:1[12]", "?url:1[here]"));
}

TEST_F(RuleSetTest, ASecretOfTooLittleEntropyOrOnTheAllowListIsNone) {
  ASSERT_THAT(make({kTokenRule + "entropy = 2.5\nallow = ['^tok_dead', 'beef$']\n"s}), IsEmpty());
  EXPECT_THAT(find("tok_00000000 tok_12345678"), ElementsAre("lab-token:1[tok_12345678]"));
  EXPECT_THAT(find("tok_dead1234 tok_5678beef tok_1dead234"),
              ElementsAre("lab-token:1[tok_1dead234]"));
}

TEST_F(RuleSetTest, APlaceholderOrAnEmptySecretIsNoneAndTheSearchGoesOnBehindIt) {
  ASSERT_THAT(make({"[[rule]]\nname='pin'\nabout='a pin'\nkeywords=['pin=']\n"
                    "regex='nopin=\\w+()|pin=(\\S+)'\n"}),
              IsEmpty());
  EXPECT_THAT(find("pin=$PIN pin=77 nopin=88 pin=99"), ElementsAre("pin:1[77]", "pin:1[99]"));
}

TEST_F(RuleSetTest, FindingsThatOverlapAreRemovedTogether) {
  const auto rule = [](const std::string& name, const std::string& regex,
                       const std::string& more = "") {
    return "[[rule]]\nname='" + name + "'\nabout='x'\nkeywords=['key']\nregex='" + regex + "'\n" +
           more;
  };
  // The first names it; of two that begin together the longest.
  ASSERT_THAT(make({rule("a", "key (\\w+-\\w+)") + rule("b", "-(\\w+-\\w+)")}), IsEmpty());
  EXPECT_THAT(find("key aa-bb-cc-dd"), ElementsAre("a:1[aa-bb-cc]"));
  ASSERT_THAT(make({rule("a", "key (\\w+)") + rule("b", "key (\\w+-\\w+)")}), IsEmpty());
  EXPECT_THAT(find("key aa-bb"), ElementsAre("b:1[aa-bb]"));
  // Neighbours stay two.
  ASSERT_THAT(make({rule("a", "key (\\w+)") + rule("b", "key \\w+(-\\w+)")}), IsEmpty());
  EXPECT_THAT(find("key aa-bb"), ElementsAre("a:1[aa]", "b:1[-bb]"));
  // What is only reported does not keep anything, nor does it make more of a removal.
  ASSERT_THAT(make({rule("a", "key .*", "action='flag'\n") + rule("b", "-(\\w+)")}), IsEmpty());
  EXPECT_THAT(find("key aa-bb"), ElementsAre("b:1[bb]"));
  // To drop the variable is more than to replace a part of it.
  ASSERT_THAT(make({rule("a", "key (.*)") + rule("b", "-(\\w+)", "action='drop'\n")}), IsEmpty());
  EXPECT_THAT(find("key aa-bb"), ElementsAre("b:1[aa-bb]"));
}

TEST_F(RuleSetTest, WordsOfTheSiteAreFoundAsTheyAreWritten) {
  ASSERT_THAT(make({"words = ['hunter2', 'Gr\u00fcn-Kohl', 'abcabc', 'abcABC']\n"}), IsEmpty());
  EXPECT_THAT(find("xhunter2 HUNTER2\nGr\xC3\xBCn-Kohl gr\xC3\xBCn-kohl"),
              ElementsAre("site-word:1[hunter2]", "site-word:2[Gr\xC3\xBCn-Kohl]"));
  EXPECT_THAT(find("abcabcabc abcABC"),
              ElementsAre("site-word:1[abcabcabc]", "site-word:1[abcABC]"));
  ASSERT_THAT(make({"words = ['hunter2']\noff = ['site-word']\n"}), IsEmpty());
  EXPECT_THAT(find("hunter2"), IsEmpty());
}

TEST_F(RuleSetTest, ALaterFileSwitchesOffAndChangesActions) {
  ASSERT_THAT(make({kTokenRule, "[actions]\nlab-token = 'flag'\nsite-word = 'drop'\n"}), IsEmpty());
  EXPECT_THAT(find("tok_00000001"), ElementsAre("?lab-token:1[tok_00000001]"));
  EXPECT_EQ(rules_->rule("site-word")->action, Action::kDrop);
  ASSERT_THAT(make({kTokenRule, "off = ['lab-token']\n"}), IsEmpty());
  EXPECT_THAT(find("tok_00000001"), IsEmpty());
  EXPECT_EQ(rules_->rule("lab-token"), nullptr);
  std::vector<std::string> names;
  for (const Rule* rule : rules_->rules()) names.push_back(rule->name);
  EXPECT_THAT(names, ElementsAre("copy", "site-word", "variable-name"));
}

TEST_F(RuleSetTest, WhatRulesSayOfOneAnotherIsCheckedWithPositions) {
  EXPECT_THAT(
      make({kTokenRule, "off = [\n 'lab-tokn']\n[actions]\n'x y' = 'drop'\n\n" + ""s + kTokenRule +
                            "[[rule]]\nname='copy'\nabout='x'\nkeywords=['xx']\nregex='x'\n"}),
      ElementsAre("b.toml:2: off.lab-tokn: there is no rule of this name; did you mean "
                  "\"lab-token\"?",
                  "b.toml:4: actions.\"x y\": there is no rule of this name",
                  "b.toml:7: rule.lab-token.name: there is a rule of this name already: a.toml:2; "
                  "to replace it, choose another name and switch that one off",
                  "b.toml:12: rule.copy.name: there is a rule of this name already in the engine "
                  "itself; to replace it, choose another name and switch that one off"));
}

TEST_F(RuleSetTest, AnExpressionThatDoesNotCompileIsRefused) {
  EXPECT_THAT(
      make({"[[rule]]\nname='a'\nabout='x'\nkeywords=['xx']\nregex='(?=x)'\nallow=['[']\n"}),
      ElementsAre("a.toml:5: rule.a.regex: the expression does not compile: invalid perl "
                  "operator: (?=; allowed: the syntax of RE2, without look-around and back "
                  "references; given: \"(?=x)\"",
                  "a.toml:6: rule.a.allow: the expression does not compile: missing ]: [; "
                  "allowed: the syntax of RE2, without look-around and back references; "
                  "given: \"[\""));
}

TEST_F(RuleSetTest, ARuleThatDoesNotPassItsExamplesIsRefused) {
  EXPECT_THAT(
      make({kTokenRule + "hits = [{ text = 'a tok_00000001', secret = 'tok_00000001' },\n"
                         "        { text = 'a tok_00000001', secret = '00000001' },\n"
                         "        { text = 'tik_00000001', secret = 'tik_00000001' }]\n"
                         "misses = ['tok_', 'tok_00000001 is an example']\n"s}),
      ElementsAre("a.toml:7: rule.lab-token.hits: the rule does not find this secret where "
                  "it applies; one of its keywords must be on the secret's line, and the "
                  "group of its expression must be exactly the secret; given: \"a "
                  "tok_00000001\"",
                  "a.toml:8: rule.lab-token.hits: the rule does not find this secret where "
                  "it applies; one of its keywords must be on the secret's line, and the "
                  "group of its expression must be exactly the secret; given: "
                  "\"tik_00000001\"",
                  "a.toml:9: rule.lab-token.misses: the rule finds a secret here, and should "
                  "not; given: \"tok_00000001 is an example\""));
}

TEST_F(RuleSetTest, NamesAreDeniedInAnyCaseUnlessAllowedByTheSameFileOrALaterOne) {
  ASSERT_THAT(make({"[names]\ndeny = ['*TOKEN*', 'A?[xy]_PIN', 'A_*', '?']\nallow = ['NO_TOKEN', "
                    "'A_?']\n",
                    "[names]\ndeny = ['no_t*']\n", "[names]\nallow = ['*_tokens']\n"}),
              IsEmpty());
  for (const char* name : {"TOKEN", "my_Token_2", "abx_pin", "A_long", "NO_TOKEN", "no_t", "Q"})
    EXPECT_TRUE(rules_->is_denied(name)) << name;
  for (const char* name : {"TOKE", "abz_pin", "xa_", "A_b", "NO_TOKENS", "my_tokens", "", "QQ"})
    EXPECT_FALSE(rules_->is_denied(name)) << name;
  ASSERT_THAT(make({"off = ['variable-name']\n[names]\ndeny = ['*TOKEN*']\n"}), IsEmpty());
  EXPECT_FALSE(rules_->is_denied("TOKEN"));
}

TEST_F(RuleSetTest, TheValuesOfNamesThatTheSiteDeniesAreFoundInScriptsToo) {
  ASSERT_THAT(make({"[names]\ndeny = ['LAB_*_PIN']\nallow = ['LAB_NO_PIN']\n"}), IsEmpty());
  const auto found = [&](std::string_view text) {
    std::string all;
    for (const Finding& f : rules_->find(Mode::kDefault, Place::kScript, text))
      all += (all.empty() ? "" : "|") + std::string(text.substr(f.begin, f.end - f.begin));
    return all;
  };
  EXPECT_EQ(found("export LAB_A_PIN=1234\n"), "1234");
  EXPECT_EQ(found("lab_a_pin='12 34' ./run \"$x\"\n"), "12 34");
  EXPECT_EQ(found("qsub -v A=1,LAB_A_PIN=12,B=2 x LAB_B_PIN=a,b\n"), "12|a,b");
  EXPECT_EQ(found("os.environ[\"LAB_A_PIN\"] = \"1234\"\n"), "1234");
  EXPECT_EQ(found("setenv LAB_A_PIN 1234\n"), "1234");
  EXPECT_EQ(found("export LAB_A_\\\nPIN=1234\n"), "1234");
  EXPECT_EQ(found("LAB_A_PIN=1234"), "1234");
  for (const std::string_view text :
       {"LAB_A_PIN=$1\n", "LAB_A_PIN= ./run\n", "[ \"$LAB_A_PIN\" == 12 ]\n", "LAB_A_PINS=1\n",
        "LAB_NO_PIN=1\n", "LAB_A_PIN=\n", "LAB_A_PIN", "=", "setenv LAB_A_PIN", "setenv "})
    EXPECT_EQ(found(text), "") << text;
  EXPECT_THAT(rules_->find(Mode::kDefault, Place::kValue, "LAB_A_PIN=1234"), IsEmpty());
}

TEST_F(RuleSetTest, BeyondTheMostFindingsTheRestOfTheTextIsOne) {
  ASSERT_THAT(make({kTokenRule}), IsEmpty());
  std::string text;
  for (std::size_t n = 0; n < RuleSet::kMostFindings + 5; ++n) text += "tok_00000001\n";
  auto found = rules_->find(Mode::kDefault, Place::kScript, text);
  ASSERT_EQ(found.size(), RuleSet::kMostFindings + 1);
  EXPECT_EQ(found.back().end, text.size());
}

TEST_F(RuleSetTest, WhereOneLineWouldTakeTooLongItsRestIsRemoved) {
  ASSERT_THAT(make({kTokenRule}), IsEmpty());
  // Each of n secrets may cost a look at the whole rest of the line.
  constexpr std::size_t kSecrets = 8000;
  std::string line;
  for (std::size_t n = 0; n < kSecrets; ++n) line += "tok_00000001 ";
  static_assert(kSecrets * kSecrets * 13 / 2 > Expression::kSearchBudget);
  const auto found = rules_->find(Mode::kDefault, Place::kText, line + "\nx tok_00000001");
  ASSERT_GT(found.size(), 1000U);
  ASSERT_LT(found.size(), kSecrets);
  EXPECT_EQ(found[found.size() - 2].end, line.size());
  EXPECT_EQ(found.back().line, 2U);
}

TEST_F(RuleSetTest, ManyReportedFindingsDoNotHideOneThatIsRemoved) {
  ASSERT_THAT(make({kTokenRule + "action = 'flag'\n"s, "words = ['hunter2']\n"}), IsEmpty());
  std::string text;
  for (std::size_t n = 0; n < RuleSet::kMostFindings + 5; ++n) text += "tok_00000001\n";
  const auto found = rules_->find(Mode::kDefault, Place::kScript, text + "hunter2");
  ASSERT_EQ(found.size(), RuleSet::kMostFindings + 1);
  EXPECT_FALSE(found.back().kept);
  EXPECT_EQ(found.back().begin, text.size());
}

TEST_F(RuleSetTest, TheFingerprintFollowsTheRules) {
  const auto fingerprint = [&](const std::vector<std::string>& files) {
    EXPECT_THAT(make(files), IsEmpty());
    return rules_->fingerprint();
  };
  const std::string first = fingerprint({kTokenRule});
  EXPECT_EQ(fingerprint({kTokenRule + "misses = ['x']\n"s}), first);
  EXPECT_NE(fingerprint({kTokenRule + "entropy = 1\n"s}), first);
  EXPECT_NE(fingerprint({kTokenRule, "[actions]\nlab-token = 'flag'\n"}), first);
  EXPECT_NE(fingerprint({kTokenRule, "[names]\ndeny = ['X']\n"}), first);
  EXPECT_NE(fingerprint({kTokenRule, "words = ['hunter2']\n"}), fingerprint({kTokenRule, ""}));
  EXPECT_NE(fingerprint({"words = ['hunter2']\n"}), fingerprint({"words = ['hunter3']\n"}));
}

class LoadRulesTest : public testing::Test {
 protected:
  std::vector<std::string> load() {
    Problems problems;
    rules_ = RuleSet::load(directory_.path(), problems);
    return texts_of(problems);
  }
  test::TempDir directory_;
  std::shared_ptr<const RuleSet> rules_;
};

TEST_F(LoadRulesTest, AFolderThatIsNotThereAddsNothingToTheShippedRules) {
  Problems problems;
  const auto rules = RuleSet::load(directory_.path() + "/none", problems);
  EXPECT_THAT(texts_of(problems), IsEmpty());
  EXPECT_NE(rules->rule("private-key"), nullptr);
  EXPECT_TRUE(rules->is_denied("HF_TOKEN"));
  EXPECT_FALSE(rules->is_denied("HF_HOME"));
}

TEST_F(LoadRulesTest, FilesOfTheSiteExtendTheShippedRules) {
  directory_.write("20-rules.toml", kTokenRule);
  directory_.write("10-off.toml", "off = ['private-key']\n");
  directory_.write(".hidden.toml", "not toml");
  directory_.write("notes.txt", "not toml");
  EXPECT_THAT(load(), IsEmpty());
  EXPECT_EQ(rules_->rule("private-key"), nullptr);
  EXPECT_NE(rules_->rule("lab-token"), nullptr);
}

TEST_F(LoadRulesTest, EveryProblemOfEveryFileIsReported) {
  directory_.write("a.toml", "of = []\n");
  directory_.write("b.toml", "off = ['nothing-like-it']\n");
  std::filesystem::create_directory(directory_.path() + "/c.toml");
  EXPECT_THAT(load(), UnorderedElementsAre(
                          directory_.path() + "/a.toml:1: of: unknown key; did you mean \"off\"?",
                          directory_.path() +
                              "/b.toml:1: off.nothing-like-it: there is no rule of this name",
                          directory_.path() + "/c.toml: is a directory, not a file"));
}

TEST_F(LoadRulesTest, TheExampleOfTheManualIsAFileOfRules) {
  std::ifstream manual(SCRIPTORIUM_SOURCE_DIR "/docs/redact.md");
  const std::string text{std::istreambuf_iterator<char>(manual), {}};
  const std::size_t begin = text.find("```\noff   =");
  ASSERT_NE(begin, std::string::npos);
  directory_.write("lab.toml", text.substr(begin + 4, text.find("```", begin + 4) - begin - 4));
  EXPECT_THAT(load(), IsEmpty());
  EXPECT_NE(rules_->rule("lab-token"), nullptr);
  EXPECT_TRUE(rules_->is_denied("LAB_DOOR_PIN"));

  directory_.write("lab.toml", "off = ['jwtt']\n");
  EXPECT_THAT(load(), ElementsAre(testing::HasSubstr(
                          "lab.toml:1: off.jwtt: there is no rule of this name; did you mean "
                          "\"jwt\"?")));
}

TEST(ShippedRulesTest, CompileAndPassTheirExamples) {
  Problems problems;
  std::vector<RuleFile> files;
  for (RuleFile& file : shipped_rules()) files.push_back(std::move(file));
  ASSERT_FALSE(files.empty());
  const auto rules = RuleSet::make(std::move(files), problems);
  EXPECT_THAT(texts_of(problems), IsEmpty());
  for (const Rule* rule : rules->rules()) {
    if (rule->file.empty()) continue;  // built in
    bool hit = false;
    bool miss = false;
    for (const Example& example : rule->examples) (example.secret.empty() ? miss : hit) = true;
    EXPECT_TRUE(hit && miss) << rule->name << " has no hit or no near miss to be tested with";
  }
}

}  // namespace
}  // namespace scriptorium::redact
