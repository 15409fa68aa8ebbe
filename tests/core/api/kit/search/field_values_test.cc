#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/api/kit/search/field_glob.h"
#include "core/api/kit/search/query_matcher.h"

namespace scriptorium {
namespace {

JobRow full_row() {
  JobRow row;
  row.cluster = "lab";
  row.scheduler = "slurm";
  row.id = "4711";
  row.time = *parse_rfc3339("2026-11-14T08:00:00Z");
  row.name = "md_run";
  row.array_job_id = "4700";
  row.user = "alice";
  row.uid = "1001";
  row.verified = true;
  row.account = "chem";
  row.partition = "gpu";
  row.qos = "normal";
  row.work_dir = "/home/alice/md";
  row.interpreter = "/bin/bash";
  row.directives = {"--time=00:10:00", "-N 2", "--exclusive"};
  row.modules = {"GROMACS/2023.1", "chem/ORCA/5.0"};
  row.software = {"conda torch", "spack hdf5 +mpi"};
  row.script_sha256 = "beef1234beef";
  row.redacted = true;
  row.family = 42;
  row.state = "FAILED";
  row.exit_code = 3;
  row.exit_signal = 9;
  row.ended_at = *parse_rfc3339("2026-11-14T09:00:00Z");
  row.elapsed_seconds = 3600.9;
  row.cpus = 16;
  row.cpu_ratio = 0.29;
  row.memory_peak_bytes = 1024;
  row.memory_limit_bytes = 2048;
  row.gpus = 2;
  row.gpu_ratio = 0.905;
  row.nodes = {"n1", "n2"};
  row.findings = {"cpu_low"};
  return row;
}

bool has(QueryField field, std::string text, const JobRow& row) {
  Query node;
  node.kind = Query::Kind::kField;
  node.field = field;
  node.text = std::move(text);
  return field_matches(node, row);
}

bool within(QueryField field, std::optional<std::int64_t> from, std::optional<std::int64_t> to,
            const JobRow& row, bool percent = false) {
  Query node;
  node.kind = Query::Kind::kRange;
  node.field = field;
  node.from = from;
  node.to = to;
  node.percent = percent;
  return field_matches(node, row);
}

TEST(FieldGlobTest, LetsAStarStandForAnyBytes) {
  EXPECT_TRUE(glob_in_any_case("GRO*", "gromacs"));
  EXPECT_TRUE(glob_in_any_case("*", ""));
  EXPECT_TRUE(glob_in_any_case("a*b*c", "a--b--bc"));
  EXPECT_TRUE(glob_in_any_case("", ""));
  EXPECT_FALSE(glob_in_any_case("", "a"));
  EXPECT_FALSE(glob_in_any_case("a*b", "abc"));
  EXPECT_FALSE(glob_in_any_case("a?", "ab"));
  EXPECT_TRUE(glob_in_any_case("[a]", "[A]"));
  EXPECT_FALSE(glob_in_case("GRO*", "gromacs"));
  const std::string many(4000, 'a');
  EXPECT_FALSE(glob_in_any_case("*a*a*a*a*a*a*a*a*b", many));
}

TEST(FieldMatchesTest, ComparesWholeValuesInAnyCase) {
  const JobRow row = full_row();
  const std::vector<std::pair<QueryField, std::string>> yes{
      {QueryField::kJob, "4711"},          {QueryField::kUser, "ALICE"},
      {QueryField::kUser, "1001"},         {QueryField::kUser, "al*"},
      {QueryField::kAccount, "chem"},      {QueryField::kPartition, "*"},
      {QueryField::kQos, "normal"},        {QueryField::kName, "*RUN"},
      {QueryField::kCluster, "lab"},       {QueryField::kScheduler, "slurm"},
      {QueryField::kSoftware, "Torch"},    {QueryField::kSoftware, "conda"},
      {QueryField::kSoftware, "conda t*"}, {QueryField::kSoftware, "hdf5*"},
      {QueryField::kModule, "gromacs"},    {QueryField::kModule, "GROMACS/2023*"},
      {QueryField::kModule, "chem/orca"},  {QueryField::kDirective, "--time"},
      {QueryField::kDirective, "-N"},      {QueryField::kDirective, "--time=00:10:00"},
      {QueryField::kDirective, "-n 2"},    {QueryField::kDirective, "--exclusive"},
      {QueryField::kInterpreter, "*bash"}, {QueryField::kState, "failed"},
      {QueryField::kExit, "signal:9"},     {QueryField::kNode, "n2"},
      {QueryField::kWorkDir, "/home/*"},   {QueryField::kFinding, "cpu_low"},
      {QueryField::kFinding, "secret"},    {QueryField::kFamily, "42"},
      {QueryField::kArray, "true"},        {QueryField::kArray, "4700"},
      {QueryField::kComplete, "true"},     {QueryField::kVerified, "true"},
      {QueryField::kScript, "BEEF12"},     {QueryField::kScript, "beef1234beef"},
      {QueryField::kScript, "*"},          {QueryField::kSecret, "true"},
  };
  for (const auto& [field, text] : yes)
    EXPECT_TRUE(has(field, text, row)) << query_field_name(field) << ":" << text;
  const std::vector<std::pair<QueryField, std::string>> no{
      {QueryField::kJob, "471"},        {QueryField::kUser, "ali"},
      {QueryField::kUser, "10*"},       {QueryField::kModule, "chem"},
      {QueryField::kSoftware, "tor"},   {QueryField::kSoftware, "+mpi"},
      {QueryField::kSoftware, ""},      {QueryField::kModule, "2023.1"},
      {QueryField::kDirective, "--ti"}, {QueryField::kExit, "signal:15"},
      {QueryField::kArray, "false"},    {QueryField::kComplete, "false"},
      {QueryField::kScript, "eef1"},    {QueryField::kScript, "beef1234beef0"},
      {QueryField::kFamily, "4"},
  };
  for (const auto& [field, text] : no)
    EXPECT_FALSE(has(field, text, row)) << query_field_name(field) << ":" << text;
}

TEST(FieldMatchesTest, FindsNothingInWhatIsNotKnown) {
  const JobRow row;
  for (const std::string& name : query_field_names()) {
    const QueryField field = *query_field_of(name);
    if (field == QueryField::kJob || field == QueryField::kCluster ||
        field == QueryField::kScheduler || field == QueryField::kComplete ||
        field == QueryField::kVerified || field == QueryField::kSubmitted ||
        field == QueryField::kSecret) {
      continue;
    }
    EXPECT_FALSE(has(field, "*", row)) << name;
    EXPECT_FALSE(within(field, std::nullopt, std::nullopt, row)) << name;
  }
  EXPECT_TRUE(has(QueryField::kArray, "false", row));
}

TEST(FieldMatchesTest, IncludesBothEndsOfARange) {
  const JobRow row = full_row();
  EXPECT_TRUE(within(QueryField::kExit, 3, 3, row));
  EXPECT_FALSE(within(QueryField::kExit, 4, std::nullopt, row));
  EXPECT_TRUE(within(QueryField::kElapsed, 3600, 3600, row));  // parts of a second do not count
  EXPECT_FALSE(within(QueryField::kElapsed, 3601, std::nullopt, row));
  EXPECT_TRUE(within(QueryField::kMemory, 1024, 1024, row));
  EXPECT_TRUE(within(QueryField::kMemory, 50, 50, row, true));
  EXPECT_TRUE(within(QueryField::kCpu, 16, 16, row));
  EXPECT_TRUE(within(QueryField::kCpu, 29, 29, row, true));
  EXPECT_TRUE(within(QueryField::kGpu, std::nullopt, 2, row));
  EXPECT_TRUE(within(QueryField::kGpu, 90, 90, row, true));
  EXPECT_TRUE(within(QueryField::kSubmitted, row.time.nanoseconds, row.time.nanoseconds, row));
  EXPECT_FALSE(within(QueryField::kSubmitted, row.time.nanoseconds + 1, std::nullopt, row));
  EXPECT_TRUE(within(QueryField::kEnded, row.ended_at->nanoseconds, std::nullopt, row));
}

TEST(FieldMatchesTest, KnowsNoShareOfALimitThatIsNotKnown) {
  JobRow row = full_row();
  row.memory_limit_bytes.reset();
  EXPECT_FALSE(within(QueryField::kMemory, 0, std::nullopt, row, true));
  row.memory_limit_bytes = 0;
  EXPECT_FALSE(within(QueryField::kMemory, 0, std::nullopt, row, true));
}

TEST(FieldValuesTest, ListsWhatFacetsCount) {
  const JobRow row = full_row();
  using Values = std::vector<std::string>;
  EXPECT_EQ(field_values(QueryField::kModule, row), (Values{"GROMACS/2023.1", "chem/ORCA/5.0"}));
  EXPECT_EQ(field_values(QueryField::kNode, row), (Values{"n1", "n2"}));
  EXPECT_EQ(field_values(QueryField::kFinding, row), (Values{"cpu_low", "secret"}));
  EXPECT_EQ(field_values(QueryField::kExit, row), (Values{"3", "signal:9"}));
  EXPECT_EQ(field_values(QueryField::kSubmitted, row), (Values{"2026-11-14"}));
  EXPECT_EQ(field_values(QueryField::kEnded, row), (Values{"2026-11-14"}));
  EXPECT_EQ(field_values(QueryField::kElapsed, row), (Values{"3600"}));
  EXPECT_EQ(field_values(QueryField::kUser, JobRow{}), Values{});
}

}  // namespace
}  // namespace scriptorium
