#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stop_token>
#include <string>
#include <vector>

#include "core/cli/archive_guard.h"
#include "core/cli/redact_record.h"
#include "core/cli/redact_text.h"
#include "core/daemon/state_dir.h"
#include "core/journal/journal.h"
#include "tests/core/cli/said.h"
#include "tests/support/event_factory.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Json = nlohmann::json;

constexpr const char* kToken = "labtok_0123456789abcdef0123456789abcdef";
constexpr const char* kOtherToken = "labtok_fedcba9876543210fedcba9876543210";
constexpr const char* kZeroToken = "labtok_00000000000000000000000000000000";

// A rule of the test's own, so that what it finds does not depend on the shipped ones.
constexpr const char* kRules = R"(
off = []
[names]
deny = ["LAB_*_PIN"]
[[rule]]
name = "lab-token"
about = "a token of the lab"
keywords = ["labtok_"]
regex = '(labtok_[0-9a-f]{32})'
entropy = 2.0
allow = ["^labtok_feedbeef"]
hits = [{ text = "T=labtok_0123456789abcdef0123456789abcdef", secret = "labtok_0123456789abcdef0123456789abcdef" }]
[[rule]]
name = "lab-strict"
about = "something of the lab"
keywords = ["labword"]
regex = 'labword (\S+)'
strict = true
hits = [{ text = "labword abc", secret = "abc" }]
)";

class RedactCommandTest : public ::testing::Test {
 protected:
  RedactCommandTest() {
    config_ = directory_.write("scriptorium.toml", "cluster = \"lab\"\n");
    directory_.write("redact.d/50-lab.toml", kRules);
  }
  Said run(std::vector<std::string> words, const std::string& input = "") const {
    words.insert(words.begin(), "redact");
    words.insert(words.end(), {"--config", config_});
    return say(words, input);
  }

  test::TempDir directory_;
  std::string config_;
};

TEST_F(RedactCommandTest, NamesLineRuleAndMaskedTextOfEachSecret) {
  const std::string file = directory_.write(
      "job.sh", std::string("#!/bin/sh\necho hi\nexport T=") + kToken + " U=" + kToken + "\n");
  const Said outcome = run({file});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr(file + ":3: lab-token: what looks like a token of the lab\n"
                                            "    export T=la**** U=la****\n"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("0123")));
}

TEST_F(RedactCommandTest, AScriptWithoutSecretsSaysNothingAndExits0) {
  const Said outcome = run({directory_.write("job.sh", "#!/bin/sh\necho labtok_\n")});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "");
}

TEST_F(RedactCommandTest, ReadsStandardInput) {
  const Said outcome = run({"-"}, std::string("T=") + kToken + "\n");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("-:1: lab-token"));
}

TEST_F(RedactCommandTest, ChecksTheOtherFilesIfOneCannotBeRead) {
  const std::string file = directory_.write("job.sh", kToken);
  const Said outcome = run({directory_.path_to("none.sh"), file});
  EXPECT_EQ(outcome.code, 66);
  EXPECT_THAT(outcome.err, HasSubstr("none.sh"));
  EXPECT_THAT(outcome.out, HasSubstr(file + ":1: lab-token"));
}

TEST_F(RedactCommandTest, AnEnvironmentIsReadWithNulOrWithLines) {
  const std::string strings = std::string("HOME=/h\0LAB_X_PIN=1234\0T=", 25) + kToken + '\0';
  std::string lines = strings;
  for (char& c : lines) c = c == '\0' ? '\n' : c;
  for (const std::string& text : {strings, lines}) {
    const Said outcome = run({"--environment", directory_.write("env", text)});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(outcome.out, HasSubstr(":2: variable-name: "));
    EXPECT_THAT(outcome.out, HasSubstr("\n    LAB_X_PIN=****\n"));
    EXPECT_THAT(outcome.out, HasSubstr("\n    T=la****\n"));
    EXPECT_THAT(outcome.out, Not(HasSubstr("1234")));
  }
}

TEST_F(RedactCommandTest, AFileThatIsNoEnvironmentIsADataError) {
  const Said outcome = run({"--environment", directory_.write("env", "hello")});
  EXPECT_EQ(outcome.code, 65);
  EXPECT_THAT(outcome.err, HasSubstr("no NAME=value"));
}

