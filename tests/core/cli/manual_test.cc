#include "core/cli/manual.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <regex>
#include <string>
#include <vector>

#include "core/cli/command_line.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::cli {
namespace {

using ::testing::HasSubstr;

// What a shell command writes to both of its outputs.
std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = ::popen(("{ " + command + "; } 2>&1").c_str(), "r");
  if (pipe == nullptr) return "popen failed";
  std::array<char, 4096> buffer{};
  for (std::size_t n = 0; (n = ::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    text.append(buffer.data(), n);
  ::pclose(pipe);
  return text;
}
bool has_program(const std::string& name) {
  return output_of("command -v " + name).find('/') != std::string::npos;
}

std::string in_troff(std::string text) { return std::regex_replace(text, std::regex("-"), "\\-"); }

void each_path(const CommandModel& command, const std::vector<std::string>& path,
               std::vector<std::vector<std::string>>& all) {
  all.push_back(path);
  for (const CommandModel& sub : command.commands) {
    auto below = path;
    below.push_back(sub.name);
    each_path(sub, below, all);
  }
}

TEST(ManualTest, ManPageHasEveryCommandAndOptionThatHelpShows) {
  const std::string page = man_page(command_model(), "1.2.3");
  std::vector<std::vector<std::string>> paths;
  each_path(command_model(), {}, paths);
  EXPECT_GE(paths.size(), 14U);
  std::size_t options = 0;
  for (auto path : paths) {
    std::string name;
    for (const std::string& word : path) name += (name.empty() ? "" : " ") + word;
    if (!name.empty() && name != "deadletters" && name != "sinks" && name != "owners" &&
        name != "catalog" && name != "checkpoint") {
      EXPECT_THAT(page, HasSubstr(".SS " + in_troff(name) + "\n"));
    }
    path.emplace_back("--help");
    const std::string help = parse_command_line(path).out;
    const std::regex option("(^|[ ,])(--?[a-z][a-z-]*)");
    // The foot of the top's help holds examples, which are no definitions.
    const std::string definitions = help.substr(0, help.find("\nFILES\n"));
    for (std::sregex_iterator it(definitions.begin(), definitions.end(), option), end; it != end;
         ++it) {
      EXPECT_THAT(page, HasSubstr("\\fB" + in_troff((*it)[2]) + "\\fR")) << "of " << name;
      ++options;
    }
  }
  EXPECT_GT(options, 40U);
}

TEST(ManualTest, ManPageAndHelpHaveTheSameFacts) {
  const std::string page = man_page(command_model(), "1.2.3");
  const std::string help = parse_command_line({"--help"}).out;
  for (const char* text : {"FILES", "EXIT STATUS", "SIGNALS", "EXAMPLES",
                           "Another daemon owns state_dir.", "The command line is wrong."}) {
    EXPECT_THAT(page, HasSubstr(text));
    EXPECT_THAT(help, HasSubstr(text));
  }
}

TEST(ManualTest, ManPageIsTroffWithoutWarnings) {
  if (!has_program("groff")) GTEST_SKIP() << "groff is not installed";
  const scriptorium::test::TempDir own;
  const std::string file = own.write("scriptorium.8", man_page(command_model(), "1.2.3"));
  EXPECT_EQ(output_of("groff -ww -man -Tutf8 " + file + " >/dev/null"), "");
  const std::string text =
      output_of("groff -man -Tutf8 " + file + " | sed 's/\\x1b\\[[0-9;]*m//g; s/.\\x08//g'");
  EXPECT_THAT(text, HasSubstr("deadletters discard [ID]"));
  if (has_program("man")) {
    EXPECT_EQ(output_of("man --warnings -l " + file + " >/dev/null"), "");
  }
}

class BashCompletionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_program("bash")) GTEST_SKIP() << "bash is not installed";
  }
  // What bash offers for these words, of which the last one is being typed.
  std::string offered(const std::vector<std::string>& words) const {
    const std::string file = own_.write("completion", completion(command_model(), "bash"));
    std::string list;
    for (const std::string& word : words) list += " '" + word + "'";
    return output_of("cd " + own_.path() +
                     " && bash -uec 'source ./completion; COMP_WORDS=(scriptorium \"$@\"); "
                     "COMP_CWORD=$#; _scriptorium; echo "
                     "\"${COMPREPLY[@]:-}\"' bash" +
                     list);
  }
  scriptorium::test::TempDir own_;
};

TEST_F(BashCompletionTest, OffersCommandsOptionsAndWords) {
  EXPECT_EQ(offered({"ch"}), "check checkpoint\n");
  EXPECT_EQ(offered({"checkpoint", "pr"}), "prune\n");
  EXPECT_EQ(offered({"sinks", "fo"}), "forget\n");
  EXPECT_EQ(offered({"deadletters", "re"}), "retry\n");
  EXPECT_EQ(offered({"deadletters", "discard", "--y"}), "--yes\n");
  EXPECT_EQ(offered({"--config", "x", "status", "--j"}), "--json\n");
  EXPECT_EQ(offered({"completion", "z"}), "zsh\n");
  EXPECT_EQ(offered({"ma"}), "\n") << "hidden commands are not offered";
}

TEST_F(BashCompletionTest, OffersFilesForTheConfig) {
  own_.write("site.toml", "");
  EXPECT_EQ(offered({"check", "--config", "si"}), "site.toml\n");
  EXPECT_EQ(offered({"deadletters", "list", "--sink", "si"}), "\n");
}

TEST(ManualTest, CompletionsOfEachShellNameEveryVisibleCommand) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = completion(command_model(), shell);
    for (const CommandModel& command : command_model().commands) {
      if (!command.hidden) {
        EXPECT_THAT(script, HasSubstr(command.name)) << shell;
      }
    }
    if (has_program(shell)) {
      const scriptorium::test::TempDir own;
      EXPECT_EQ(output_of(std::string{shell} + " -n " + own.write("script", script)), "");
    }
  }
}

// A command that is added must say what it ends with.
void expect_exit_codes(const CommandModel& command, const std::string& path) {
  if (!path.empty()) {
    EXPECT_THAT(exit_codes_footer(path), HasSubstr("  0   ")) << path;
  }
  for (const CommandModel& sub : command.commands)
    expect_exit_codes(sub, path.empty() ? sub.name : path + " " + sub.name);
}
TEST(ManualTest, EachCommandSaysItsExitCodes) { expect_exit_codes(command_model(), ""); }

}  // namespace
}  // namespace scriptorium::cli
