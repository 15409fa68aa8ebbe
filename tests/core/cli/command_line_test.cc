#include "core/cli/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace scriptorium::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Arguments good(const std::vector<std::string>& words) {
  const ParsedLine line = parse_command_line(words);
  EXPECT_TRUE(line.arguments) << line.err;
  return line.arguments.value_or(Arguments{});
}

TEST(CommandLineTest, TakesTheConfigBeforeOrBehindTheCommand) {
  EXPECT_EQ(good({"check"}).config_file, "/etc/scriptorium/scriptorium.toml");
  EXPECT_FALSE(good({"check"}).config_given);
  for (const auto& words : std::vector<std::vector<std::string>>{{"--config", "f", "check"},
                                                                 {"check", "--config", "f"},
                                                                 {"check", "-c", "f"},
                                                                 {"check", "--config=f"}}) {
    EXPECT_EQ(good(words).config_file, "f");
    EXPECT_TRUE(good(words).config_given);
    EXPECT_EQ(good(words).command, Command::kCheck);
  }
  EXPECT_EQ(good({"deadletters", "list", "--config", "f"}).config_file, "f");
}

TEST(CommandLineTest, KnowsEachCommand) {
  EXPECT_TRUE(good({"run", "--once"}).once);
  EXPECT_EQ(good({"plugins"}).name, "");
  EXPECT_EQ(good({"plugins", "file"}).name, "file");
  EXPECT_TRUE(good({"status", "--json"}).json);
  EXPECT_EQ(good({"show", "4711", "--raw"}).jobs, std::vector<std::string>{"4711"});
  EXPECT_EQ(good({"setup", "archive", "--print"}).command, Command::kSetup);
  EXPECT_EQ(good({"version"}).command, Command::kVersion);
  EXPECT_EQ(good({"deadletters", "list", "--sink", "archive"}).sink, "archive");
  EXPECT_EQ(good({"deadletters", "show", "0123abcd"}).id, "0123abcd");
  const Arguments discard = good({"deadletters", "discard", "--all", "--yes"});
  EXPECT_EQ(discard.command, Command::kDeadLettersDiscard);
  EXPECT_TRUE(discard.all && discard.yes);
  EXPECT_EQ(good({"completion", "zsh"}).shell, "zsh");
  EXPECT_EQ(good({"catalog", "rebuild", "--sink", "c"}).command, Command::kCatalogRebuild);
  EXPECT_EQ(good({"redact", "--archive", "--apply"}).archive, "");
  EXPECT_EQ(good({"redact", "--archive", "/x", "--apply"}).archive, "/x");
}

TEST(CommandLineTest, SaysItsVersionInEachUsualWay) {
  for (const char* word : {"--version", "-V"}) {
    const ParsedLine line = parse_command_line({word});
    EXPECT_EQ(line.exit_code, 0);
    EXPECT_THAT(line.out, ::testing::MatchesRegex("scriptorium [0-9][^ ]*\n"));
  }
}

TEST(CommandLineTest, HelpOfACommandIsThatOfItsOwnOption) {
  EXPECT_EQ(parse_command_line({"help"}).out, parse_command_line({"--help"}).out);
  EXPECT_EQ(parse_command_line({"help", "show"}).out, parse_command_line({"show", "--help"}).out);
  EXPECT_EQ(parse_command_line({"help", "deadletters", "list"}).out,
            parse_command_line({"deadletters", "list", "--help"}).out);
  EXPECT_EQ(parse_command_line({"help", "shwo"}).exit_code, 64);
  EXPECT_THAT(parse_command_line({"help", "shwo"}).err, HasSubstr("did you mean \"show\"?"));
}

