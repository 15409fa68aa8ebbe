#include "core/cli/script_modules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "core/base/time.h"

namespace scriptorium::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::int64_t kDay = std::int64_t{86'400} * kSecond;

Event event_of(const std::string& kind, const std::string& id, std::int64_t day) {
  Event event;
  event.kind = kind;
  event.cluster = "lab";
  event.scheduler = "slurm";
  event.job.id = id;
  event.time = Timestamp{day * kDay};
  event.user = {.name = "alice", .verified = true};
  return event;
}

Event script(const std::string& id, std::int64_t day, std::vector<std::string> modules) {
  Event event = event_of("job.script", id, day);
  event.script.emplace();
  event.script->modules = std::move(modules);
  return event;
}

class ScriptModulesTest : public ::testing::Test {
 protected:
  void add(const Event& usage, const std::string& user = "alice") {
    runs_.add(usage, JobRun{.user = user, .verified = true, .nodes = {}, .findings = {}});
  }
  // The modules of the only run.
  std::vector<std::string> modules() {
    std::vector<std::string> found{"no run"};
    without_ = runs_.use_all([&](const JobRun& run) { found = run.modules; });
    return found;
  }

  ScriptModules runs_;
  std::size_t without_ = 0;
};

TEST_F(ScriptModulesTest, ARunHasTheModulesOfTheNewestScriptOfItsIdThatIsNotYounger) {
  add(event_of("usage.job", "7", 100));
  runs_.take(script("7", 10, {"old"}));
  runs_.take(script("7", 100, {"GROMACS/2024.2", "CUDA/12"}));
  runs_.take(script("7", 50, {"older"}));
  runs_.take(script("7", 101, {"later"}));
  EXPECT_THAT(modules(), ElementsAre("GROMACS/2024.2", "CUDA/12"));
  EXPECT_EQ(without_, 0U);
}

TEST_F(ScriptModulesTest, AScriptMayBeAMinuteYoungerAndHalfAYearOlder) {
  Event usage = event_of("usage.job", "7", 100);
  usage.time.nanoseconds -= 60 * kSecond;
  add(usage);
  runs_.take(script("7", 100, {"a"}));
  EXPECT_THAT(modules(), ElementsAre("a"));

  runs_ = {};
  usage.time.nanoseconds -= 1;
  add(usage);
  runs_.take(script("7", 100, {"a"}));
  EXPECT_THAT(modules(), IsEmpty());

  runs_ = {};
  add(event_of("usage.job", "7", 281));
  runs_.take(script("7", 100, {"a"}));
  EXPECT_THAT(modules(), IsEmpty());
  EXPECT_EQ(without_, 1U);
  runs_.take(script("7", 101, {"b"}));
  EXPECT_THAT(modules(), ElementsAre("b"));
}

TEST_F(ScriptModulesTest, AnotherJobWithTheSameIdIsNotTheRunsOwn) {
  add(event_of("usage.job", "7", 100));
  Event other = script("7", 100, {"cluster"});
  other.cluster = "other";
  runs_.take(other);
  other = script("7", 100, {"scheduler"});
  other.scheduler = "torque";
  runs_.take(other);
  other = script("7", 100, {"user"});
  other.user.name = "bob";
  runs_.take(other);
  runs_.take(script("17", 100, {"id"}));
  EXPECT_THAT(modules(), IsEmpty());
  other.user.verified = false;  // only a job's own word
  runs_.take(other);
  EXPECT_THAT(modules(), ElementsAre("user"));
}

TEST_F(ScriptModulesTest, AllTasksOfAnArrayHaveItsScript) {
  for (const char* task : {"0", "1"}) {
    Event usage = event_of("usage.job", std::string("90") + task, 100);
    usage.job.array = JobArray{.job_id = "900", .task_id = task};
    add(usage);
  }
  add(event_of("usage.job", "901", 200));  // the task's own id, used again
  runs_.take(script("900", 100, {"array"}));
  runs_.take(script("901", 200, {"single"}));
  std::multiset<std::string> found;
  EXPECT_EQ(runs_.use_all([&](const JobRun& run) { found.insert(run.modules.at(0)); }), 0U);
  EXPECT_THAT(found, ElementsAre("array", "array", "single"));
}

TEST_F(ScriptModulesTest, ALongerCaptureReplacesAShorterOneInAnyOrder) {
  Event longer = script("7", 100, {"a", "b"});
  longer.supersedes = "shorter";
  for (const bool first : {true, false}) {
    runs_ = {};
    add(event_of("usage.job", "7", 100));
    if (first) runs_.take(longer);
    runs_.take(script("7", 100, {"a"}));
    if (!first) runs_.take(longer);
    EXPECT_THAT(modules(), ElementsAre("a", "b"));
  }
}

TEST_F(ScriptModulesTest, OnlyFilesWithTheNumberOfAJobAreWanted) {
  EXPECT_FALSE(runs_.wants("alice/2026/11/471-md.json"));
  add(event_of("usage.job", "471", 100));
  EXPECT_TRUE(runs_.wants("alice/2026/11/471-md.json"));
  EXPECT_TRUE(runs_.wants("20261121/job.471_metadata.json"));
  EXPECT_FALSE(runs_.wants("alice/2026/11/4711-md.json"));
  EXPECT_FALSE(runs_.wants("alice/2026/11/1471-md.json"));
  EXPECT_FALSE(runs_.wants("alice/md.json"));

  Event torque = event_of("usage.job", "12[3].server1", 100);
  torque.job.array = JobArray{.job_id = "12[].server1", .task_id = "3"};
  add(torque);
  EXPECT_TRUE(runs_.wants("alice/2026/11/12%5B%5D.server1-md.json"));

  add(event_of("usage.job", "job", 100));
  EXPECT_TRUE(runs_.wants("alice/job-md.json"));
}

}  // namespace
}  // namespace scriptorium::cli
