#include "core/cli/search_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/cli/command_line.h"
#include "core/query/parse.h"

namespace scriptorium::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr Timestamp kNow{1795224382'000'000'000};  // 2026-11-21T01:26:22Z

std::variant<Searchable::Request, SearchProblem> requested(std::vector<std::string> words) {
  words.insert(words.begin(), "search");
  const ParsedLine line = parse_command_line(words);
  EXPECT_TRUE(line.arguments) << line.err;
  return search_request(line.arguments.value_or(Arguments{}), kNow, kUtc);
}
Searchable::Request good(const std::vector<std::string>& words) {
  auto result = requested(words);
  const auto* problem = std::get_if<SearchProblem>(&result);
  EXPECT_EQ(problem, nullptr) << problem->text;
  return problem == nullptr ? std::get<Searchable::Request>(result) : Searchable::Request{};
}
std::string problem(const std::vector<std::string>& words) {
  auto result = requested(words);
  const auto* found = std::get_if<SearchProblem>(&result);
  EXPECT_NE(found, nullptr);
  return found == nullptr ? "" : found->text;
}

TEST(SearchRequestTest, JoinsItsWordsWithBlanks) {
  EXPECT_EQ(good({"gromacs", "user:alice"}).query, query::parse("gromacs user:alice", kNow).query);
  EXPECT_EQ(good({"\"mpirun -np\"", "gpu"}).query, query::parse("\"mpirun -np\" gpu", kNow).query);
  EXPECT_EQ(good({}).query.kind, Query::Kind::kAll);
}

TEST(SearchRequestTest, TakesWordsThatLookLikeOptionsIntoTheQuery) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--", "gromacs", "-gpu"},
                                                {"gromacs", "-gpu", "--limit", "7"},
                                                {"--limit=7", "gromacs", "-gpu"}}) {
    EXPECT_EQ(good(words).query, query::parse("gromacs -gpu", kNow).query);
  }
  EXPECT_EQ(good({"gromacs", "-gpu", "--limit", "7"}).limit, 7U);
  EXPECT_EQ(good({"-compile"}).query, query::parse("-compile", kNow).query);
  EXPECT_EQ(good({"--mem=16G", "-C2"}).query, query::parse("--mem=16G", kNow).query);
  EXPECT_EQ(good({"--mem=16G", "-C2"}).context_lines, 2U);
  EXPECT_EQ(good({"--ntasks-per-node", "-c", "file", "x"}).query,
            query::parse("--ntasks-per-node x", kNow).query);
}

TEST(SearchRequestTest, AMistypedOptionIsNotSearchedFor) {
  EXPECT_EQ(parse_command_line({"search", "x", "--limti", "7"}).exit_code, 64);
  EXPECT_EQ(parse_command_line({"search", "x", "--jsn"}).exit_code, 64);
}

TEST(SearchRequestTest, SinceIsOneMoreConditionOnTheTimeOfSubmission) {
  const Query query = good({"gromacs", "--since", "1d"}).query;
  ASSERT_EQ(query.kind, Query::Kind::kAnd);
  ASSERT_EQ(query.children.size(), 2U);
  EXPECT_EQ(query.children[1].kind, Query::Kind::kRange);
  EXPECT_EQ(query.children[1].field, QueryField::kSubmitted);
  EXPECT_EQ(query.children[1].from, kNow.nanoseconds - 86'400 * kSecond);
  EXPECT_EQ(good({"--since", "2026-11-01"}).query.kind, Query::Kind::kRange);
}

TEST(SearchRequestTest, SinceCannotSmuggleAQuery) {
  EXPECT_THAT(problem({"--since", "1d OR user:root"}), HasSubstr("--since"));
  EXPECT_THAT(problem({"--since", "yesterdayish"}), HasSubstr("--since"));
}

TEST(SearchRequestTest, ShowsWhereAQueryIsWrong) {
  const std::string text = problem({"gromacs", "usr:alice"});
  EXPECT_THAT(text, StartsWith("search:1:"));
  EXPECT_THAT(text, HasSubstr("did you mean \"user\"?"));
  EXPECT_THAT(text, HasSubstr("^"));
}

TEST(SearchRequestTest, SumsAskForNoHits) {
  const Searchable::Request count = good({"gpu", "--count"});
  EXPECT_EQ(count.limit, 0U);
  EXPECT_TRUE(count.count && count.exact);
  const Searchable::Request facets = good({"gpu", "--facets", "user,module"});
  EXPECT_EQ(facets.limit, 0U);
  EXPECT_THAT(facets.facets, ElementsAre(QueryField::kUser, QueryField::kModule));
  EXPECT_FALSE(facets.exact);
  EXPECT_THAT(problem({"--facets", "usr"}), HasSubstr("did you mean \"user\"?"));
}

TEST(SearchRequestTest, LinesAreOnlyAskedForWhereTheyAreShown) {
  EXPECT_EQ(good({"x", "-C", "2"}).context_lines, 2U);
  EXPECT_EQ(good({"x"}).most_lines, 3U);
  EXPECT_EQ(good({"x", "--json"}).most_lines, 3U);
  for (const char* option : {"--csv", "--ids", "-0"}) EXPECT_EQ(good({"x", option}).most_lines, 0U);
}

}  // namespace
}  // namespace scriptorium::cli
