#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "tests/core/cli/said.h"
#include "tests/support/temp_dir.h"

// The commands that find and compare jobs, on a sink that has some (tests/broken_plugins/
// remembering.cc).
namespace scriptorium::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class FindCommandsTest : public ::testing::Test {
 protected:
  FindCommandsTest() {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
    ::unsetenv("MODULESHOME");
    config("[sink.store]\nplugin = \"remembering\"\n[sink.null]\n");
  }
  void config(const std::string& sinks) {
    file_ = own_.write("scriptorium.toml",
                       "cluster = \"lab\"\nstate_dir = \"" + own_.make_directory("state") +
                           "\"\nplugin_dirs = [\"" SCRIPTORIUM_PLUGINS
                           "\", \"" SCRIPTORIUM_SOUND_PLUGINS "\"]\n[source.replay]\nfolder = \"" +
                           own_.make_directory("recorded") + "\"\n" + sinks);
  }
  Said run(std::vector<std::string> words) {
    words.insert(words.begin() + 1, {"--config", file_});
    return say(words);
  }

  test::TempDir own_;
  std::string file_;
};

// ---- search

TEST_F(FindCommandsTest, SearchFindsByScriptOwnerAndOutcome) {
  const Said said = run({"search", "mpirun", "user:alice", "state:FAILED"});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(said.out, AllOf(HasSubstr("103"), HasSubstr("FAILED (2)"), Not(HasSubstr("102"))));
  EXPECT_THAT(said.out, HasSubstr("   4: mpirun -np 32 gmx mdrun\n"));
}

TEST_F(FindCommandsTest, SearchCountsTheJobsWhoseEndIsUnknown) {
  ::setenv("REMEMBER_RUNNING", "1", 1);
  const Said said = run({"search", "mpirun", "state:FAILED"});
  EXPECT_EQ(said.err, "1 job: end unknown\n");
  EXPECT_EQ(run({"search", "mpirun", "state:FAILED", "--count"}).err, "1 job: end unknown\n");
  EXPECT_EQ(run({"search", "state:FAILED", "user:bob"}).err, "");
  EXPECT_EQ(run({"search", "mpirun"}).err, "");
  const Said json = run({"search", "mpirun", "state:FAILED", "--json"});
  EXPECT_EQ(Json::parse(json.out).at("end_unknown"),
            Json::parse(R"({"jobs": 1, "at_least": false})"));
  EXPECT_EQ(json.err + run({"search", "mpirun", "state:FAILED", "--ids"}).err, "");
  ::unsetenv("REMEMBER_RUNNING");
}

TEST_F(FindCommandsTest, SearchThatFindsNothingIsSilentAndExits1) {
  const Said said = run({"search", "relion"});
  EXPECT_EQ(said.code, 1);
  EXPECT_EQ(said.out + said.err, "");
}

TEST_F(FindCommandsTest, SearchShowsAWrongQuerysPlaceAndExits64) {
  const Said said = run({"search", "gmx", "usr:alice"});
  EXPECT_EQ(said.code, 64);
  EXPECT_THAT(said.err, AllOf(HasSubstr("search:1:5:"), HasSubstr("did you mean \"user\"?"),
                              HasSubstr("\n      ^~~")));
}

TEST_F(FindCommandsTest, SearchGoesOnBehindAnEarlierAnswer) {
  const Json first = Json::parse(run({"search", "--limit", "1", "--json"}).out);
  EXPECT_EQ(first.at("hits").at(0).at("job").at("id"), "200");
  EXPECT_EQ(run({"search", "--limit", "2", "--ids", "--after", first.at("next")}).out,
            "103\n102\n");
  EXPECT_EQ(run({"search", "--all", "--ids"}).out, "200\n103\n102\n101\n");
}