TEST_F(RedactCommandTest, PrintsWhatWouldBeArchivedAndNoMore) {
  const Said script =
      run({"--print", directory_.write("job.sh", std::string("export T=") + kToken + "\nls\n")});
  EXPECT_EQ(script.code, 1);
  EXPECT_EQ(script.out, "export T=[redacted:lab-token]\nls\n");
  const Said environment =
      run({"--print", "--environment", directory_.write("env", "LAB_A_PIN=1\nA=b\n")});
  EXPECT_EQ(environment.out, "LAB_A_PIN=[redacted:variable-name]\nA=b\n");
}

TEST_F(RedactCommandTest, ExplainsWhatIsKeptAlthoughARuleNearlyApplies) {
  const std::string file = directory_.write(
      "job.sh", std::string("a=") + kZeroToken + "\nb=labtok_feedbeef0123456789abcdef01234567\n" +
                    "labword xyz\n");
  EXPECT_EQ(run({file}).out, "");
  const Said outcome = run({"--explain", file});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr(":1: kept, not lab-token: too regular: "),
                                 HasSubstr(":2: kept, not lab-token: on the rule's allow list"),
                                 HasSubstr(":3: kept, not lab-strict: only with --mode strict")));
  EXPECT_THAT(outcome.out, Not(HasSubstr("feedbeef")));
  EXPECT_EQ(run({"--mode", "strict", file}).code, 1);
}

TEST_F(RedactCommandTest, ARuleThatOnlyReportsSaysSo) {
  const Said outcome = run({"--mode", "flag", directory_.write("job.sh", kToken)});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("(reported, but kept)"));
}

TEST_F(RedactCommandTest, ListsTheRulesWithWhereTheyComeFrom) {
  const Said table = run({"--rules"});
  EXPECT_EQ(table.code, 0);
  EXPECT_THAT(table.out, AllOf(HasSubstr("lab-token"), HasSubstr("variable-name"),
                               Not(HasSubstr("lab-strict"))));
  const Json list = Json::parse(run({"--rules", "--json"}).out);
  const auto mine = std::find_if(list.begin(), list.end(),
                                 [](const Json& rule) { return rule["name"] == "lab-token"; });
  ASSERT_NE(mine, list.end());
  EXPECT_EQ((*mine)["about"], "a token of the lab");
  EXPECT_EQ((*mine)["where"], Json({"script", "value", "text"}));
  EXPECT_EQ((*mine)["action"], "replace");
  EXPECT_EQ((*mine)["file"], directory_.path_to("redact.d/50-lab.toml"));
}

TEST_F(RedactCommandTest, FindingsAsJson) {
  const std::string file = directory_.write("job.sh", std::string("\nT=") + kToken);
  const Json list = Json::parse(run({"--json", file}).out);
  ASSERT_THAT(list, SizeIs(1));
  EXPECT_EQ(list[0]["file"], file);
  EXPECT_EQ(list[0]["line"], 2);
  EXPECT_EQ(list[0]["rule"], "lab-token");
  EXPECT_EQ(list[0]["text"], "T=la****");
}

TEST_F(RedactCommandTest, ABrokenRuleIsAConfigurationError) {
  directory_.write("redact.d/60-bad.toml",
                   "[[rule]]\nname = \"bad\"\nabout = \"x\"\nkeywords = [\"x\"]\nregex = '('\n");
  const Said outcome = run({"-"}, "x");
  EXPECT_EQ(outcome.code, 78);
  EXPECT_THAT(outcome.err, HasSubstr("60-bad.toml"));
}

TEST_F(RedactCommandTest, RefusesWhatDoesNotGoTogether) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{},
                                             {"--archive", "/x"},
                                             {"--archive", "/x", "--apply", "--dry-run"},
                                             {"--apply", "x"},
                                             {"--rules", "x"},
                                             {"--explain"},
                                             {"--mode", "off", "x"},
                                             {"--record", "r", "--archive", "/x", "--dry-run"}}) {
    EXPECT_EQ(run(words).code, 64) << ::testing::PrintToString(words);
  }
}

// ---- texts

TEST(MaskedLineTest, ShowsTheFirstTwoCharactersOfALongSecretOnly) {
  EXPECT_EQ(masked_secret("short-one"), "****");
  EXPECT_EQ(masked_secret("a-secret-of-20-bytes"), "a-****");
  EXPECT_EQ(masked_secret("\x1b[2Jxxxxxxxxxxxx").find('\x1b'), std::string::npos);
}

