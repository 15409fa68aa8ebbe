#include "core/api/kit/search/text_matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/base/ascii.h"

namespace scriptorium {
namespace {

using Found = std::optional<std::pair<std::size_t, std::size_t>>;

TextMatcher text_matcher(std::string text, bool prefix = false) {
  Query node;
  node.kind = Query::Kind::kText;
  node.text = std::move(text);
  node.prefix = prefix;
  return std::move(*TextMatcher::create(node));
}

Query expression_node(std::string text, bool ignore_case = false, JobPart part = JobPart::kScript) {
  Query node;
  node.kind = Query::Kind::kExpression;
  node.text = std::move(text);
  node.ignore_case = ignore_case;
  node.part = part;
  return node;
}

TextMatcher expression_matcher(std::string text, bool ignore_case = false,
                               JobPart part = JobPart::kScript) {
  return std::move(*TextMatcher::create(expression_node(std::move(text), ignore_case, part)));
}

bool is_blank_byte(char c) { return c == ' ' || c == '\t'; }

// What core/api/query.h says, tried at each byte.
Found naive_find(const std::string& text, bool prefix, const std::string& bytes, std::size_t from) {
  for (std::size_t begin = from; begin <= bytes.size(); ++begin) {
    // A run of blanks is met as a whole.
    if (is_blank_byte(text.front()) && begin > from && is_blank_byte(bytes[begin - 1])) continue;
    if (is_word_byte(text.front()) && begin > 0 && is_word_byte(bytes[begin - 1])) continue;
    std::size_t at = begin;
    bool good = true;
    for (std::size_t i = 0; good && i < text.size();) {
      if (is_blank_byte(text[i])) {
        while (i < text.size() && is_blank_byte(text[i])) ++i;
        good = at < bytes.size() && is_blank_byte(bytes[at]);
        while (at < bytes.size() && is_blank_byte(bytes[at])) ++at;
      } else {
        good = at < bytes.size() && to_lower(bytes[at]) == to_lower(text[i]);
        ++at;
        ++i;
      }
    }
    if (!good) continue;
    if (is_word_byte(text.back()) && !prefix && at < bytes.size() && is_word_byte(bytes[at]))
      continue;
    return std::pair{begin, at};
  }
  return std::nullopt;
}

TEST(TextMatcherTest, FindsWordsInAnyCaseButNotWithinWords) {
  EXPECT_TRUE(text_matcher("gromacs").matches("module load GROMACS/2023.1"));
  EXPECT_TRUE(text_matcher("run").matches("run_01"));
  EXPECT_TRUE(text_matcher("GROMACS/2023.1").matches("load gromacs/2023.1\n"));
  EXPECT_FALSE(text_matcher("gromacs").matches("gromacs2"));
  EXPECT_FALSE(text_matcher("macs").matches("gromacs"));
  EXPECT_FALSE(text_matcher("caf").matches("caf\xC3\xA9"));
  EXPECT_TRUE(text_matcher("grom", true).matches("gromacs"));
  EXPECT_FALSE(text_matcher("omacs", true).matches("gromacs"));
  EXPECT_TRUE(text_matcher("--mem=16G").matches("sbatch --mem=16g"));
  EXPECT_FALSE(text_matcher("--mem=16").matches("sbatch --mem=16g"));
  EXPECT_TRUE(text_matcher("#SBATCH").matches("##SBATCH x"));
}

TEST(TextMatcherTest, TakesARunOfBlanksForAnyOther) {
  EXPECT_TRUE(text_matcher("mpirun -np 16").matches("mpirun \t -np  16\r\n"));
  EXPECT_FALSE(text_matcher("mpirun -np 16").matches("mpirun\n-np 16"));
  EXPECT_FALSE(text_matcher("mpirun -np 16").matches("mpirun-np 16"));
  EXPECT_FALSE(text_matcher("a b").matches("a b2"));
  EXPECT_EQ(text_matcher(" b ").find("a  b  c"), (std::pair<std::size_t, std::size_t>{1, 6}));
}

TEST(TextMatcherTest, FindsOneAfterTheOther) {
  const TextMatcher matcher = text_matcher("ab");
  const std::string bytes = "ab xab ab";
  EXPECT_EQ(matcher.find(bytes, 0), (std::pair<std::size_t, std::size_t>{0, 2}));
  EXPECT_EQ(matcher.find(bytes, 1), (std::pair<std::size_t, std::size_t>{7, 9}));
  EXPECT_EQ(matcher.find(bytes, 8), std::nullopt);
  EXPECT_EQ(matcher.find(bytes, 100), std::nullopt);
}

TEST(TextMatcherTest, AgreesWithATrialAtEachByte) {
  std::mt19937 random(2026);
  // Few different bytes, so that texts nearly occur everywhere.
  const std::vector<std::string> alphabets{std::string("ab \t"), std::string("aA-_ \t\n"),
                                           std::string("ab\0\xE9\xC3 \r\n", 8),
                                           std::string("abcdefghijklmnop  /=")};
  const auto make = [&](const std::string& alphabet, std::size_t most) {
    std::string made;
    for (auto left = 1 + random() % most; left > 0; --left)
      made += alphabet[random() % alphabet.size()];
    return made;
  };
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int kTexts = 20'000;
#else
  constexpr int kTexts = 200'000;
#endif
  std::size_t found_any = 0;
  for (int i = 0; i < kTexts; ++i) {
    const std::string& alphabet = alphabets[random() % alphabets.size()];
    const std::string text = make(alphabet, 1 + random() % 6);
    std::string bytes = make(alphabet, random() % 3 == 0 ? 300 : 40);
    if (random() % 2 == 0) bytes.insert(random() % bytes.size(), text);
    const bool prefix = random() % 3 == 0;
    const std::size_t from = random() % 2 == 0 ? 0 : random() % (bytes.size() + 1);
    const TextMatcher matcher = text_matcher(text, prefix);
    const Found expected = naive_find(text, prefix, bytes, from);
    ASSERT_EQ(matcher.find(bytes, from), expected)
        << "'" << text << "' prefix " << prefix << " in '" << bytes << "' from " << from;
    if (!expected) continue;
    ++found_any;
    // Also any bytes around it may match as a whole.
    ASSERT_TRUE(matcher.may_match(make(alphabet, 30) + bytes + make(alphabet, 30)));
  }
  EXPECT_GT(found_any, static_cast<std::size_t>(kTexts) / 10);
}

TEST(TextMatcherTest, AgreesForLongTextsThatNearlyOccurEverywhere) {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    std::string text;
    const auto pieces = 1 + random() % 300;
    for (std::size_t piece = 0; piece < pieces; ++piece) text += random() % 40 == 0 ? "b " : "a ";
    text += random() % 2 == 0 ? "a" : "//////////";
    std::string bytes;
    for (std::size_t piece = 0; piece < 2 * pieces; ++piece) bytes += "a  ";
    bytes += text + std::string(random() % 50, '/') + " " + text;
    const std::size_t from = random() % bytes.size();
    ASSERT_EQ(text_matcher(text).find(bytes, from), naive_find(text, false, bytes, from));
  }
}

// Cost is linear: these would take minutes otherwise, and so the test would be stopped.
TEST(TextMatcherTest, StaysLinearForHostileTexts) {
  const std::string slashes(4000, '/');
  std::string bytes;
  while (bytes.size() < (8U << 20)) bytes += slashes.substr(1) + 'x';
  EXPECT_FALSE(text_matcher(slashes).matches(bytes));
  EXPECT_FALSE(text_matcher(slashes).may_match(bytes));
  std::string pieces;
  for (int i = 0; i < 2000; ++i) pieces += "a ";
  const std::string text = pieces + "a b";
  bytes.clear();
  while (bytes.size() < (8U << 20)) bytes += pieces.substr(2) + "b ";
  EXPECT_FALSE(text_matcher("a " + text).matches(bytes));
}

TEST(TextMatcherTest, SeesExpressionsLineByLineAndAsLatin1) {
  EXPECT_TRUE(
      expression_matcher("^#SBATCH.*gres=gpu:[2-8]$").matches("x\n#SBATCH --gres=gpu:4\ny"));
  EXPECT_FALSE(expression_matcher("^SBATCH").matches("#SBATCH"));
  EXPECT_FALSE(expression_matcher("a.b").matches("a\nb"));
  EXPECT_TRUE(expression_matcher("(?i)mpirun\\s+-np\\s+\\d{2,}").matches("MPIRUN -np 16"));
  EXPECT_TRUE(expression_matcher("MPIrun", true).matches("mpirun"));
  EXPECT_FALSE(expression_matcher("MPIrun").matches("mpirun"));
  EXPECT_TRUE(
      expression_matcher("a.b").matches("a\xE9"
                                        "b"));
  EXPECT_TRUE(expression_matcher("a\\x00b").matches(std::string("a\0b", 3)));
  EXPECT_EQ(expression_matcher("a+").find("xaay", 0), (std::pair<std::size_t, std::size_t>{1, 3}));
  EXPECT_EQ(expression_matcher("^b").find("b\nb", 1), (std::pair<std::size_t, std::size_t>{2, 3}));
  EXPECT_TRUE(expression_matcher("^$").matches(""));
  EXPECT_TRUE(expression_matcher("x*").matches("abc"));
}

TEST(TextMatcherTest, SeesEachVariableOfAnEnvironmentAsATextOfItsOwn) {
  const std::string environment("HOME=/home/a\0PATH=/usr/bin:/bin\0X=1\0", 36);
  const auto matcher = [](std::string text) {
    return expression_matcher(std::move(text), false, JobPart::kEnvironment);
  };
  EXPECT_TRUE(matcher("^PATH=").matches(environment));
  EXPECT_TRUE(matcher("/bin$").matches(environment));
  EXPECT_FALSE(matcher("HOME.*bin").matches(environment));
  EXPECT_FALSE(matcher("^/usr").matches(environment));
  EXPECT_EQ(matcher("bin").find(environment, 0), (std::pair<std::size_t, std::size_t>{23, 26}));
  EXPECT_EQ(matcher("bin").find(environment, 24), (std::pair<std::size_t, std::size_t>{28, 31}));
  EXPECT_EQ(matcher("^X=1$").find(environment, 0), (std::pair<std::size_t, std::size_t>{32, 35}));
  EXPECT_FALSE(matcher("a").matches(""));
}

TEST(TextMatcherTest, RefusesExpressionsThatCostTooMuch) {
  const auto refused = [](const std::string& text) {
    const auto matcher = TextMatcher::create(expression_node(text));
    if (matcher) return std::string();
    EXPECT_EQ(matcher.error().kind(), ErrorKind::kInvalidConfig);
    return matcher.error().message();
  };
  EXPECT_EQ(refused("a{100}"), "");
  EXPECT_EQ(refused("[{200}]"), "");
  EXPECT_EQ(refused("\\{200}"), "");
  EXPECT_EQ(refused("\\Qa{200}\\E"), "");
  EXPECT_EQ(refused("a{x}"), "");
  EXPECT_NE(refused("a{101}").find("more than 100"), std::string::npos);
  EXPECT_NE(refused("a{1,101}").find("more than 100"), std::string::npos);
  EXPECT_NE(refused("[]]a{500,}").find("more than 100"), std::string::npos);
  EXPECT_NE(refused("a{99999999999999999999}").find("more than 100"), std::string::npos);
  EXPECT_NE(refused("((a{100}){100}){100}").find("does not compile"), std::string::npos);
  EXPECT_EQ(refused("(x"), "the expression does not compile: missing ): (x");
  EXPECT_NE(refused("(?<=a)b").find("does not compile"), std::string::npos);
  EXPECT_NE(refused(std::string(1025, 'a')).find("1025 bytes"), std::string::npos);
  Query field;
  field.kind = Query::Kind::kField;
  EXPECT_FALSE(TextMatcher::create(field));
}

// The literals that RE2 knows of must never hide a match.
TEST(TextMatcherTest, FindsWhatTheExpressionMatchesWhateverItsLiterals) {
  std::mt19937 random(99);
  const std::vector<std::string> parts{
      "abc",        "ABCD",         "x",       "[0-9]+", ".*",    "(foo|barbaz)",
      "\\s+",       "q?",           "(?i)Wxy", "\\.",    "hello", "[a-c]{3}",
      "(a|b|c)xyz", "\xE9\xE8\xE0", "^",       "$",      "\\b"};
  const std::vector<std::string> words{"abc",          "ABCD",   "wXy", "WXY", "x",     "12",
                                       "foo",          "barbaz", " ",   ".",   "hello", "HELLO",
                                       "\xE9\xE8\xE0", "bxyz",   "\n",  "q"};
  std::size_t matched = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string expression;
    for (auto left = 1 + random() % 4; left > 0; --left)
      expression += parts[random() % parts.size()];
    const bool ignore_case = random() % 2 == 0;
    const TextMatcher matcher = expression_matcher(expression, ignore_case);
    // The same with an alternative that has no literals, which turns the search for them off.
    const TextMatcher unfiltered =
        expression_matcher("(?:" + expression + ")|\\x01{99}[^\\x00-\\xff]", ignore_case);
    const TextMatcher plain = expression_matcher("(?:" + expression + ")|\\x01\\x02", ignore_case);
    for (int round = 0; round < 20; ++round) {
      std::string bytes;
      for (auto left = random() % 8; left > 0; --left) bytes += words[random() % words.size()];
      const Found expected = plain.find(bytes);
      ASSERT_EQ(matcher.find(bytes), expected) << expression << " in " << bytes;
      ASSERT_EQ(unfiltered.find(bytes), expected) << expression << " in " << bytes;
      if (!expected) continue;
      ++matched;
      ASSERT_TRUE(matcher.may_match("zzz" + bytes + "zzz")) << expression;
    }
  }
  EXPECT_GT(matched, 5000u);
}

}  // namespace
}  // namespace scriptorium
