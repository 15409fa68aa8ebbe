#include "core/page/shown.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace scriptorium::page {
namespace {

std::string line_of(const std::string& inside, const std::string& id = "L1",
                    const std::string& type = "") {
  return "<span class=\"l" + type + "\" id=" + id + "><a href=\"#" + id +
         "\" tabindex=-1 aria-hidden=true></a>" + inside + "</span>\n";
}

TEST(Shown, WhatABrowserWouldDropRunOrReorderIsAMark) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"echo \"a\" && b's <x>", "echo &quot;a&quot; &amp;&amp; b&#39;s &lt;x&gt;"},
      {"</pre><script>alert(1)</script>", "&lt;/pre&gt;&lt;script&gt;alert(1)&lt;/script&gt;"},
      {std::string("a\0b", 3), "a<mark>U+0000</mark>b"},
      {std::string(4000, '\0'), "<mark>U+0000 × 4000</mark>"},
      {"\x1b[31m", "<mark>U+001B</mark>[31m"},
      {"a\rb", "a<mark>U+000D</mark>b"},
      {"a\tb", "a\tb"},
      {"\xff\xff\xfe", "<mark>\\xff × 2</mark><mark>\\xfe</mark>"},
      {"\xe2\x82", "<mark>\\xe2</mark><mark>\\x82</mark>"},
      {"\xc0\xaf", "<mark>\\xc0</mark><mark>\\xaf</mark>"},
      {"\xed\xa0\x80", "<mark>\\xed</mark><mark>\\xa0</mark><mark>\\x80</mark>"},
      {"a\u202e b", "a<mark>U+202E</mark> b"},
      {"\u2066x\u2069", "<mark>U+2066</mark>x<mark>U+2069</mark>"},
      {"\u200b\ufeff\u00ad", "<mark>U+200B</mark><mark>U+FEFF</mark><mark>U+00AD</mark>"},
      {"\U000e0041", "<mark>U+E0041</mark>"},
      {"\ufe0f\uffa0\ufff9", "<mark>U+FE0F</mark><mark>U+FFA0</mark><mark>U+FFF9</mark>"},
      {"\uffa1é", "\uffa1é"},
      {"\u0085", "<mark>U+0085</mark>"},
      {"\x7f", "<mark>U+007F</mark>"},
  };
  for (const auto& [bytes, html] : cases)
    EXPECT_EQ(shown_lines(bytes, "L").html.text, line_of(html)) << bytes;
}

TEST(Shown, LinesHaveNumbersAndAddresses) {
  EXPECT_EQ(shown_lines("a\n\nb", "L").html.text,
            line_of("a") + line_of("", "L2") + line_of("b", "L3"));
  EXPECT_EQ(shown_lines("a\n", "L").html.text, line_of("a"));
  EXPECT_EQ(shown_lines("", "L").html.text, "");
}

TEST(Shown, VariablesAreLinesAndANewlineInOneIsAMark) {
  EXPECT_EQ(shown_lines(std::string("A=1\n2\0B=\0", 9), "E", Kind::kVariables).html.text,
            line_of("A=1<mark>U+000A</mark>2", "E1") + line_of("B=", "E2"));
}

TEST(Shown, AScriptHasColours) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"#SBATCH --mem=1G # why", " directive", "#SBATCH --mem=1G # why"},
      {"#PBS -l mem=1gb", " directive", "#PBS -l mem=1gb"},
      {"#$ -N x", " directive", "#$ -N x"},
      {"#SBATCHED", " comment", "#SBATCHED"},
      {"  # <b>", " comment", "  # &lt;b&gt;"},
      {"module load a", " module", "module load a"},
      {"modules", "", "modules"},
      {"echo a # b", "", "echo a <span class=comment># b</span>"},
      {"echo a#b $#", "", "echo a#b $#"},
      {"echo \"a # b\" c", "", "echo <span class=string>&quot;a # b&quot;</span> c"},
      {"x='a' y=\"\\\"b\"", "",
       "x=<span class=string>&#39;a&#39;</span> y=<span class=string>&quot;\\&quot;b&quot;</span>"},
      {"echo don't", "", "echo don&#39;t"},
      {"'\xff\xff'", "", "<span class=string>&#39;<mark>\\xff × 2</mark>&#39;</span>"},
  };
  for (const auto& [bytes, type, html] : cases)
    EXPECT_EQ(shown_lines(bytes, "L", Kind::kScript).html.text, line_of(html, "L1", type)) << bytes;
}

TEST(Shown, AHitIsBoldWhereItIs) {
  EXPECT_EQ(shown_line("a<b>\u202ec", {{1, 4}, {4, 7}}).text,
            "a<b>&lt;b&gt;</b><b><mark>U+202E</mark></b>c");
  EXPECT_EQ(shown_line("abc", {{2, 9}, {3, 2}, {0, 1}}).text, "<b>a</b>bc");
}

TEST(Shown, DosLinesAreSaidOnce) {
  const Shown shown = shown_lines("a\r\nb\r\n", "L");
  EXPECT_TRUE(shown.dos_lines);
  EXPECT_EQ(shown.html.text.find("mark"), std::string::npos);
  EXPECT_FALSE(shown_lines("a\nb\r", "L").dos_lines);
}

TEST(Shown, LettersOutsideAsciiAreCounted) {
  EXPECT_EQ(shown_lines("p\u0430ste é", "L").foreign, 2U);
  EXPECT_EQ(shown_lines("paste", "L").foreign, 0U);
}

TEST(Shown, APageIsBoundedAndSaysWhatItLeavesOut) {
  constexpr std::size_t kLarge = std::size_t{4} << 20;
  const Shown one_line = shown_lines(std::string(kLarge, 'x'), "L");
  EXPECT_EQ(one_line.left_out, kLarge - kMostShownBytes);
  EXPECT_LT(one_line.html.text.size(), kMostShownBytes + 200);

  const Shown nothing = shown_lines(std::string(kLarge, '\0'), "L");
  EXPECT_EQ(nothing.html.text, line_of("<mark>U+0000 × 4194304</mark>"));
  EXPECT_EQ(nothing.left_out, 0U);

  const Shown lines = shown_lines(std::string(kLarge, '\n'), "L");
  EXPECT_EQ(lines.left_out, kLarge - kMostShownLines);

  std::string mixed;
  while (mixed.size() < kLarge) mixed += "\x01\x02";
  const Shown marks = shown_lines(mixed, "L");
  EXPECT_EQ(marks.left_out, mixed.size() - kMostMarks);
  EXPECT_LT(marks.html.text.size(), kMostMarks * 32);

  const Shown quotes = shown_lines(std::string(kLarge, '"'), "L");
  const Shown escapes = shown_lines("\"" + std::string(kLarge, '\\'), "L", Kind::kScript);
  EXPECT_LT(escapes.html.text.size(), kMostShownBytes + 200);
  EXPECT_LT(quotes.html.text.size(), 6 * kMostShownBytes + 200);
}

TEST(Shown, ACharacterAtTheLimitIsNotTorn) {
  const Shown shown = shown_lines(std::string(kMostShownBytes - 1, 'x') + "é" + "y", "L");
  EXPECT_EQ(shown.html.text.find("mark"), std::string::npos);
  EXPECT_EQ(shown.left_out, 1U);
}

}  // namespace
}  // namespace scriptorium::page
