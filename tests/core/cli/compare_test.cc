#include "core/cli/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "core/api/kit/search/job_facts.h"
#include "core/cli/job_record.h"
#include "tests/support/event_factory.h"

namespace scriptorium::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Searchable::Record made_record(const std::string& id, const std::string& script,
                               const std::vector<std::string>& variables) {
  Searchable::Record record;
  record.event = test::make_event(id, script, variables);
  record.job = row_of(*record.event);
  return record;
}

class CompareTest : public ::testing::Test {
 protected:
  CompareTest() {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
    before_.job.state = "COMPLETED";
    before_.job.exit_code = 0;
    after_.job.state = "FAILED";
    after_.job.exit_code = 2;
    after_.job.partition = "gpu";
    before_.job.modules = {"GCC/12", "GROMACS/2023"};
    after_.job.modules = {"GCC/13", "GROMACS/2023"};
  }
  std::string text(const ComparedParts& parts = {}) {
    const Console console{.in = in_, .out = out_, .err = out_};
    return comparison_text(compare(before_, after_), before_.job, after_.job, parts, console);
  }

  Searchable::Record before_ =
      made_record("1", "#!/bin/sh\nsrun gmx -np 16\necho done\n", {"A=1", "PATH=/opt/12:/bin"});
  Searchable::Record after_ =
      made_record("2", "#!/bin/sh\nsrun gmx -np 32\necho done\n", {"A=2", "PATH=/opt/13:/bin"});
  std::istringstream in_;
  std::ostringstream out_;
};

TEST_F(CompareTest, SaysEverythingThatChanged) {
  const std::string all = text();
  EXPECT_THAT(all, HasSubstr("--- 1  md  alice"));
  EXPECT_THAT(all, HasSubstr("@@ -1,3 +1,3 @@\n #!/bin/sh\n-srun gmx -np 16\n+srun gmx -np 32\n"));
  EXPECT_THAT(all, HasSubstr("modules\n  - GCC/12\n  + GCC/13\n"));
  EXPECT_THAT(all,
              HasSubstr("environment\n  - A=1\n  + A=2\n  PATH\n    - /opt/12\n    + /opt/13"));
  EXPECT_THAT(all, HasSubstr("partition  batch  gpu"));
  EXPECT_THAT(all, HasSubstr("state  COMPLETED  FAILED (2)"));
}

TEST_F(CompareTest, APartAloneIsShownAlone) {
  EXPECT_THAT(text({.script = true, .environment = false, .facts = false}),
              AllOf(HasSubstr("@@"), Not(HasSubstr("environment")), Not(HasSubstr("modules"))));
  EXPECT_THAT(text({.script = false, .environment = true, .facts = false}),
              AllOf(Not(HasSubstr("@@")), HasSubstr("A=2")));
}

TEST_F(CompareTest, AnotherOutcomeAloneIsNoDifference) {
  Searchable::Record again = before_;
  again.job.state = "FAILED";
  EXPECT_FALSE(compare(before_, again).differs());
  EXPECT_TRUE(compare(before_, after_).differs());
}

TEST_F(CompareTest, AScriptThatIsNotStoredIsSaidAndNotTakenForEmpty) {
  before_.event = nullptr;
  EXPECT_THAT(text(), HasSubstr("the script is not stored of both jobs"));
  EXPECT_FALSE(compare(before_, after_).script_differs());
}

TEST_F(CompareTest, ALineOfAScriptCannotMoveTheCursor) {
  after_ = made_record("2", "#!/bin/sh\n\033[2Jx\n", {"A=\033c"});
  EXPECT_THAT(text(), Not(HasSubstr("\033")));
}

TEST_F(CompareTest, ProgramsGetTheSameAsJson) {
  const auto json = comparison_json(compare(before_, after_), before_.job, after_.job, {});
  EXPECT_EQ(json.at("before").at("id"), "1");
  EXPECT_EQ(json.at("script").at("added"), 1);
  EXPECT_EQ(json.at("script").at("edits").at(1).at("text"), "srun gmx -np 32");
  EXPECT_EQ(json.at("environment").at(0).at("name"), "A");
  EXPECT_EQ(json.at("environment").at(1).at("added").at(0), "/opt/13");
  EXPECT_EQ(json.at("modules").at("removed").at(0), "GCC/12");
  EXPECT_EQ(json.at("request").at("partition").at("after"), "gpu");
}

// ---- the last run that worked

// A family of runs, newest first.
class FamilyStore : public Searchable {
 public:
  Speed speed() const noexcept override { return Speed::kIndexed; }
  Result<Answer> search(const Request&) override { return Answer{}; }
  Result<std::vector<Record>> get(const Selector&, const Visibility&, std::size_t) override {
    return std::vector<Record>{};
  }
  Result<std::vector<JobRow>> family(std::uint64_t family, const Visibility&,
                                     std::optional<Timestamp> before, std::size_t limit) override {
    if (family != 7) return Error{ErrorKind::kInvalidConfig, "no such family"};
    std::vector<JobRow> page;
    for (const JobRow& run : runs) {
      if ((!before || run.time < *before) && page.size() < limit) page.push_back(run);
    }
    return page;
  }
  std::vector<JobRow> runs;
};

// `state` "": how it ended is not known.
JobRow made_run(std::int64_t time, const std::string& state, std::int64_t exit_code = 0) {
  JobRow run;
  run.id = std::to_string(time);
  run.time = Timestamp{time};
  run.family = 7;
  if (!state.empty()) {
    run.state = state;
    run.exit_code = exit_code;
  }
  return run;
}

TEST(EarlierRunTest, IsTheNewestRunBeforeTheJobThatCompletedWithZero) {
  FamilyStore store;
  store.runs = {made_run(50, "COMPLETED"), made_run(40, "FAILED", 1), made_run(30, "COMPLETED", 1),
                made_run(20, "COMPLETED"), made_run(10, "COMPLETED")};
  std::vector<query::Refusal> refused;
  const auto found = earlier_run({{"index", &store}}, store.runs[1], refused);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->job.id, "20");
  EXPECT_FALSE(earlier_run({{"index", &store}}, store.runs[4], refused));
  EXPECT_TRUE(refused.empty());
}

TEST(EarlierRunTest, IsFoundBehindManyFailedRuns) {
  FamilyStore store;
  for (std::int64_t time = 1000; time > 1; --time)
    store.runs.push_back(made_run(time, "FAILED", 1));
  store.runs.push_back(made_run(1, "COMPLETED"));
  std::vector<query::Refusal> refused;
  const auto found = earlier_run({{"index", &store}}, store.runs.front(), refused);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->job.id, "1");
}

TEST(EarlierRunTest, IsTheNewestOfUnknownEndIfNoneIsKnownToHaveCompleted) {
  FamilyStore store;
  store.runs = {made_run(40, ""), made_run(30, "TIMEOUT"), made_run(20, ""), made_run(10, "")};
  std::vector<query::Refusal> refused;
  auto found = earlier_run({{"index", &store}}, store.runs.front(), refused);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->job.id, "20");
  EXPECT_FALSE(found->completed);

  store.runs.back() = made_run(10, "COMPLETED");
  found = earlier_run({{"index", &store}}, store.runs.front(), refused);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->job.id, "10");
  EXPECT_TRUE(found->completed);
}

}  // namespace
}  // namespace scriptorium::cli