TEST(CommandLineTest, TheHelpOfACommandHoldsItsOwnOptionsAndExitCodesAlone) {
  const std::string show = parse_command_line({"show", "--help"}).out;
  EXPECT_THAT(show, HasSubstr("--raw"));
  EXPECT_THAT(show, HasSubstr("  66  There is no such job."));
  for (const char* other :
       {"--once", "SIGHUP", "EXAMPLES", "  75", "  1 ", "import", "dead letter"})
    EXPECT_THAT(show, Not(HasSubstr(other))) << other;
  EXPECT_THAT(parse_command_line({"status", "--help"}).out,
              HasSubstr("  2   With --check: critical."));
  EXPECT_THAT(parse_command_line({"deadletters", "retry", "--help"}).out,
              HasSubstr("There is no such dead letter."));
}

TEST(CommandLineTest, ImportTakesAFormatATreeAndWhatItIsToBelieve) {
  const Arguments import = good({"import", "job_archive", "/srv/old", "--dry-run", "--before",
                                 "2026-11-21", "--owners", "o.txt"});
  EXPECT_EQ(import.command, Command::kImport);
  EXPECT_EQ(import.format, "job_archive");
  EXPECT_EQ(import.tree, "/srv/old");
  EXPECT_EQ(import.before, "2026-11-21");
  EXPECT_EQ(import.owners, "o.txt");
  EXPECT_TRUE(import.dry_run);
  EXPECT_FALSE(import.again);
  EXPECT_TRUE(good({"deadletters", "list", "--import"}).of_import);
  for (const std::vector<std::string>& words : {std::vector<std::string>{"import"},
                                                {"import", "sarchive"},
                                                {"import", "tarball", "/srv/old"}}) {
    EXPECT_EQ(parse_command_line(words).exit_code, 64);
  }
}

TEST(CommandLineTest, ExitsWith64AndSaysWhatIsWrong) {
  const struct {
    std::vector<std::string> words;
    const char* why;
  } kCases[] = {
      {{}, "subcommand is required"},
      {{"redact", "--archive", "", "--apply"}, "the value after \"--archive\" is empty"},
      {{"redact", "--archive=", "--apply"}, "the value after \"--archive\" is empty"},
      {{"show", ""}, "the value after \"show\" is empty (a shell variable that is not set?)"},
      {{""}, "the value after \"scriptorium\" is empty"},
      {{"chekc"}, "unknown command \"chekc\"; did you mean \"check\"?"},
      {{"-c", "f", "deadletters", "retyr"}, "unknown command \"retyr\"; did you mean \"retry\"?"},
      {{"check", "--colour"}, "--colour"},
      {{"run", "--onec"}, "--onec"},
      {{"show"}, "JOB is required"},
      {{"show", "1", "--raw", "--json"}, "excludes"},
      {{"deadletters"}, "subcommand is required"},
      {{"deadletters", "retry"}, "ID or --all is required"},
      {{"deadletters", "retry", "0123abcd", "--all"}, "excludes"},
      {{"deadletters", "discard"}, "ID or --all is required"},
      {{"completion", "tcsh"}, "tcsh not in {bash,zsh,fish}"},
      {{"check", "--config"}, "--config"},
  };
  for (const auto& one : kCases) {
    const ParsedLine line = parse_command_line(one.words);
    EXPECT_FALSE(line.arguments);
    EXPECT_EQ(line.exit_code, 64);
    EXPECT_THAT(line.err, HasSubstr(one.why));
    EXPECT_EQ(line.out, "");
  }
}

TEST(CommandLineTest, PrintsHelpWithExitCode0AndHidesTheGenerators) {
  const ParsedLine line = parse_command_line({"--help"});
  EXPECT_EQ(line.exit_code, 0);
  EXPECT_THAT(line.out, HasSubstr("deadletters"));
  EXPECT_THAT(line.out, HasSubstr("EXIT STATUS"));
  EXPECT_THAT(line.out, Not(HasSubstr("completion")));
  EXPECT_THAT(parse_command_line({"show", "--help"}).out, HasSubstr("--environment"));
}

}  // namespace
}  // namespace scriptorium::cli
