#include "core/api/kit/search/query_matcher.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace scriptorium {
namespace {

using Kind = Query::Kind;
using Verdict = QueryMatcher::Verdict;

Query node(Kind kind, std::vector<Query> children) {
  Query query;
  query.kind = kind;
  query.children = std::move(children);
  return query;
}
Query text(std::string words, JobPart part = JobPart::kScript) {
  Query query;
  query.kind = Kind::kText;
  query.text = std::move(words);
  query.part = part;
  return query;
}
Query user(std::string name) {
  Query query;
  query.kind = Kind::kField;
  query.field = QueryField::kUser;
  query.text = std::move(name);
  return query;
}
Query variable(std::string name, std::string value) {
  Query query;
  query.kind = Kind::kVariable;
  query.name = std::move(name);
  query.text = std::move(value);
  return query;
}
Query expression(std::string pattern) {
  Query query;
  query.kind = Kind::kExpression;
  query.text = std::move(pattern);
  return query;
}

class QueryMatcherTest : public testing::Test {
 protected:
  QueryMatcherTest() {
    job_.user = "alice";
    texts_.read = [this](JobPart part) {
      ++reads_;
      return std::string_view(part == JobPart::kScript ? script_ : environment_);
    };
  }
  static QueryMatcher made(const Query& query) { return std::move(*QueryMatcher::create(query)); }
  bool matches(const Query& query) { return made(query).matches(job_, texts_); }

