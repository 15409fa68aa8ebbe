#include "core/cli/console.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace scriptorium::cli {
namespace {

class ConsoleTest : public ::testing::Test {
 protected:
  std::istringstream in_;
  std::ostringstream out_;
  Console plain_{.in = in_, .out = out_, .err = out_};
  Console colourful_{.in = in_, .out = out_, .err = out_, .colour = true};
};

TEST_F(ConsoleTest, ColoursOnlyWhereAsked) {
  EXPECT_EQ(plain_.red("dead"), "dead");
  EXPECT_EQ(colourful_.red("dead"), "\033[31mdead\033[0m");
}

TEST_F(ConsoleTest, AlignsColumnsByWhatIsSeen) {
  TextTable table({"SINK", "DEAD", "LAST"}, {1});
  table.add({"\xc3\xa9", "12345", "x"});
  table.add({"archive", colourful_.red("7"), ""});
  table.note("a note");
  EXPECT_EQ(table.text(plain_),
            "SINK      DEAD  LAST\n"
            "\xc3\xa9        12345  x\n"
            "archive      \033[31m7\033[0m\n"
            "  a note\n");
}

TEST_F(ConsoleTest, KeepsLinesAndTakesTheTerminalAwayFromTheScript) {
  EXPECT_EQ(terminal_text("a\tb\n\033]0;title\a\xff\n"), "a\tb\n\\x1b]0;title\\x07\\xff\n");
  EXPECT_EQ(terminal_text("\r\n"), "\\x0d\n");
  EXPECT_EQ(terminal_text(""), "");
  const std::string high(5000, '\x01');
  EXPECT_EQ(terminal_text(high).size(), 4 * high.size()) << "nothing is cut";
}

}  // namespace
}  // namespace scriptorium::cli