TEST_F(FindCommandsTest, SearchCountsAndTellsWhoHasHowMany) {
  EXPECT_EQ(run({"search", "gmx", "--count"}).out, "3\n");
  EXPECT_EQ(run({"search", "--facets", "user"}).out, "USER   JOBS\nalice     3\nbob       1\n");
  EXPECT_EQ(run({"search", "nothing", "--count"}).code, 1);
}

TEST_F(FindCommandsTest, SearchRefusesASinkThatIsNotThereOrCannotBeSearched) {
  const Said unknown = run({"search", "x", "--in", "stoer"});
  EXPECT_EQ(unknown.code, 64);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean \"store\"?"));
  EXPECT_THAT(run({"search", "x", "--in", "null"}).err, HasSubstr("cannot be searched"));
  EXPECT_EQ(run({"search", "x", "--in", "null"}).code, 64);
  config("[sink.null]\n");
  const Said none = run({"search", "x"});
  EXPECT_EQ(none.code, 78);
  EXPECT_THAT(none.err, HasSubstr("can be searched"));
}

// ---- diff, history

TEST_F(FindCommandsTest, DiffOfOneJobIsAgainstTheLastThatWorked) {
  const Said said = run({"diff", "103"});
  EXPECT_EQ(said.code, 1) << said.err;
  EXPECT_THAT(said.out, HasSubstr("compared with job 102 of 2026-11-21 02:26"));
  EXPECT_THAT(said.out, HasSubstr("-mpirun -np 16 gmx mdrun\n+module load GCC/13\n+mpirun"));
  EXPECT_THAT(said.out, HasSubstr("  - GCC/12\n  + GCC/13\n"));
  EXPECT_THAT(said.out, HasSubstr("  - OMP_NUM_THREADS=4\n  + OMP_NUM_THREADS=8\n"));
}

TEST_F(FindCommandsTest, DiffOfEqualJobsExits0AndOfAJobThatWorkedFirstSaysWhyNot) {
  EXPECT_EQ(run({"diff", "101", "102"}).code, 0);
  const Said said = run({"diff", "101"});
  EXPECT_EQ(said.code, 66);
  EXPECT_THAT(said.err, HasSubstr("no earlier run of job 101's family"));
  EXPECT_EQ(run({"diff", "101", "999"}).code, 66);
}

TEST_F(FindCommandsTest, HistoryShowsTheRunsAndTheEditsBetween) {
  const Said said = run({"history", "101"});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(said.out, AllOf(HasSubstr("103"), HasSubstr("102"), Not(HasSubstr("200"))));
  EXPECT_THAT(said.out, HasSubstr("+2 -2, modules\n"));
  EXPECT_THAT(said.out, HasSubstr("    -mpirun -np 16 gmx mdrun\n"));
  const Json json = Json::parse(run({"history", "101", "--json", "--limit", "2"}).out);
  ASSERT_EQ(json.at("runs").size(), 2U);
  EXPECT_EQ(json.at("runs").at(0).at("edit").at("lines_added"), 2);
  EXPECT_EQ(json.at("runs").at(1).at("edit").at("lines_added"), 0);
}

// ---- report

TEST_F(FindCommandsTest, ReportAsksASinkWithAnIndexBeforeItWalksATree) {
  config("[sink.store]\nplugin = \"remembering\"\nkinds = [\"usage.*\"]\n[sink.null]\n");
  const Said one = run({"report", "103"});
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_THAT(one.out, AllOf(HasSubstr("job 103"), HasSubstr("FAILED")));
  const Json all = Json::parse(run({"report", "--user", "alice", "--json"}).out);
  EXPECT_EQ(all.at("jobs").size(), 3U);
  EXPECT_EQ(run({"report", "10*"}).code, 66);
  const Json late = Json::parse(run({"report", "--since", "2026-11-22", "--json"}).out);
  EXPECT_EQ(late.at("jobs").size(), 0U);
}

