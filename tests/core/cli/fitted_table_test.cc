#include "core/cli/fitted_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace scriptorium::cli {
namespace {

using ::testing::ElementsAre;

class FittedTableTest : public ::testing::Test {
 protected:
  Console console(std::size_t width, bool colour = false) {
    return {.in = in_, .out = out_, .err = out_, .colour = colour, .width = width};
  }
  std::istringstream in_;
  std::ostringstream out_;
};

const std::vector<FittedColumn> kColumns{{.title = "JOB"},
                                         {.title = "NAME", .least = 4},
                                         {.title = "STATE", .least = 5, .rank = 1},
                                         {.title = "TIME", .right = true, .rank = 2}};

TEST_F(FittedTableTest, LongColumnsBecomeNarrowerBeforeAnyIsLeftOut) {
  EXPECT_THAT(fit_columns(kColumns, {4, 20, 9, 6}, 0), ElementsAre(4, 20, 9, 6));
  EXPECT_THAT(fit_columns(kColumns, {4, 20, 9, 6}, 45), ElementsAre(4, 20, 9, 6));
  EXPECT_THAT(fit_columns(kColumns, {4, 20, 9, 6}, 35), ElementsAre(4, 10, 9, 6));
  EXPECT_THAT(fit_columns(kColumns, {4, 20, 9, 6}, 25), ElementsAre(4, 4, 5, 6));
}

TEST_F(FittedTableTest, TheHighestRankIsLeftOutFirstAndThoseWithoutRankNever) {
  EXPECT_THAT(fit_columns(kColumns, {4, 20, 9, 6}, 22), ElementsAre(4, 7, 7, 0));
  EXPECT_THAT(fit_columns(kColumns, {4, 20, 9, 6}, 12), ElementsAre(4, 6, 0, 0));
  EXPECT_THAT(fit_columns(kColumns, {4, 20, 9, 6}, 3), ElementsAre(4, 4, 0, 0));
}

TEST_F(FittedTableTest, WhatIsCutEndsWithAPlusAndNoCharacterIsHalved) {
  EXPECT_EQ(cut_text("GROMACS", 7), "GROMACS");
  EXPECT_EQ(cut_text("GROMACS", 4), "GRO+");
  EXPECT_EQ(cut_text("\xc3\xa4\xc3\xb6\xc3\xbc", 2), "\xc3\xa4+");
  EXPECT_EQ(cut_text("x", 0), "");
}

TEST_F(FittedTableTest, AColumnWithoutATextIsNotShown) {
  FittedTable table(kColumns);
  EXPECT_EQ(table.portion({{{{"1"}, {"md"}, {""}, {"2 s"}}, {}}}, console(0)),
            "JOB  NAME  TIME\n1    md     2 s\n");
}

TEST_F(FittedTableTest, LaterPortionsKeepTheWidthsAndHaveNoTitles) {
  FittedTable table(kColumns);
  table.portion({{{{"1"}, {"md"}, {"OK"}, {"2 s"}}, {}}}, console(80));
  EXPECT_EQ(table.portion({{{{"2"}, {"longer"}, {"OK"}, {"10 s"}}, {"    1: x"}}}, console(80)),
            "2    lon+  OK     10 s\n    1: x\n");
}

TEST_F(FittedTableTest, ColourHasNoWidth) {
  FittedTable table({{.title = "A"}, {.title = "B"}});
  EXPECT_EQ(table.portion({{{{"x", Paint::kBad}, {"y"}}, {}}}, console(80, true)),
            "\033[1mA\033[0m  \033[1mB\033[0m\n\033[31mx\033[0m  y\n");
}

}  // namespace
}  // namespace scriptorium::cli
