#include "core/query/unknown_end.h"

#include <gtest/gtest.h>

#include "core/api/kit/search/query_matcher.h"
#include "tests/support/queries.h"

namespace scriptorium::query {
namespace {

using test::all_of_query;
using test::any_of_query;
using test::field_query;
using test::not_query;

const Query kFailed = field_query(QueryField::kState, "FAILED");
const Query kAlice = field_query(QueryField::kUser, "alice");

JobRow job_of(const std::string& user, std::optional<std::string> state) {
  JobRow job;
  job.user = user;
  job.state = std::move(state);
  return job;
}

// Whether a job of `user` whose end is unknown is counted apart.
bool counts(const Query& query, const std::string& user) {
  const auto unknown = unknown_end(query);
  EXPECT_TRUE(unknown);
  const auto matcher = QueryMatcher::create(*unknown);
  EXPECT_TRUE(matcher);
  EXPECT_FALSE(matcher->matches(job_of(user, "FAILED"), {}));
  EXPECT_FALSE(matcher->matches(job_of(user, "COMPLETED"), {}));
  return matcher->matches(job_of(user, std::nullopt), {});
}

TEST(UnknownEndTest, AreTheJobsThatOnlyTheirOutcomeKeepsOut) {
  EXPECT_TRUE(counts(kFailed, "bob"));
  EXPECT_TRUE(counts(all_of_query({kAlice, kFailed}), "alice"));
  EXPECT_FALSE(counts(all_of_query({kAlice, kFailed}), "bob"));
  EXPECT_TRUE(counts(all_of_query({not_query(kAlice), kFailed}), "bob"));
  // A job of alice is found already, whatever its end.
  EXPECT_FALSE(counts(any_of_query({kAlice, kFailed}), "alice"));
  EXPECT_TRUE(counts(any_of_query({kAlice, kFailed}), "bob"));
  // What excludes an outcome finds the jobs without one.
  EXPECT_TRUE(
      counts(all_of_query({kFailed, not_query(field_query(QueryField::kNode, "n1"))}), "bob"));
}

TEST(UnknownEndTest, AreNoneWhereNoOutcomeIsAskedFor) {
  EXPECT_FALSE(unknown_end(kAlice));
  EXPECT_FALSE(unknown_end(Query{}));
  EXPECT_FALSE(unknown_end(not_query(kFailed)));
  EXPECT_FALSE(unknown_end(all_of_query({kAlice, not_query(kFailed)})));
}

}  // namespace
}  // namespace scriptorium::query