TEST_F(FindCommandsTest, ReportHasATaskThatEndedAfterTheOneThatItsArrayIsJudgedBy) {
  config("[sink.store]\nplugin = \"remembering\"\nkinds = [\"usage.*\"]\n");
  ::setenv("REMEMBER_ARRAY", "1", 1);
  const Json late = Json::parse(run({"report", "--since", "2026-11-22", "--json"}).out);
  const Json whole = Json::parse(run({"report", "50", "--json"}).out);
  ::unsetenv("REMEMBER_ARRAY");
  ASSERT_EQ(late.at("jobs").size(), 1U);
  EXPECT_EQ(late.at("jobs").at(0).at("id"), "50_1");
  EXPECT_EQ(whole.at("jobs").size(), 2U);
}

TEST_F(FindCommandsTest, ReportLeavesOutASinkThatDoesNotTakeUse) {
  const Said said = run({"report", "103"});
  EXPECT_EQ(said.code, 78);
  EXPECT_THAT(said.err, HasSubstr("no sink keeps usage.job"));
}

// ---- show

TEST_F(FindCommandsTest, ShowAddsOutcomeAndUseAndTakesSeveralJobs) {
  const Said said = run({"show", "101-103", "lab/200"});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(said.out, AllOf(HasSubstr("job 101"), HasSubstr("job 102"), HasSubstr("job 103"),
                              HasSubstr("job 200"), HasSubstr("print('hello')")));
  EXPECT_THAT(said.out, HasSubstr("outcome     FAILED (2) after 1 min 30 s"));
  EXPECT_THAT(said.out, HasSubstr("its runs: scriptorium history 103"));
}

// There is no journal here, so a job that is missing might be in it: 69.
TEST_F(FindCommandsTest, ShowOfARangeLeavesOutWhatIsMissingAndSaysSoOfANamedJob) {
  const Said range = run({"show", "103-110"});
  EXPECT_EQ(range.code, 0);
  EXPECT_THAT(range.err, Not(HasSubstr("104")));
  const Said said = run({"show", "103", "104"});
  EXPECT_EQ(said.code, 69);
  EXPECT_THAT(said.err, HasSubstr("job 104 is neither in the journal nor in a sink that could be"));
  EXPECT_THAT(said.out, HasSubstr("job 103"));
  EXPECT_EQ(run({"show", "900-910"}).code, 69);
  EXPECT_EQ(run({"show", "hpc/103"}).code, 69);
}

TEST_F(FindCommandsTest, ShowGivesTheBytesAndTheRowToPrograms) {
  EXPECT_THAT(run({"show", "200", "--raw"}).out, "#!/usr/bin/python3\nprint('hello')\n");
  EXPECT_EQ(run({"show", "200", "101", "--raw"}).code, 64);
  const Json json = Json::parse(run({"show", "103", "--json"}).out);
  EXPECT_EQ(json.at(0).at("job").at("state"), "FAILED");
  EXPECT_EQ(json.at(0).at("stored").at(0).at("sink"), "store");
}

// ---- software

TEST_F(FindCommandsTest, SoftwareCountsModulesAndInterpreters) {
  const Json json = Json::parse(run({"software", "--json"}).out);
  EXPECT_EQ(json.at("jobs"), 4);
  EXPECT_EQ(json.at("software").at(0).at("name"), "GCC/12");
  EXPECT_EQ(json.at("software").at(0).at("jobs"), 2);
  EXPECT_EQ(json.at("software").at(0).at("cpu_hours"), 4.0);
  EXPECT_THAT(run({"software"}).out,
              AllOf(HasSubstr("/usr/bin/python3"), HasSubstr("conda torch")));
  EXPECT_THAT(run({"software", "--by", "user", "--csv"}).out,
              HasSubstr("module,GCC/12,alice,2,1,2,4.0,"));
  EXPECT_EQ(run({"software", "--since", "never"}).code, 64);
}

}  // namespace
}  // namespace scriptorium::cli
