#include "core/query/line_diff.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace scriptorium::query {
namespace {

std::string shown(std::string_view before, std::string_view after) {
  std::string text;
  for (const LineEdit& edit : line_diff(before, after))
    text += static_cast<char>(edit.kind) + std::string(edit.text) + "\n";
  return text;
}

std::string side(const std::vector<LineEdit>& edits, EditKind other) {
  std::string text;
  for (const LineEdit& edit : edits) {
    if (edit.kind != other) text += std::string(edit.text) + "\n";
  }
  return text;
}

// The length of the shortest list of edits, by the table of common subsequences.
std::size_t least_edits(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> common(a.size() + 1,
                                               std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j)
      common[i][j] = a[i - 1] == b[j - 1] ? common[i - 1][j - 1] + 1
                                          : std::max(common[i - 1][j], common[i][j - 1]);
  }
  return a.size() + b.size() - 2 * common[a.size()][b.size()];
}

TEST(LineDiffTest, ShowsAnEditedLineAsRemovedAndAdded) {
  EXPECT_EQ(shown("a\nb\nc\n", "a\nB\nc\n"), " a\n-b\n+B\n c\n");
  EXPECT_EQ(shown("", "a\n"), "+a\n");
  EXPECT_EQ(shown("a\n", ""), "-a\n");
  EXPECT_EQ(shown("a\nb\n", "a\nb\n"), " a\n b\n");
  EXPECT_EQ(shown("", ""), "");
}

TEST(LineDiffTest, AMissingLastNewlineCountsOnlyIfItIsTheOnlyDifference) {
  EXPECT_EQ(shown("a\nb\n", "a\nb"), " a\n-b\n+b\n");
  EXPECT_EQ(shown("a\nb\n", "A\nb"), "-a\n+A\n b\n");
}

TEST(LineDiffTest, RebuildsBothTextsByTheFewestEdits) {
  std::mt19937 random(18);
  for (int round = 0; round < 500; ++round) {
    std::string texts[2];
    for (std::string& text : texts) {
      const std::size_t size = random() % 14;
      for (std::size_t i = 0; i < size; ++i) text += static_cast<char>('a' + random() % 3);
    }
    std::string lines[2];
    for (int i = 0; i < 2; ++i) {
      for (const char c : texts[i]) lines[i] += std::string(1, c) + "\n";
    }
    const auto edits = line_diff(lines[0], lines[1]);
    EXPECT_EQ(side(edits, EditKind::kAdded), lines[0]);
    EXPECT_EQ(side(edits, EditKind::kRemoved), lines[1]);
    const DiffCount count = count_edits(edits);
    EXPECT_EQ(count.removed + count.added, least_edits(texts[0], texts[1]))
        << texts[0] << " " << texts[1];
  }
}

TEST(LineDiffTest, BeyondItsBoundItReplacesTheDifferentMiddleAsAWhole) {
  std::string before = "same\n";
  std::string after = "same\n";
  for (int i = 0; i < 3000; ++i) {
    before += "old " + std::to_string(i) + "\n";
    after += "new " + std::to_string(i) + "\n";
  }
  const DiffCount count = count_edits(line_diff(before + "end\n", after + "end\n"));
  EXPECT_EQ(count.removed, 3000U);
  EXPECT_EQ(count.added, 3000U);
}

TEST(LineDiffTest, HunksHaveTheirContextAndJoinWhereItMeets) {
  std::string before;
  for (int i = 1; i <= 30; ++i) before += std::to_string(i) + "\n";
  std::string after = before;
  after.replace(after.find("\n5\n"), 3, "\nfive\n");
  after.replace(after.find("\n9\n"), 3, "\nnine\n");
  after.replace(after.find("\n25\n"), 4, "\n");
  const auto edits = line_diff(before, after);
  const auto hunks = hunks_of(edits, 3);
  ASSERT_EQ(hunks.size(), 2U);
  EXPECT_EQ(hunk_head(hunks[0]), "@@ -2,11 +2,11 @@");
  EXPECT_EQ(hunk_head(hunks[1]), "@@ -22,7 +22,6 @@");
  EXPECT_EQ(hunk_head(hunks_of(line_diff("", "a\n"), 3)[0]), "@@ -0,0 +1 @@");
  EXPECT_TRUE(hunks_of(line_diff(before, before), 3).empty());
}

}  // namespace
}  // namespace scriptorium::query
