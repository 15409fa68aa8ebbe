#include "backends/catalog/coordinators.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <thread>
#include <vector>

#include "backends/catalog/search.h"
#include "core/base/file.h"
#include "core/base/time.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::catalog {
namespace {

// "lab 2026-11-27T10:00:00Z chem: alice bob, org: bob; ..."
std::string text_of(const Result<std::vector<CoordinatorList>>& lists) {
  if (!lists) return lists.error().message();
  std::string text;
  for (const CoordinatorList& list : *lists) {
    text += list.cluster + " " + format_rfc3339(list.asked_at, TimePrecision::kSeconds);
    for (const AccountCoordinators& account : list.accounts) {
      text += " " + account.account + ":";
      for (const std::string& user : account.users) text += " " + user;
    }
    text += "\n";
  }
  return text;
}

CoordinatorList list_of(const std::string& cluster, const std::string& time,
                        std::vector<AccountCoordinators> accounts) {
  return {.cluster = cluster, .asked_at = *parse_rfc3339(time), .accounts = std::move(accounts)};
}

TEST(CoordinatorsTest, EachClusterHasItsLastList) {
  const test::TempDir root;
  const auto search = make_search(root.path(), system_clock());
  EXPECT_EQ(text_of(search->coordinators()), "");
  const std::vector<CoordinatorList> lists = {
      list_of("lab", "2026-11-26T10:00:00Z", {{"chem", {"alice"}}, {"law", {"eve"}}}),
      list_of("old \"\xFF", "2026-11-26T11:00:00Z", {{"chem", {"carol"}}}),
      list_of("lab", "2026-11-27T10:00:00Z", {{"chem", {"alice", "bob"}}, {"org", {"bob"}}})};
  for (const CoordinatorList& list : lists) ASSERT_TRUE(search->keep_coordinators(list));
  EXPECT_EQ(text_of(search->coordinators()),
            "old \"\xEF\xBF\xBD 2026-11-26T11:00:00Z chem: carol\n"
            "lab 2026-11-27T10:00:00Z chem: alice bob org: bob\n");
  struct stat st{};
  ASSERT_EQ(::stat(root.path_to("coordinators.json").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777U, 0640U);
}

TEST(CoordinatorsTest, ListsThatComeAtOnceAreAllKept) {
  const test::TempDir root;
  const auto search = make_search(root.path(), system_clock());
  {
    std::vector<std::jthread> sources;
    for (int i = 0; i < 8; ++i) {
      sources.emplace_back([&, i] {
        const auto list =
            list_of("lab" + std::to_string(i), "2026-11-27T10:00:00Z", {{"chem", {}}});
        for (int round = 0; round < 20; ++round) EXPECT_TRUE(search->keep_coordinators(list));
      });
    }
  }
  const auto lists = search->coordinators();
  ASSERT_TRUE(lists);
  EXPECT_EQ(lists->size(), 8U);
}

TEST(CoordinatorsTest, ADamagedFileIsSaidAndReplaced) {
  const test::TempDir root;
  for (const char* damaged : {"", "{", "[1]", "{\"lab\": 1}", "{\"lab\": {\"asked_at\": \"x\"}}",
                              "{\"lab\": {\"asked_at\": \"2026-11-27T10:00:00Z\", \"accounts\": "
                              "{\"chem\": [1]}}}"}) {
    SCOPED_TRACE(damaged);
    root.write("coordinators.json", damaged);
    const auto read = read_coordinators(root.path());
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().kind(), ErrorKind::kCorrupt);
    ASSERT_TRUE(keep_coordinators(root.path(),
                                  list_of("lab", "2026-11-27T10:00:00Z", {{"chem", {"alice"}}})));
    EXPECT_EQ(text_of(read_coordinators(root.path())), "lab 2026-11-27T10:00:00Z chem: alice\n");
  }
}

}  // namespace
}  // namespace scriptorium::catalog