class MaskedTextTest : public ::testing::Test {
 protected:
  std::string line(const std::string& text, std::vector<redact::Finding> all, std::size_t which,
                   bool whole = false) {
    return MaskedText(text, all).line_of(all[which], console_, whole);
  }
  std::istringstream in_;
  std::ostringstream out_;
  Console console_{.in = in_, .out = out_, .err = out_};
};

TEST_F(MaskedTextTest, AFindingOverSeveralLinesShowsNoneOfThem) {
  const std::string text = "cat <<E\n-----BEGIN KEY\nMIIB\n-----END\nE\n";
  const std::size_t begin = text.find("-----BEGIN");
  EXPECT_EQ(line(text, {{.begin = begin, .end = text.find("\nE\n")}}, 0), "--****");
}

TEST_F(MaskedTextTest, ALongLineIsShownNearTheSecretOnly) {
  const std::string text =
      std::string(500, 'a') + " SECRETSECRET " + std::string(500, 'b') + "\nnext";
  const std::string shown = line(text, {{.begin = 501, .end = 513}}, 0);
  EXPECT_THAT(shown, HasSubstr(" SE**** "));
  EXPECT_LT(shown.size(), 150U);
  EXPECT_TRUE(shown.starts_with("...") && shown.ends_with("..."));
}

TEST_F(MaskedTextTest, ACopyThatNoRuleFoundIsMaskedToo) {
  EXPECT_EQ(line("p=hunter2 echo hunter2", {{.begin = 2, .end = 9}}, 0), "p=**** echo ****");
}

TEST_F(MaskedTextTest, OfACopyAtTheEdgeOfWhatIsShownNothingIsSeen) {
  for (std::size_t before = 70; before < 95; ++before) {
    const std::string text =
        "p=hunter2 hunter2" + std::string(before, '.') + "token" + std::string(36, '.') + "hunter2";
    const std::size_t token = text.find("token");
    const std::string shown =
        line(text, {{.begin = 2, .end = 9}, {.begin = token, .end = token + 5}}, 1);
    EXPECT_THAT(shown, ::testing::Not(::testing::AnyOf(HasSubstr("2"), HasSubstr("hu")))) << shown;
  }
}

TEST_F(MaskedTextTest, ControlCharactersAreEscaped) {
  EXPECT_EQ(line("a\x1b[2J p=secret", {{.begin = 8, .end = 14}}, 0), "a\\x1b[2J p=****");
}

// ---- record and guard

TEST(RedactionRecordTest, AppendsALineForEachEvent) {
  const test::TempDir directory;
  const std::string file = directory.path_to("redactions.jsonl");
  for (const bool resumed : {false, true}) {
    auto record = RedactionRecord::open(file, "root (alice)");
    ASSERT_TRUE(record) << record.error().message();
    ASSERT_TRUE(record->add("/a/1.json", "1",
                            {{.rule = "lab-token", .where = "script", .count = 2}}, resumed));
  }
  std::istringstream lines(*read_file(file));
  std::vector<Json> parsed;
  for (std::string text; std::getline(lines, text);) parsed.push_back(Json::parse(text));
  ASSERT_THAT(parsed, SizeIs(2));
  EXPECT_EQ(parsed[0]["by"], "root (alice)");
  EXPECT_EQ(parsed[0]["path"], "/a/1.json");
  EXPECT_EQ(parsed[0]["redactions"],
            Json::parse(R"([{"rule":"lab-token","where":"script","count":2}])"));
  EXPECT_FALSE(parsed[0].contains("resumed"));
  EXPECT_EQ(parsed[1]["resumed"], true);
  EXPECT_EQ(stat_path(file)->mode & 0777U, 0600U);
}

TEST(RedactionRecordTest, DoesNotFollowALink) {
  const test::TempDir directory;
  std::filesystem::create_symlink(directory.path_to("target"), directory.path_to("link"));
  EXPECT_FALSE(RedactionRecord::open(directory.path_to("link"), "root"));
}

