#include "core/query/environment_diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace scriptorium::query {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string environment(const std::vector<std::string>& variables) {
  std::string bytes;
  for (const std::string& variable : variables) bytes += variable + '\0';
  return bytes;
}

TEST(EnvironmentDiffTest, NamesWhatCameWhatWentAndWhatChangedByName) {
  const auto changes = environment_diff(environment({"SAME=1", "OLD=x", "N=1"}),
                                        environment({"N=2", "NEW=", "SAME=1"}));
  ASSERT_EQ(changes.size(), 3U);
  EXPECT_EQ(changes[0].name, "N");
  EXPECT_EQ(changes[0].before, "1");
  EXPECT_EQ(changes[0].after, "2");
  EXPECT_EQ(changes[1].name, "NEW");
  EXPECT_FALSE(changes[1].before);
  EXPECT_EQ(changes[1].after, "");
  EXPECT_EQ(changes[2].name, "OLD");
  EXPECT_FALSE(changes[2].after);
}

TEST(EnvironmentDiffTest, ComparesAPathByItsElements) {
  const auto changes = environment_diff(environment({"PATH=/opt/gcc/12:/usr/bin:/bin"}),
                                        environment({"PATH=/opt/gcc/13:/usr/bin:/bin"}));
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_TRUE(changes[0].is_list);
  EXPECT_THAT(changes[0].removed, ElementsAre("/opt/gcc/12"));
  EXPECT_THAT(changes[0].added, ElementsAre("/opt/gcc/13"));
}

TEST(EnvironmentDiffTest, AChangedOrderOfAPathIsAChangeWithoutElements) {
  const auto changes = environment_diff(environment({"PATH=/a:/b"}), environment({"PATH=/b:/a"}));
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_TRUE(changes[0].is_list);
  EXPECT_THAT(changes[0].removed, IsEmpty());
  EXPECT_THAT(changes[0].added, IsEmpty());
}

TEST(EnvironmentDiffTest, AValueWithAColonThatIsNoPathIsOneValue) {
  const auto changes =
      environment_diff(environment({"PROXY=http://a:80"}), environment({"PROXY=http://b:80"}));
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_FALSE(changes[0].is_list);
}

TEST(EnvironmentDiffTest, EqualEnvironmentsInAnyOrderHaveNoChange) {
  EXPECT_THAT(environment_diff(environment({"A=1", "B=2"}), environment({"B=2", "A=1"})),
              IsEmpty());
  EXPECT_THAT(environment_diff("", ""), IsEmpty());
}

TEST(ListDiffTest, CountsRepeatedElements) {
  const ListChange change = list_diff({"a", "a", "b"}, {"a", "c"});
  EXPECT_THAT(change.removed, ElementsAre("a", "b"));
  EXPECT_THAT(change.added, ElementsAre("c"));
}

}  // namespace
}  // namespace scriptorium::query
