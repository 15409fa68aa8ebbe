#include "backends/file/environment.h"

#include <gtest/gtest.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/api/event.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::file {
namespace {

using namespace std::string_literals;

std::string nul_ended(const std::vector<std::string>& strings) {
  std::string result;
  for (const std::string& s : strings) result += s + '\0';
  return result;
}

TEST(EnvironmentFormatTest, NulKeepsEveryByte) {
  const std::string bytes = "A=1\0B\nB=\xff\0=odd\0no equals\0unterminated"s;
  EXPECT_EQ(render_environment(bytes, EnvironmentFormat::kNulEnded, EnvironmentStyle::kNul), bytes);
  EXPECT_EQ(render_environment(bytes, EnvironmentFormat::kRaw, EnvironmentStyle::kNul), bytes);
}

TEST(EnvironmentFormatTest, LinesEscapeNewlineAndBackslashOnly) {
  EXPECT_EQ(render_environment(nul_ended({"A=1", "F=() {\n echo '\\n'\n}", "E="}),
                               EnvironmentFormat::kNulEnded, EnvironmentStyle::kLines),
            "A=1\nF=() {\\n echo '\\\\n'\\n}\nE=\n");
  EXPECT_EQ(render_environment("a\0b\n"s, EnvironmentFormat::kRaw, EnvironmentStyle::kLines),
            "a\\0b\\n\n");
}

TEST(EnvironmentFormatTest, RawBytesNeverBecomeShellCommands) {
  const std::string text =
      render_environment("\ntouch /tmp/x\n"s, EnvironmentFormat::kRaw, EnvironmentStyle::kShell);
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
    EXPECT_EQ(text[at], '#') << text;
}

TEST(EnvironmentFormatTest, ANameThatNoShellCanSetStaysWithinItsComment) {
  const std::string text = render_environment(
      nul_ended({"BASH_FUNC_x%%=() {\n rm -rf /\n}", "a b\nc=1", "=x", "plain", "UID=0"}),
      EnvironmentFormat::kNulEnded, EnvironmentStyle::kShell);
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
    EXPECT_EQ(text[at], '#') << text;
}

TEST(EnvironmentFormatTest, BashReadsTheShellFormatBackByteForByte) {
  if (::access("/bin/bash", X_OK) != 0) GTEST_SKIP() << "no /bin/bash on this machine";
  std::string every_byte;
  for (int c = 1; c < 256; ++c) every_byte += static_cast<char>(c);
  const std::vector<std::string> variables = {"EVERY=" + every_byte,
                                              "NEWLINES=a\n\nb\n",
                                              "QUOTES='\"'\\''",
                                              "EMPTY=",
                                              "DOLLAR=$(id) `id` ${HOME} !x",
                                              "TRAIL=back\\",
                                              "EQ=a=b=c",
                                              "LONG=" + std::string(100'000, 'x'),
                                              "_under9=1",
                                              "UTF=\xc3\xbc \xff"};
  const test::TempDir directory;
  const std::string file = directory.write(
      "job.env", render_environment(nul_ended(variables), EnvironmentFormat::kNulEnded,
                                    EnvironmentStyle::kShell));
  const std::string command =
      "env -i /bin/bash --norc --noprofile -c '. \"$1\"; exec env -0' bash '" + file + "' 2>&1";
  struct Close {
    void operator()(FILE* f) const { ::pclose(f); }
  };
  const std::unique_ptr<FILE, Close> pipe(::popen(command.c_str(), "r"));
  ASSERT_NE(pipe, nullptr);
  std::string output;
  char buffer[4096];
  for (std::size_t n = 0; (n = ::fread(buffer, 1, sizeof buffer, pipe.get())) > 0;)
    output.append(buffer, n);
  std::vector<std::string> got;
  for (const Variable& v : split_environment(output))
    got.push_back(std::string(v.name) + '=' + std::string(v.value));
  // The path of env itself needs a PATH, which bash sets for itself; beside these only its own few
  // are there.
  for (const std::string& wanted : variables) {
    EXPECT_NE(std::ranges::find(got, wanted), got.end()) << wanted.substr(0, 40);
  }
}

}  // namespace
}  // namespace scriptorium::file
