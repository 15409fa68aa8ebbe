#include "core/import/tree_path.h"

#include <gtest/gtest.h>

#include "core/base/time.h"

namespace scriptorium::import {
namespace {

using Role = TreePath::Role;

std::string dates(const std::optional<Period>& period) {
  if (!period) return "none";
  return format_rfc3339({period->begin}, TimePrecision::kSeconds).substr(0, 10) + " " +
         format_rfc3339({period->end}, TimePrecision::kSeconds).substr(0, 10);
}

TEST(TreePathTest, SarchiveNamesAJobInTheFileAndADateInTheFolder) {
  const TreePath script = classify(TreeFormat::kSarchive, "20241103/job.4711_script");
  EXPECT_EQ(script.role, Role::kScript);
  EXPECT_EQ(script.job_id, "4711");
  EXPECT_EQ(script.entry, "20241103/job.4711");
  EXPECT_EQ(dates(script.period), "2024-11-03 2024-11-04");
  const TreePath environment = classify(TreeFormat::kSarchive, "20241103/job.4711_environment");
  EXPECT_EQ(environment.role, Role::kEnvironment);
  EXPECT_EQ(environment.entry, script.entry) << "both belong to one job";
}

TEST(TreePathTest, SarchiveTreesOfEachPeriodAndBelowFoldersOfTheSite) {
  EXPECT_EQ(dates(classify(TreeFormat::kSarchive, "job.1_script").period), "none");
  EXPECT_EQ(dates(classify(TreeFormat::kSarchive, "2024/job.1_script").period),
            "2024-01-01 2025-01-01");
  EXPECT_EQ(dates(classify(TreeFormat::kSarchive, "202412/job.1_script").period),
            "2024-12-01 2025-01-01");
  EXPECT_EQ(dates(classify(TreeFormat::kSarchive, "old/genius/20240229/job.1_script").period),
            "2024-02-29 2024-03-01");
}

TEST(TreePathTest, JobArchiveTakesUserAndMonthFromTheFoldersAndTheNameFromTheFile) {
  const TreePath found =
      classify(TreeFormat::kJobArchive, "common/alice/2019/05/20009123-my-job.v2.sh");
  EXPECT_EQ(found.role, Role::kScript);
  EXPECT_EQ(found.job_id, "20009123");
  EXPECT_EQ(found.job_name, "my-job.v2") << "only the first '-' divides";
  EXPECT_EQ(found.user, "alice");
  EXPECT_EQ(dates(found.period), "2019-05-01 2019-06-01");
  const TreePath nameless = classify(TreeFormat::kJobArchive, "bob/2019/05/7.env");
  EXPECT_EQ(nameless.role, Role::kEnvironment);
  EXPECT_EQ(nameless.job_name, std::nullopt);
}

TEST(TreePathTest, SavescriptIsAScriptAlone) {
  const TreePath found = classify(TreeFormat::kSavescript, "20241103/4711[12].savescript");
  EXPECT_EQ(found.role, Role::kScript);
  EXPECT_EQ(found.job_id, "4711[12]");
  EXPECT_EQ(dates(found.period), "2024-11-03 2024-11-04");
}

TEST(TreePathTest, OtherNamesAreForeign) {
  for (const char* path : {"20241103/job.4711", "job._script", "job.x_script", "job.12 3_script",
                           "_script", "README", "20241103/task.1_script", "job.1_script.swp"})
    EXPECT_EQ(classify(TreeFormat::kSarchive, path).role, Role::kForeign) << path;
  for (const char* path : {"4711-x.sh", "05/4711-x.sh", "2019/05/4711-x.sh",
                           "alice/2019/13/4711.sh", "alice/19/05/4711.sh", "alice/2019/05/x4711.sh",
                           "alice/2019/05/.sh", "alice/2019/05/4711-x.out"})
    EXPECT_EQ(classify(TreeFormat::kJobArchive, path).role, Role::kForeign) << path;
  for (const char* path : {".savescript", "4711.sh", "a/b.savescript", "4711.savescript/x"})
    EXPECT_EQ(classify(TreeFormat::kSavescript, path).role, Role::kForeign) << path;
  const std::string long_id = "job." + std::string(65, '1') + "_script";
  EXPECT_EQ(classify(TreeFormat::kSarchive, long_id).role, Role::kForeign);
}

TEST(TreePathTest, OnlyDatesThatThereAreMakeAPeriod) {
  for (const char* text : {"", "20", "20241", "20240230", "20241301", "20240100", "00000000",
                           "99991231", "2024-11", "2024110a", "1969"})
    EXPECT_EQ(period_of(text), std::nullopt) << text;
  EXPECT_EQ(dates(period_of("2024")), "2024-01-01 2025-01-01");
}

}  // namespace
}  // namespace scriptorium::import
