#include "core/cli/usage_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/base/file.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class UsageFilesTest : public ::testing::Test {
 protected:
  test::TempDir dir_;
  const UsageFiles first_{dir_.path(), "17", "n1"}, second_{dir_.path(), "17", "n2"},
      other_job_{dir_.path(), "170", "n1"};

  std::string content(const std::string& name) const {
    return read_file(dir_.path() + "/" + name).value();
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path()))
      names.push_back(entry.path().filename());
    return names;
  }
};

TEST_F(UsageFilesTest, AReportReplacesTheOneBeforeAndLeavesNothingElse) {
  ASSERT_TRUE(first_.write_report("one", "{}").has_value());
  ASSERT_TRUE(first_.write_report("two", "{\"event\":null}").has_value());
  EXPECT_THAT(names(),
              UnorderedElementsAre("scriptorium-usage-17.txt", "scriptorium-usage-17.json"));
  EXPECT_EQ(content("scriptorium-usage-17.txt"), "two");
  EXPECT_EQ(content("scriptorium-usage-17.json"), "{\"event\":null}");
}

TEST_F(UsageFilesTest, ALinkOfTheReportsNameIsReplacedAndNotFollowed) {
  dir_.write("precious", "mine");
  for (const char* name : {"scriptorium-usage-17.txt", ".scriptorium-usage-17.txt.n1~"})
    std::filesystem::create_symlink(dir_.path() + "/precious", dir_.path() + "/" + name);
  ASSERT_TRUE(first_.write_report("report", "{}").has_value());
  EXPECT_EQ(content("precious"), "mine");
  EXPECT_EQ(content("scriptorium-usage-17.txt"), "report");
  EXPECT_FALSE(std::filesystem::is_symlink(dir_.path() + "/scriptorium-usage-17.txt"));
}

TEST_F(UsageFilesTest, SaysWhyAReportCannotBeWritten) {
  const UsageFiles nowhere(dir_.path() + "/absent", "17", "n1");
  const auto written = nowhere.write_report("report", "{}");
  ASSERT_FALSE(written.has_value());
  EXPECT_THAT(written.error().message(), ::testing::HasSubstr("absent/.scriptorium-usage-17.json"));
}

TEST_F(UsageFilesTest, PartsAreThoseOfTheJobsNodesAndNoOthers) {
  ASSERT_TRUE(first_.write_part("a", false).has_value());
  ASSERT_TRUE(second_.write_part("b\n", true).has_value());
  ASSERT_TRUE(other_job_.write_part("c", false).has_value());
  ASSERT_TRUE(first_.write_report("report", "{}").has_value());
  dir_.write(".scriptorium-usage-17.n3.n3~", "ended\nhalf of it");
  EXPECT_THAT(first_.read_parts().texts, UnorderedElementsAre("a", "b\n"));
  EXPECT_FALSE(first_.read_parts().all_ended);
  ASSERT_TRUE(first_.write_part("d", true).has_value());
  EXPECT_THAT(second_.read_parts().texts, UnorderedElementsAre("d", "b\n"));
  EXPECT_TRUE(second_.read_parts().all_ended);
  first_.remove_parts();
  EXPECT_THAT(first_.read_parts().texts, IsEmpty());
  EXPECT_THAT(other_job_.read_parts().texts, ElementsAre("c"));
}

TEST_F(UsageFilesTest, APartBehindALinkIsNotRead) {
  dir_.write("elsewhere", "running\nforged");
  std::filesystem::create_symlink(dir_.path() + "/elsewhere",
                                  dir_.path() + "/.scriptorium-usage-17.n9");
  EXPECT_THAT(first_.read_parts().texts, IsEmpty());
}

TEST_F(UsageFilesTest, ASlashInAJobsNameDoesNotLeaveTheFolder) {
  const UsageFiles odd(dir_.path(), "../17", "a/b");
  ASSERT_TRUE(odd.write_report("report", "{}").has_value());
  ASSERT_TRUE(odd.write_part("part", true).has_value());
  EXPECT_THAT(odd.read_parts().texts, ElementsAre("part"));
  EXPECT_EQ(content("scriptorium-usage-.._17.txt"), "report");
}

}  // namespace
}  // namespace scriptorium::cli
