#include "schedulers/slurm/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

#include "tests/schedulers/slurm/fixtures.h"

namespace scriptorium::slurm {
namespace {

using namespace std::literals;
using fixtures::environment_file;
using fixtures::recorded_entries;
using fixtures::recorded_entry;
using fixtures::spool_entry;
using fixtures::spool_file;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Role = SpoolPath::Role;

const std::string kWholeScript = "#!/bin/sh\ntrue\n\0"s;

ParsedJob parsed(const SpoolEntry& entry) {
  auto job = parse_entry(entry);
  if (!job) {
    ADD_FAILURE() << job.error().message();
    return {};
  }
  return *std::move(job);
}

SpoolEntry whole(const fixtures::RecordedEntry& recorded) {
  return spool_entry(recorded.key, recorded.environment, recorded.script);
}

TEST(SlurmPathTest, TellsDirectoriesEntriesAndFilesByTheirNames) {
  EXPECT_EQ(classify_path("hash.0").role, Role::kDirectory);
  EXPECT_EQ(classify_path("hash.9").role, Role::kDirectory);
  const SpoolPath entry = classify_path("hash.1/job.11");
  EXPECT_EQ(entry.role, Role::kEntryDirectory);
  EXPECT_EQ(entry.entry, "hash.1/job.11");
  EXPECT_EQ(entry.file, "");
  for (const std::string_view name : {"environment"sv, "script"sv}) {
    const std::string path = "hash.7/job.67043327/" + std::string(name);
    const SpoolPath file = classify_path(path);
    EXPECT_EQ(file.role, Role::kEntryFile) << path;
    EXPECT_EQ(file.entry, "hash.7/job.67043327");
    EXPECT_EQ(file.file, name);
  }
}

TEST(SlurmPathTest, TakesTheIdsOfAFederationAndWiderOnes) {
  EXPECT_EQ(classify_path("hash.5/job.67108865").role, Role::kEntryDirectory);
  EXPECT_EQ(classify_path("hash.5/job.4294967295").role, Role::kEntryDirectory);
  EXPECT_EQ(classify_path("hash.1/job.123456789012345671").role, Role::kEntryDirectory);
}

TEST(SlurmPathTest, LeavesEverythingElseAlone) {
  for (const std::string_view path : {""sv,
                                      "/"sv,
                                      "hash"sv,
                                      "hash."sv,
                                      "hash.10"sv,
                                      "hash.a"sv,
                                      "hash.-1"sv,
                                      "Hash.1"sv,
                                      "hash.1/"sv,
                                      "hash.1x/job.1"sv,
                                      "hash.1//job.1"sv,
                                      "hash.1/job"sv,
                                      "hash.1/job."sv,
                                      "hash.1/job.x"sv,
                                      "hash.1/job.12"sv,
                                      "hash.0/job.0"sv,
                                      "hash.1/job.01"sv,
                                      "hash.1/job.+1"sv,
                                      "hash.1/job. 1"sv,
                                      "hash.1/job.1.new"sv,
                                      "hash.1/job.1/"sv,
                                      "hash.1/job.1/path"sv,
                                      "hash.1/job.1/pathfile"sv,
                                      "hash.1/job.1/client_nids"sv,
                                      "hash.1/job.1/script.new"sv,
                                      "hash.1/job.1/script/"sv,
                                      "hash.1/job.1/script/x"sv,
                                      "hash.1/job.1/../job.1/script"sv,
                                      "./hash.1/job.1/script"sv,
                                      "/hash.1/job.1/script"sv,
                                      "job.1"sv,
                                      "job.1/script"sv,
                                      "job_state"sv,
                                      "job_state.new"sv,
                                      "jwt_hs256.key"sv,
                                      "clustername"sv,
                                      "hash.1/job.1111111111111111111"sv,
                                      "hash.1/job.1\0"sv,
                                      "hash.1/job.1\n"sv,
                                      "other/hash.1/job.1/script"sv}) {
    EXPECT_EQ(classify_path(path).role, Role::kForeign) << path;
  }
}

TEST(SlurmFixturesTest, AreAllThere) {
  std::set<std::string> names;
  for (const auto& entry : recorded_entries()) names.insert(entry.name);
  EXPECT_EQ(recorded_entries().size(), 36U);
  EXPECT_EQ(names.size(), 34U);
}

TEST(SlurmFixturesTest, EachIsCompleteAndKeepsItsExactBytes) {
  for (const auto& recorded : recorded_entries()) {
    SCOPED_TRACE(recorded.name + " " + recorded.key);
    EXPECT_EQ(assess_entry(whole(recorded)).state, Assessment::State::kComplete);
    const ParsedJob job = parsed(whole(recorded));
    ASSERT_TRUE(job.script && job.environment);
    EXPECT_EQ(*job.script + '\0', recorded.script);
    EXPECT_EQ(job.environment_format, EnvironmentFormat::kNulEnded);
    EXPECT_EQ(*job.environment, recorded.environment.substr(4));
    EXPECT_THAT(job.problems, IsEmpty());
    EXPECT_EQ("hash." + job.job.id.substr(job.job.id.size() - 1) + "/job." + job.job.id,
              recorded.key);
    EXPECT_EQ(job.script_file, "script");
  }
}

TEST(SlurmFixturesTest, NobodyIsBelievedToOwnAJob) {
  for (const auto& recorded : recorded_entries()) {
    const ParsedJob job = parsed(whole(recorded));
    EXPECT_FALSE(job.user.verified || job.user.name || job.user.id || job.user.group_name ||
                 job.user.group_id)
        << recorded.name;
    EXPECT_FALSE(job.job.account || job.job.partition || job.job.qos || job.job.array ||
                 job.job.het || job.job.submitted_at)
        << recorded.name;
  }
}

TEST(SlurmFixturesTest, NoShorterEnvironmentIsComplete) {
  for (const auto& recorded : recorded_entries()) {
    SpoolEntry entry = whole(recorded);
    for (std::size_t length = 0; length < recorded.environment.size(); ++length) {
      ASSERT_EQ(environment_shape(std::string_view(recorded.environment).substr(0, length)).state,
                EnvironmentShape::State::kShort)
          << recorded.name << " at " << length;
    }
    for (std::size_t length = 0; length < recorded.environment.size(); length += 37) {
      entry.files[0] = spool_file("environment", recorded.environment.substr(0, length));
      ASSERT_EQ(assess_entry(entry).state, Assessment::State::kIncomplete)
          << recorded.name << " at " << length;
      ASSERT_EQ(assess_entry(entry).reason, "environment short");
    }
  }
}

TEST(SlurmFixturesTest, NoShorterScriptIsComplete) {
  for (const auto& recorded : recorded_entries()) {
    SpoolEntry entry = whole(recorded);
    // The bytes shrink in place, from the end, as a copy for each length of a megabyte would take
    // minutes.
    auto bytes = std::make_shared<std::string>(recorded.script);
    entry.files[1].bytes = bytes;
    while (!bytes->empty()) {
      bytes->pop_back();
      const Assessment now = assess_entry(entry);
      ASSERT_EQ(now.state, Assessment::State::kIncomplete)
          << recorded.name << " at " << bytes->size();
      ASSERT_EQ(now.reason, "script short");
    }
  }
}

TEST(SlurmFixturesTest, OddValuesComeBackAsTheyWereSet) {
  const ParsedJob job = parsed(whole(recorded_entry("10-env-odd-values")));
  std::map<std::string_view, std::string_view> values;
  const auto variables = split_environment(*job.environment);
  EXPECT_EQ(variables.size(), 30U);
  for (const Variable& variable : variables) values[variable.name] = variable.value;
  EXPECT_EQ(values["WITH_EQUALS"], "a=b==c=");
  EXPECT_EQ(values["MULTILINE"], "line 1\nFAKE=injected\nUSER=root\n");
  EXPECT_EQ(values["TABS"], "\ta\t");
  ASSERT_TRUE(values.contains("EMPTY"));
  EXPECT_EQ(values["EMPTY"], "");
  EXPECT_EQ(values["LATIN1"], "\351");
  EXPECT_EQ(values["BASH_FUNC_module%%"], "() {  eval \"$(modulecmd bash $*)\"\n}");
  EXPECT_FALSE(values.contains("FAKE"));
}

TEST(SlurmFixturesTest, StringsThatAreNoVariablesKeepTheirOrder) {
  const ParsedJob job = parsed(whole(recorded_entry("31-api-odd-env")));
  EXPECT_EQ(*job.environment, "A=1\0NOEQUALS\0USER=x\0USER=y\0=odd\0\0"s);
}

TEST(SlurmFixturesTest, AContainerJobHasAnEmptyEnvironmentAndNotNone) {
  const ParsedJob job = parsed(whole(recorded_entry("32-api-container-no-env")));
  ASSERT_TRUE(job.environment);
  EXPECT_EQ(*job.environment, "");
  EXPECT_EQ(job.environment_format, EnvironmentFormat::kNulEnded);
}

TEST(SlurmFixturesTest, TheNameIsAHintFromTheEnvironmentOrTheScript) {
  const auto name = [](std::string_view fixture) {
    return parsed(whole(recorded_entry(fixture))).job.name;
  };
  EXPECT_EQ(name("01-ordinary"), "ordinary");
  EXPECT_EQ(name("11-name-spaces"), "my job  with   spaces ");
  EXPECT_EQ(name("12-name-slashes"), "proj/run/1");
  EXPECT_EQ(name("15-name-dotdot"), "../../../../etc/cron.d/evil");
  EXPECT_EQ(name("17-name-1024"), std::string(1024, 'N'));
  EXPECT_EQ(name("18-name-control"), "line1\nline2\ttab\033[31mred");
  EXPECT_EQ(name("34-name-not-utf8"), "bad\377\376name");
  EXPECT_EQ(name("25-stdin"), "ordinary");
  EXPECT_EQ(name("26-stdin-no-name"), std::nullopt);
  EXPECT_EQ(name("30-api-minimal-env"), std::nullopt);
}

TEST(SlurmFixturesTest, TheSubmitDirectoryIsAHintForTheWorkDirectory) {
  EXPECT_EQ(parsed(whole(recorded_entry("01-ordinary"))).job.work_dir, "/home/bob/project/run1");
  EXPECT_EQ(parsed(whole(recorded_entry("30-api-minimal-env"))).job.work_dir, std::nullopt);
}

TEST(SlurmFixturesTest, ScriptsTellInterpreterDirectivesAndModules) {
  const ParsedJob job = parsed(whole(recorded_entry("01-ordinary")));
  EXPECT_EQ(job.script_info.interpreter, "/bin/bash");
  EXPECT_THAT(
      job.script_info.directives,
      ElementsAre("--job-name=ordinary", "--output=ordinary-%j.out", "--ntasks=4 --time=00:10:00"));
  EXPECT_THAT(job.script_info.modules, ElementsAre("GCC/12.2.0"));
  EXPECT_EQ(parsed(whole(recorded_entry("33-api-crlf"))).script_info.interpreter, "/bin/sh");
}

class SlurmAssessTest : public ::testing::Test {
 protected:
  SpoolEntry entry_{"hash.1/job.11", {}};
  void add(std::string name, std::string bytes, std::uint64_t links = 1, bool truncated = false) {
    entry_.files.push_back(spool_file(std::move(name), std::move(bytes), links, truncated));
  }
  std::string_view why_incomplete() const {
    const Assessment now = assess_entry(entry_);
    EXPECT_EQ(now.state, Assessment::State::kIncomplete);
    return now.reason;
  }
};

TEST_F(SlurmAssessTest, SaysWhatIsMissing) {
  EXPECT_EQ(why_incomplete(), "environment missing");
  add("script", kWholeScript);
  EXPECT_EQ(why_incomplete(), "environment missing");
  entry_.files.clear();
  add("environment", "");
  EXPECT_EQ(why_incomplete(), "environment short");
  entry_.files.clear();
  add("environment", environment_file({"A=1"}));
  EXPECT_EQ(why_incomplete(), "script missing");
  add("script", "");
  EXPECT_EQ(why_incomplete(), "script short");
  entry_.files.pop_back();
  add("script", "#!/bin/sh\n");
  EXPECT_EQ(why_incomplete(), "script short");
}

TEST_F(SlurmAssessTest, FilesMayComeInAnyOrder) {
  add("script", kWholeScript);
  add("environment", environment_file({"A=1"}));
  EXPECT_EQ(assess_entry(entry_).state, Assessment::State::kComplete);
}

TEST_F(SlurmAssessTest, ATearBetweenTwoStringsIsSeen) {
  std::string bytes = environment_file({"A=1", "B=2"});
  bytes.resize(bytes.size() - 4);
  ASSERT_EQ(bytes.back(), '\0');
  add("environment", bytes);
  add("script", kWholeScript);
  EXPECT_EQ(why_incomplete(), "environment short");
}

TEST_F(SlurmAssessTest, ACountThatNoFileCanHoldIsShortAtOnceAndCheaply) {
  add("environment", "\xff\xff\xff\xff"s + "A=1\0"s);
  add("script", kWholeScript);
  EXPECT_EQ(why_incomplete(), "environment short");
}

TEST_F(SlurmAssessTest, TooManyStringsAreTakenAtOnceAsWaitingHealsNothing) {
  add("environment", environment_file({"A=1"}) + "B=2\0"s);
  EXPECT_EQ(why_incomplete(), "script missing");
  add("script", kWholeScript);
  EXPECT_EQ(assess_entry(entry_).state, Assessment::State::kComplete);
}

TEST_F(SlurmAssessTest, AHardLinkedScriptAloneIsADuplicate) {
  add("script", kWholeScript, 2);
  EXPECT_EQ(assess_entry(entry_).state, Assessment::State::kDuplicate);
  entry_.files[0] = spool_file("script", "#!/bin/sh\n", 2);
  EXPECT_EQ(why_incomplete(), "environment missing");
}

TEST_F(SlurmAssessTest, AHardLinkedScriptWithItsEnvironmentIsTheArraysOwn) {
  add("script", kWholeScript, 3);
  add("environment", environment_file({"A=1"}));
  EXPECT_EQ(assess_entry(entry_).state, Assessment::State::kComplete);
}

TEST_F(SlurmAssessTest, FilesOverTheLimitAreTakenOnceTheyStandStill) {
  add("environment", environment_file({"A=1"}));
  add("script", "#!/bin/sh\n", 1, true);
  const Assessment now = assess_entry(entry_);
  EXPECT_EQ(now.state, Assessment::State::kSettling);
  EXPECT_GT(now.settle, 0ms);
}

TEST(SlurmParseTest, AMalformedEnvironmentIsKeptWholeWithItsProblem) {
  const std::string bytes = environment_file({"A=1"}) + "B=2\0"s;
  const ParsedJob job = parsed(spool_entry("hash.1/job.11", bytes, kWholeScript));
  EXPECT_EQ(*job.environment, bytes);
  EXPECT_EQ(job.environment_format, EnvironmentFormat::kRaw);
  EXPECT_THAT(job.problems,
              ElementsAre("environment: count 1, more bytes after that many strings"));
  EXPECT_EQ(job.job.name, std::nullopt);
}

TEST(SlurmParseTest, AnIncompleteEntryIsArchivedWithWhatIsThere) {
  std::string environment = environment_file({"A=1", "B=2", "C=3"});
  environment.resize(environment.size() - 4);
  const ParsedJob job =
      parsed(spool_entry("hash.1/job.11", environment, "#!/bin/bash\n#SBATCH -t 1\nech"));
  EXPECT_EQ(*job.environment, environment);
  EXPECT_EQ(job.environment_format, EnvironmentFormat::kRaw);
  EXPECT_EQ(*job.script, "#!/bin/bash\n#SBATCH -t 1\nech");
  EXPECT_THAT(job.problems, ElementsAre("environment: count 3, 2 strings",
                                        HasSubstr("script: its final NUL is missing")));
  EXPECT_THAT(job.script_info.directives, ElementsAre("-t 1"));
}

TEST(SlurmParseTest, AnEnvironmentWithoutItsCountIsKept) {
  const ParsedJob job = parsed(spool_entry("hash.1/job.11", "\x01\x00"s, kWholeScript));
  EXPECT_EQ(*job.environment, "\x01\x00"s);
  EXPECT_THAT(job.problems, ElementsAre("environment: 2 bytes, too short for its count"));
}

TEST(SlurmParseTest, OnlyOneFinalNulIsTakenAway) {
  const ParsedJob job = parsed(spool_entry("hash.1/job.11", environment_file({}), "a\0b\0\0"s));
  EXPECT_EQ(*job.script, "a\0b\0"s);
  EXPECT_THAT(job.problems, ElementsAre("script: NUL byte inside, at offset 1"));
}

TEST(SlurmParseTest, AMissingScriptOrEnvironmentIsSaid) {
  const ParsedJob no_script =
      parsed({"hash.1/job.11", {spool_file("environment", environment_file({"A=1"}))}});
  EXPECT_FALSE(no_script.script);
  EXPECT_EQ(no_script.script_file, "environment");
  EXPECT_THAT(no_script.problems, ElementsAre("script: missing"));
  const ParsedJob no_environment = parsed({"hash.1/job.11", {spool_file("script", kWholeScript)}});
  EXPECT_FALSE(no_environment.environment);
  EXPECT_EQ(no_environment.environment_format, EnvironmentFormat::kNone);
  EXPECT_THAT(no_environment.problems, ElementsAre("environment: missing"));
  const ParsedJob linked = parsed({"hash.1/job.11", {spool_file("script", kWholeScript, 2)}});
  EXPECT_THAT(linked.problems, IsEmpty()) << "a burst-buffer task never has an environment";
}

TEST(SlurmParseTest, FilesOverTheLimitAreKeptUncutAndMarked) {
  SpoolEntry entry{"hash.1/job.11",
                   {spool_file("environment", environment_file({"A=1"}), 1, true),
                    spool_file("script", "#!/bin/sh\n\0"s, 1, true)}};
  const ParsedJob job = parsed(entry);
  EXPECT_EQ(job.script->size(), 11U) << "the NUL is not the script's end";
  EXPECT_EQ(job.environment_format, EnvironmentFormat::kRaw);
  EXPECT_THAT(job.problems, ElementsAre(HasSubstr("NUL byte inside")))
      << "that the files are cut is core's to say";
}

TEST(SlurmParseTest, HintsOutOfBoundsAreNotTaken) {
  const auto with = [](const std::string& variable) {
    return parsed(spool_entry("hash.1/job.11", environment_file({variable}), kWholeScript)).job;
  };
  EXPECT_EQ(with("SLURM_JOB_NAME=").name, std::nullopt);
  EXPECT_EQ(with("SLURM_JOB_NAME=" + std::string(1025, 'x')).name, std::nullopt);
  EXPECT_EQ(with("SLURM_SUBMIT_DIR=relative").work_dir, std::nullopt);
  EXPECT_EQ(with("SLURM_SUBMIT_DIR=/" + std::string(5000, 'x')).work_dir, std::nullopt);
  EXPECT_EQ(with("XSLURM_JOB_NAME=no").name, std::nullopt);
}

TEST(SlurmParseTest, TheLastOfTwoNamesCountsAsInTheEventsJson) {
  const auto job =
      parsed(spool_entry("hash.1/job.11",
                         environment_file({"SLURM_JOB_NAME=a", "SLURM_JOB_NAME=b"}), kWholeScript))
          .job;
  EXPECT_EQ(job.name, "b");
}

TEST(SlurmParseTest, AnEntryWithoutFilesOrOfAnotherPlaceIsAnError) {
  auto gone = parse_entry({"hash.1/job.11", {}});
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().kind(), ErrorKind::kVanished);
  auto foreign = parse_entry(spool_entry("hash.2/job.11", environment_file({}), kWholeScript));
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().kind(), ErrorKind::kPermanent);
}

}  // namespace
}  // namespace scriptorium::slurm