TEST(ArchiveGuardTest, KnowsADirectoryWithinAnother) {
  const test::TempDir directory;
  std::filesystem::create_directories(directory.path_to("a/b"));
  std::filesystem::create_directories(directory.path_to("ab"));
  std::filesystem::create_symlink(directory.path_to("a/b"), directory.path_to("link"));
  EXPECT_TRUE(directories_overlap(directory.path_to("a"), directory.path_to("a/b")));
  EXPECT_TRUE(directories_overlap(directory.path_to("a/b"), directory.path_to("a")));
  EXPECT_TRUE(directories_overlap(directory.path_to("link"), directory.path_to("a")));
  EXPECT_FALSE(directories_overlap(directory.path_to("a"), directory.path_to("ab")));
}

class ArchiveGuardJournalTest : public ::testing::Test {
 protected:
  // One event that the sink "archive" has and the sink "down" does not have.
  std::unique_ptr<Journal> journal_with_an_event(const std::string& directory) {
    auto opened = Journal::open({.directory = directory}, log_, system_clock());
    EXPECT_TRUE(opened) << opened.error().message();
    auto journal = *std::move(opened);
    const auto archive = *journal->register_sink("archive", {"job.script"});
    EXPECT_TRUE(journal->register_sink("down", {"job.script"}));
    const std::stop_source never;
    EXPECT_TRUE(
        journal->append({.source = "slurm",
                         .event = std::make_shared<const Event>(test::make_event_value("1")),
                         .durable = nullptr},
                        never.get_token()));
    EXPECT_TRUE(journal->flush(std::chrono::steady_clock::now() + std::chrono::seconds(30)));
    const auto items = *journal->read(archive, 0, 10, 1U << 20);
    journal->settle(archive,
                    {{.sequence = items.at(0).sequence,
                      .outcome = scriptorium::Outcome::kAcknowledged,
                      .attempts = 1}},
                    items.at(0).sequence);
    EXPECT_TRUE(journal->flush(std::chrono::steady_clock::now() + std::chrono::seconds(30)));
    return journal;
  }

  test::TempDir directory_;
  test::RecordingLogger log_;
};

TEST_F(ArchiveGuardJournalTest, CountsWhatIsStillToBeDelivered) {
  journal_with_an_event(directory_.path());
  const auto guard = ArchiveGuard::take(directory_.path(), log_);
  ASSERT_TRUE(guard) << guard.error().message();
  EXPECT_EQ(guard->waiting(), 1U);
}

TEST_F(ArchiveGuardJournalTest, RefusesWhileAnEventMustBeFetchedFromTheArchive) {
  for (const std::string& directory : {directory_.path(), directory_.path_to("import-down")}) {
    {
      const auto journal = journal_with_an_event(directory);
      std::uint64_t after = 0;
      auto events = journal->releasable("archive", after, 10);
      ASSERT_THAT(*events, SizeIs(1));
      ASSERT_TRUE(journal->release(*events));
    }
    const auto guard = ArchiveGuard::take(directory_.path(), log_);
    ASSERT_FALSE(guard);
    EXPECT_EQ(guard.error().kind(), ErrorKind::kTransient);
    EXPECT_THAT(guard.error().message(), HasSubstr("1 event for the sink down"));
    std::filesystem::remove(directory + "/journal.db");
  }
}

TEST_F(ArchiveGuardJournalTest, RefusesWhileADaemonRunsAndKeepsOneFromStarting) {
  {
    const auto daemon = lock_state_dir(directory_.path());
    ASSERT_TRUE(daemon);
    const auto guard = ArchiveGuard::take(directory_.path(), log_);
    ASSERT_FALSE(guard);
    EXPECT_EQ(guard.error().kind(), ErrorKind::kExhausted);
    EXPECT_THAT(guard.error().message(), HasSubstr("stop it"));
  }
  const auto guard = ArchiveGuard::take(directory_.path(), log_);
  ASSERT_TRUE(guard) << guard.error().message();
  EXPECT_FALSE(lock_state_dir(directory_.path()));
}

TEST_F(ArchiveGuardJournalTest, AStateDirectoryThatIsNotThereNeedsNoLock) {
  const std::string none = directory_.path_to("none");
  EXPECT_TRUE(ArchiveGuard::take(none, log_));
  EXPECT_FALSE(std::filesystem::exists(none));
}

}  // namespace
}  // namespace scriptorium::cli
