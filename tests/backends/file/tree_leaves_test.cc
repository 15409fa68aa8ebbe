#include "backends/file/tree_leaves.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::file {
namespace {

Query field_node(QueryField field, std::string text) {
  Query query;
  query.kind = Query::Kind::kField;
  query.field = field;
  query.text = std::move(text);
  return query;
}
Query submitted_node(const char* from, const char* to) {
  Query query;
  query.kind = Query::Kind::kRange;
  query.field = QueryField::kSubmitted;
  if (*from != '\0') query.from = parse_rfc3339(from)->nanoseconds;
  if (*to != '\0') query.to = parse_rfc3339(to)->nanoseconds;
  return query;
}
Query all_of(std::vector<Query> children) {
  Query query;
  query.kind = Query::Kind::kAnd;
  query.children = std::move(children);
  return query;
}

Layout layout_of(const char* text) { return *Layout::parse(text); }

class TreeLeavesTest : public testing::Test {
 protected:
  std::vector<std::string> leaves(const Layout& layout, const Wanted& wanted) {
    std::vector<std::string> paths;
    const std::function<bool()> never = [] { return false; };
    UniqueFd fd(::open(directory_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (const Leaf& leaf : find_leaves(layout, fd.get(), wanted, never).list)
      paths.push_back(leaf.path);
    return paths;
  }
  void make(std::vector<std::string> paths) {
    for (const std::string& path : paths) directory_.make_directory(path);
  }
  test::TempDir directory_;
};

using Paths = std::vector<std::string>;

TEST(LayoutDirectoryTest, ReadsWhatANameTells) {
  const Layout layout = layout_of("x-{user}/{year}{month}-{day}/{account}-{user}/{job_id}.{ext}");
  Layout::DirectoryFacts facts;
  EXPECT_TRUE(layout.read_directory(0, "x-alice", facts));
  EXPECT_EQ(facts.user, "alice");
  EXPECT_TRUE(layout.read_directory(1, "202611-14", facts));
  EXPECT_EQ(facts.year, 2026u);
  EXPECT_EQ(facts.month, 11u);
  EXPECT_EQ(facts.day, 14u);
  for (const char* name : {"20261114", "202611-1x", "2026", "202611-141", ""})
    EXPECT_FALSE(layout.read_directory(1, name, facts)) << name;
  EXPECT_FALSE(layout.read_directory(0, "alice", facts));
  EXPECT_FALSE(layout.read_directory(0, "x-", facts));
  EXPECT_FALSE(layout.read_directory(0, "x-lost+found", facts));
  EXPECT_TRUE(layout.read_directory(0, "x-%2Fj\xc3\xbcrgen~", facts));
  // Where the account ends is not known.
  Layout::DirectoryFacts none;
  EXPECT_TRUE(layout.read_directory(2, "a-b-c", none));
  EXPECT_EQ(none.user, std::nullopt);
  // It may have been cut.
  EXPECT_TRUE(layout.read_directory(1, std::string(150, 'x'), none));
  EXPECT_EQ(none.year, std::nullopt);
}

TEST(TreeSpanTest, IsWhatTheDateCovers) {
  const auto shown = [](Layout::DirectoryFacts facts) {
    const TimeSpan span = span_of(facts);
    if (span == TimeSpan{}) return std::string("any");
    return format_rfc3339({span.from}, TimePrecision::kSeconds) + " " +
           format_rfc3339({span.to}, TimePrecision::kSeconds);
  };
  EXPECT_EQ(shown({.year = 2026}), "2026-01-01T00:00:00Z 2026-12-31T23:59:59Z");
  EXPECT_EQ(shown({.year = 2026, .month = 12}), "2026-12-01T00:00:00Z 2026-12-31T23:59:59Z");
  EXPECT_EQ(shown({.year = 2024, .month = 2, .day = 29}),
            "2024-02-29T00:00:00Z 2024-02-29T23:59:59Z");
  EXPECT_EQ(shown({.year = 2026, .month = 2, .day = 30}), "any");
  EXPECT_EQ(shown({.year = 2026, .month = 13}), "any");
  EXPECT_EQ(shown({.month = 12}), "any");
  EXPECT_EQ(shown({.year = 9999}), "any");
}

TEST_F(TreeLeavesTest, ComeTheNewestFirst) {
  make({"alice/2026/11", "alice/2025/12", "bob/2026/11", "bob/2026/02", "lost+found",
        ".hidden/2026/11", "alice/notes/11"});
  EXPECT_EQ(leaves(layout_of("user-month"), {}),
            (Paths{"alice/2026/11", "bob/2026/11", "bob/2026/02", "alice/2025/12"}));
}

TEST_F(TreeLeavesTest, AreThoseThatTheQueryAsksFor) {
  make({"alice/2026/11", "alice/2026/02", "bob/2026/11", "unverified/2026/11",
        "%75nverified/2026/11"});
  const Layout layout = layout_of("user-month");
  const auto asked = [&](const Query& query) { return leaves(layout, wanted_by(query, {})); };
  EXPECT_EQ(asked(all_of({field_node(QueryField::kUser, "ALICE"),
                          submitted_node("2026-10-01T00:00:00Z", "")})),
            (Paths{"%75nverified/2026/11", "alice/2026/11", "unverified/2026/11"}));
  EXPECT_EQ(asked(submitted_node("", "2026-02-01T00:00:00Z")), (Paths{"alice/2026/02"}));
  EXPECT_EQ(asked(field_node(QueryField::kUser, "a*")).size(), 5u);
  EXPECT_EQ(asked(field_node(QueryField::kUser, "1001")).size(), 5u);  // may be a uid
  // Not what every job has.
  Query either = all_of({field_node(QueryField::kUser, "bob"), submitted_node("", "")});
  either.kind = Query::Kind::kOr;
  EXPECT_EQ(asked(either).size(), 5u);
  Visibility own{.all = false, .users = {{.name = "bob"}}, .accounts = {}};
  EXPECT_EQ(leaves(layout, wanted_by(Query{}, own)),
            (Paths{"%75nverified/2026/11", "bob/2026/11"}));
  own.accounts = {{"lab", "chem"}};
  EXPECT_EQ(leaves(layout, wanted_by(Query{}, own)).size(), 5u);
}

TEST_F(TreeLeavesTest, AreOnePartWhereANameDoesNotTellTheTime) {
  make({"a-b/2026", "c-d/2025", "a-b/99zz"});
  const std::function<bool()> never = [] { return false; };
  UniqueFd fd(::open(directory_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const Leaves found =
      find_leaves(layout_of("{user}-{account}/{job_name}/{job_id}.{ext}"), fd.get(), {}, never);
  ASSERT_EQ(found.list.size(), 3u);
  for (const Leaf& leaf : found.list) EXPECT_EQ(leaf.span, TimeSpan{});
}

TEST_F(TreeLeavesTest, CountsClosedDirectoriesAndStopsWhenTold) {
  make({"alice/2026/11"});
  UniqueFd fd(::open(directory_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::function<bool()> always = [] { return true; };
  EXPECT_FALSE(find_leaves(layout_of("user-month"), fd.get(), {}, always).finished);
}

}  // namespace
}  // namespace scriptorium::file