  JobRow job_;
  std::string script_ = "#!/bin/bash\nmodule load GROMACS\nsrun gmx mdrun\n";
  std::string environment_{"A=1\0OMP_NUM_THREADS=8\0A=2\0B\0LIST=a=b\0", 38};
  JobTexts texts_;
  int reads_ = 0;
};

TEST_F(QueryMatcherTest, CombinesWhatItsPartsSay) {
  EXPECT_TRUE(matches(Query{}));
  EXPECT_TRUE(matches(node(Kind::kAnd, {text("gmx"), user("alice")})));
  EXPECT_FALSE(matches(node(Kind::kAnd, {text("gmx"), text("vasp")})));
  EXPECT_TRUE(matches(node(Kind::kOr, {text("vasp"), text("gmx")})));
  EXPECT_FALSE(matches(node(Kind::kNot, {text("gmx")})));
  EXPECT_TRUE(matches(node(Kind::kNot, {node(Kind::kAnd, {text("gmx"), user("bob")})})));
  EXPECT_TRUE(matches(expression("^srun.*mdrun$")));
  EXPECT_TRUE(matches(text("omp_num_threads", JobPart::kEnvironment)));
}

TEST_F(QueryMatcherTest, ReadsNoTextWhereTheRowDecides) {
  EXPECT_FALSE(matches(node(Kind::kAnd, {text("gmx"), user("bob")})));
  EXPECT_TRUE(matches(node(Kind::kOr, {text("gmx"), user("alice")})));
  EXPECT_FALSE(matches(node(Kind::kNot, {node(Kind::kOr, {text("gmx"), user("alice")})})));
  EXPECT_EQ(reads_, 0);
}

TEST_F(QueryMatcherTest, JudgesByTheRowAlone) {
  EXPECT_EQ(made(Query{}).judge(job_), Verdict::kYes);
  EXPECT_EQ(made(user("bob")).judge(job_), Verdict::kNo);
  EXPECT_EQ(made(text("x")).judge(job_), Verdict::kNeedsText);
  EXPECT_EQ(made(variable("A", "1")).judge(job_), Verdict::kNeedsText);
  EXPECT_EQ(made(node(Kind::kNot, {text("x")})).judge(job_), Verdict::kNeedsText);
  EXPECT_EQ(made(node(Kind::kAnd, {text("x"), user("bob")})).judge(job_), Verdict::kNo);
  EXPECT_EQ(made(node(Kind::kOr, {text("x"), user("alice")})).judge(job_), Verdict::kYes);
  EXPECT_EQ(made(node(Kind::kOr, {text("x"), user("bob")})).judge(job_), Verdict::kNeedsText);
}

TEST_F(QueryMatcherTest, LetsTheLastOfEqualVariablesCount) {
  EXPECT_TRUE(matches(variable("A", "2")));
  EXPECT_FALSE(matches(variable("A", "1")));
  EXPECT_TRUE(matches(variable("OMP_*", "8")));
  EXPECT_FALSE(matches(variable("omp_num_threads", "8")));  // names have a case
  EXPECT_TRUE(matches(variable("LIST", "A=B")));
  EXPECT_TRUE(matches(variable("LIST", "*")));
  EXPECT_FALSE(matches(variable("B", "*")));  // no value
  EXPECT_FALSE(matches(variable("NONE", "*")));
  environment_ = "A=2";  // not ended by NUL: not understood
  EXPECT_FALSE(matches(variable("A", "2")));
}

TEST_F(QueryMatcherTest, KnowsWhetherAHitHasLinesToShow) {
  EXPECT_TRUE(made(node(Kind::kAnd, {user("a"), text("x")})).has_text());
  EXPECT_TRUE(made(variable("A", "1")).has_text());
  EXPECT_FALSE(made(node(Kind::kNot, {text("x")})).has_text());
  EXPECT_TRUE(made(node(Kind::kNot, {node(Kind::kNot, {text("x")})})).has_text());
  EXPECT_FALSE(made(user("a")).has_text());
}

std::string shown(const std::vector<Searchable::Line>& lines) {
  std::string all;
  for (const auto& line : lines) {
    all += (line.part == JobPart::kScript ? "" : "env ") + std::to_string(line.number) + ":" +
           line.text;
    for (const auto& [begin, end] : line.marks)
      all += " [" + line.text.substr(begin, end - begin) + "]";
    all += "\n";
  }
  return all;
}

TEST_F(QueryMatcherTest, ShowsTheLinesOfAllThatWasFound) {
  script_ = "one\ntwo gmx GMX\r\nthree\nfour vasp gmx";
  const Query query = node(Kind::kAnd, {text("gmx"), node(Kind::kNot, {text("three")}),
                                        node(Kind::kOr, {text("vasp"), variable("OMP_*", "8")})});
  const QueryMatcher matcher = made(query);
  EXPECT_EQ(shown(matcher.lines(texts_, 10, 0)),
            "2:two gmx GMX [gmx] [GMX]\n4:four vasp gmx [vasp] [gmx]\n"
            "env 2:OMP_NUM_THREADS=8 [OMP_NUM_THREADS=8]\n");
  EXPECT_EQ(shown(matcher.lines(texts_, 1, 0)), "2:two gmx GMX [gmx] [GMX]\n");
  EXPECT_EQ(shown(matcher.lines(texts_, 0, 0)), "");
}

TEST_F(QueryMatcherTest, ShowsContextOnce) {
  script_ = "1\n2\n3 x\n4\n5 x\n6\n7\n8\n9 x";
  EXPECT_EQ(shown(made(text("x")).lines(texts_, 10, 1)),
            "2:2\n3:3 x [x]\n4:4\n5:5 x [x]\n6:6\n8:8\n9:9 x [x]\n");
  EXPECT_EQ(shown(made(text("x")).lines(texts_, 1, 3)), "1:1\n2:2\n3:3 x [x]\n4:4\n5:5 x\n6:6\n");
}

TEST_F(QueryMatcherTest, CutsALongLineAroundItsFirstMatch) {
  script_ = std::string(5000, 'a') + " needle " + std::string(5000, 'b');
  const auto lines = made(text("needle")).lines(texts_, 3, 0);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].text.size(), 1024u);
  ASSERT_EQ(lines[0].marks.size(), 1u);
  EXPECT_EQ(lines[0].text.substr(lines[0].marks[0].first, 6), "needle");
}

TEST_F(QueryMatcherTest, EndsForExpressionsThatMatchNothingAtEachByte) {
  script_ = "aa\n\nbb\n";
  EXPECT_EQ(shown(made(expression("x*")).lines(texts_, 10, 0)), "1:aa\n2:\n3:bb\n");
  EXPECT_EQ(shown(made(expression("a\\n\\nb")).lines(texts_, 10, 0)), "1:aa [a]\n");
  script_.clear();
  EXPECT_EQ(shown(made(expression("x*")).lines(texts_, 10, 2)), "");
}

TEST_F(QueryMatcherTest, BoundsTheMarksOfALine) {
  script_ = "";
  for (int i = 0; i < 100'000; ++i) script_ += "x ";
  script_ += "\nx";
  const auto lines = made(text("x")).lines(texts_, 10, 0);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_LE(lines[0].marks.size(), 64u);
  EXPECT_EQ(lines[1].number, 2u);
}

TEST_F(QueryMatcherTest, RefusesAnExpressionThatRe2Refuses) {
  const auto matcher = QueryMatcher::create(node(Kind::kAnd, {text("a"), expression("(")}));
  ASSERT_FALSE(matcher);
  EXPECT_EQ(matcher.error().kind(), ErrorKind::kInvalidConfig);
}

}  // namespace
}  // namespace scriptorium
