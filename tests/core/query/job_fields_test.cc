#include "core/query/job_fields.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace scriptorium::query {
namespace {

JobRow made_row() {
  JobRow job;
  job.cluster = "lab";
  job.scheduler = "slurm";
  job.id = "4711";
  job.time = Timestamp{1795224382'364'000'000};
  job.user = "alice";
  job.verified = true;
  job.directives = {"--time=1", "--mem=2G"};
  job.modules = {"GCC/12", "GROMACS/2023.1"};
  job.exit_code = 0;
  job.family = 0xFFFF'FFFF'FFFF'FFFFU;
  return job;
}

TEST(JobFieldsTest, JsonHasWhatIsKnownAndNothingElse) {
  const auto json = job_json(made_row());
  EXPECT_EQ(json.at("id"), "4711");
  EXPECT_EQ(json.at("submitted_at"), "2026-11-21T01:26:22.364Z");
  EXPECT_EQ(json.at("exit_code"), 0);
  EXPECT_EQ(json.at("modules").size(), 2U);
  EXPECT_EQ(json.at("family"), "18446744073709551615");
  EXPECT_FALSE(json.contains("state"));
  EXPECT_FALSE(json.contains("nodes"));
}

TEST(JobFieldsTest, CellsStandBelowTheirColumns) {
  const auto names = job_columns();
  const auto cells = job_cells(made_row());
  ASSERT_EQ(names.size(), cells.size());
  const auto cell = [&](const std::string& name) {
    return cells.at(
        static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin()));
  };
  EXPECT_EQ(cell("user"), "alice");
  EXPECT_EQ(cell("modules"), "GCC/12 GROMACS/2023.1");
  EXPECT_EQ(cell("directives"), "--time=1; --mem=2G");
  EXPECT_EQ(cell("verified"), "true");
  EXPECT_EQ(cell("state"), "");
}

TEST(JobFieldsTest, CsvQuotesWhatItMustAndEscapesControlCharacters) {
  EXPECT_EQ(csv_line({"a", "b c", "d,e", "say \"x\"", ""}), "a,b c,\"d,e\",\"say \"\"x\"\"\",\r\n");
  EXPECT_EQ(csv_line({"a\033[31m\nb"}), "a\\x1b[31m\\nb\r\n");
  EXPECT_EQ(csv_line({"=1+1", "+x", "-x", "@x", "x=1"}), "'=1+1,'+x,'-x,'@x,x=1\r\n");
}

}  // namespace
}  // namespace scriptorium::query
