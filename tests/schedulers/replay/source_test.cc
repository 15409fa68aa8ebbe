#include "schedulers/replay/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace scriptorium::replay {
namespace {

using namespace std::literals;
using ::testing::ElementsAre;
using Role = SpoolPath::Role;
using State = Assessment::State;

class ReplaySourceTest : public ::testing::Test {
 protected:
  ReplaySource source_{{"/srv/recorded", "replay"}};
  SpoolEntry entry_{"4711", {}};

  void add(std::string name, std::string bytes) {
    SpoolFile file;
    file.name = std::move(name);
    file.bytes = make_bytes(std::move(bytes));
    entry_.files.push_back(std::move(file));
  }
  std::string environment_of(std::string bytes) {
    entry_.files.clear();
    add("script", "x");
    add("environment", std::move(bytes));
    auto job = source_.parse(entry_);
    if (!job) return "error: " + job.error().message();
    EXPECT_EQ(job->environment_format, EnvironmentFormat::kNulEnded);
    return *job->environment;
  }
};

TEST_F(ReplaySourceTest, EveryFolderIsAnEntry) {
  EXPECT_EQ(source_.classify("4711").role, Role::kEntryDirectory);
  EXPECT_EQ(source_.classify("any name").entry, "any name");
  const SpoolPath script = source_.classify("4711/script");
  EXPECT_EQ(script.role, Role::kEntryFile);
  EXPECT_EQ(script.entry, "4711");
  EXPECT_EQ(script.file, "script");
  EXPECT_EQ(source_.classify("4711/environment").file, "environment");
  for (const std::string_view foreign : {""sv, "."sv, ".hidden"sv, ".hidden/script"sv, "4711/"sv,
                                         "4711/other"sv, "4711/a/script"sv}) {
    EXPECT_EQ(source_.classify(foreign).role, Role::kForeign) << foreign;
  }
}

TEST_F(ReplaySourceTest, AnEntryIsCompleteOnceItsScriptHasBytes) {
  add("environment", "A=1");
  EXPECT_EQ(source_.assess(entry_).state, State::kIncomplete);
  EXPECT_EQ(source_.assess(entry_).reason, "script missing");
  add("script", "");
  EXPECT_EQ(source_.assess(entry_).reason, "script empty");
  entry_.files.back().bytes = make_bytes("#");
  EXPECT_EQ(source_.assess(entry_).state, State::kComplete);
}

TEST_F(ReplaySourceTest, TheScriptKeepsEveryByte) {
  add("script", "#!/bin/sh\r\n\0\xff\0"s);
  const auto job = source_.parse(entry_);
  ASSERT_TRUE(job) << job.error().message();
  EXPECT_EQ(*job->script, "#!/bin/sh\r\n\0\xff\0"s);
  EXPECT_EQ(job->job.id, "4711");
  EXPECT_FALSE(job->environment);
  EXPECT_EQ(job->environment_format, EnvironmentFormat::kNone);
  EXPECT_FALSE(job->user.verified || job->user.name);
}

TEST_F(ReplaySourceTest, AnEnvironmentMayHaveNulsOrLines) {
  EXPECT_EQ(environment_of("A=1\0B=x\ny\0"s), "A=1\0B=x\ny\0"s);
  EXPECT_EQ(environment_of("A=1\0B=2"s), "A=1\0B=2\0"s);
  EXPECT_EQ(environment_of("A=1\nB=2\n"), "A=1\0B=2\0"s);
  EXPECT_EQ(environment_of("A=1\nB=2"), "A=1\0B=2\0"s);
  EXPECT_EQ(environment_of(""), "");
}

TEST_F(ReplaySourceTest, WithoutAScriptThereIsNoJob) {
  add("environment", "A=1");
  const auto job = source_.parse(entry_);
  ASSERT_FALSE(job);
  EXPECT_EQ(job.error().kind(), ErrorKind::kVanished);
}

TEST(ReplayConfigTest, TheFolderIsRequiredAndAbsolute) {
  const auto keys = [](const Table& table) {
    Problems problems;
    read_config(table, problems);
    std::vector<std::string> result;
    for (const Problem& p : problems.list()) result.push_back(p.key);
    return result;
  };
  Table table;
  table.path = "source.old";
  EXPECT_THAT(keys(table), ElementsAre("source.old.folder"));
  table.entries.push_back({"folder", {std::string("relative"), {}}});
  EXPECT_THAT(keys(table), ElementsAre("source.old.folder"));
  table.entries[0].value.data = std::string("/srv/recorded");
  EXPECT_THAT(keys(table), ElementsAre());
  table.entries.push_back({"scheduler", {std::string(), {}}});
  EXPECT_THAT(keys(table), ElementsAre("source.old.scheduler"));
}

TEST_F(ReplaySourceTest, NamesTheSchedulerItIsTold) {
  EXPECT_EQ(source_.scheduler(), "replay");
  EXPECT_EQ(ReplaySource({"/srv", "slurm"}).scheduler(), "slurm");
  EXPECT_EQ(source_.spool_root(), "/srv/recorded");
}

}  // namespace
}  // namespace scriptorium::replay
