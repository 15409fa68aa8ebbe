#include "core/redact/rule_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/redact/rule_file.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::redact {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
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
