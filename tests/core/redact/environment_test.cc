#include "core/redact/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "core/base/text.h"

namespace scriptorium {
namespace {

using namespace std::string_literals;
using Mode = EnvironmentRule::Mode;

EnvironmentRule keep(std::vector<std::string> patterns) {
  return {.mode = Mode::kPatterns, .keep = std::move(patterns)};
}
EnvironmentRule drop(std::vector<std::string> patterns) {
  return {.mode = Mode::kPatterns, .drop = std::move(patterns)};
}

TEST(FilterEnvironmentTest, AllKeepsTheVerySameBytes) {
  const Bytes environment = make_bytes("A=1\0B=2\0"s);
  const FilteredEnvironment filtered = filter_environment(environment, {});
  EXPECT_EQ(filtered.bytes.get(), environment.get());
  EXPECT_EQ(filtered.dropped, 0U);
}

TEST(FilterEnvironmentTest, PatternsThatDropNothingKeepTheVerySameBytes) {
  const Bytes environment = make_bytes("A=1\0B=2\0"s);
  EXPECT_EQ(filter_environment(environment, drop({"SECRET*"})).bytes.get(), environment.get());
  EXPECT_EQ(filter_environment(environment, keep({"*"})).bytes.get(), environment.get());
}

TEST(FilterEnvironmentTest, NoneGivesNullAndCountsEveryString) {
  const FilteredEnvironment filtered =
      filter_environment(make_bytes("A=1\0\0odd\0"s), {.mode = Mode::kNone});
  EXPECT_EQ(filtered.bytes, nullptr);
  EXPECT_EQ(filtered.dropped, 3U);
  EXPECT_EQ(filter_environment(make_bytes("A=1\0last without NUL"s), {.mode = Mode::kNone}).dropped,
            2U);
  EXPECT_EQ(filter_environment(make_bytes(""), {.mode = Mode::kNone}).dropped, 0U);
}

TEST(FilterEnvironmentTest, NoEnvironmentStaysNone) {
  for (const EnvironmentRule& rule :
       {EnvironmentRule{}, EnvironmentRule{.mode = Mode::kNone}, keep({"A"})}) {
    EXPECT_EQ(filter_environment(nullptr, rule).bytes, nullptr);
    EXPECT_EQ(filter_environment(nullptr, rule).dropped, 0U);
  }
}

TEST(FilterEnvironmentTest, WhatIsKeptStaysByteForByteInItsOrder) {
  struct Case {
    std::string name;
    std::string environment;
    EnvironmentRule rule;
    std::string kept;
    std::uint64_t dropped;
  };
  const std::vector<Case> cases = {
      {"first, middle and last go", "T1=x\0A=1\0T2=y\0B=2\0T3=z\0"s, drop({"T?"}), "A=1\0B=2\0"s,
       3},
      {"repeated names stay and go together", "A=1\0S=1\0A=2\0S=2\0A=1\0"s, drop({"S"}),
       "A=1\0A=2\0A=1\0"s, 2},
      {"values with newlines, '=' and bytes that are no text", "A=x\ny=z\0S=s\0B=\xff\x01=\0"s,
       drop({"S"}), "A=x\ny=z\0B=\xff\x01=\0"s, 1},
      {"a value never matches", "A=TOKEN\0TOKEN=A\0"s, drop({"TOKEN"}), "A=TOKEN\0"s, 1},
      {"a string without '=' is its own name", "TOKEN\0A=1\0"s, drop({"TOKEN"}), "A=1\0"s, 1},
      {"the first '=' is not looked for at position 0", "=odd=TOKEN\0A=1\0"s, drop({"=odd"}),
       "A=1\0"s, 1},
      {"a string that is only '='", "=\0A=1\0"s, drop({"="}), "A=1\0"s, 1},
      {"empty strings are kept by '*'", "\0A=1\0\0S=1\0"s, drop({"S"}), "\0A=1\0\0"s, 1},
      {"empty strings go when nothing keeps them", "\0A=1\0\0"s, keep({"A"}), "A=1\0"s, 2},
      {"keep first, then drop",
       "OMP_A=1\0OMP_TOKEN=2\0PATH=3\0"s,
       {.mode = Mode::kPatterns, .keep = std::vector<std::string>{"OMP_*"}, .drop = {"*TOKEN*"}},
       "OMP_A=1\0"s,
       2},
      {"everything goes: empty bytes, not null", "A=1\0B=2\0"s, drop({"*"}), "", 2},
      {"case counts", "token=1\0TOKEN=2\0"s, drop({"TOKEN"}), "token=1\0"s, 1},
      {"classes", "A1=1\0B1=2\0C1=3\0"s, drop({"[AC]?"}), "B1=2\0"s, 2},
      {"bash functions", "BASH_FUNC_ml%%=() {  eval x\n}\0A=1\0"s, drop({"BASH_FUNC_*"}), "A=1\0"s,
       1},
      {"a last string without NUL is a string too", "A=1\0TOKEN=x"s, drop({"TOKEN"}), "A=1\0"s, 1},
      {"and is kept without one", "TOKEN=x\0A=1"s, drop({"TOKEN"}), "A=1", 1},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const FilteredEnvironment filtered = filter_environment(make_bytes(c.environment), c.rule);
    ASSERT_NE(filtered.bytes, nullptr);
    EXPECT_EQ(printable(*filtered.bytes, 1000), printable(c.kept, 1000));
    EXPECT_EQ(*filtered.bytes, c.kept);
    EXPECT_EQ(filtered.dropped, c.dropped);
  }
}

TEST(FilterEnvironmentTest, AgreesWithSplitEnvironmentOnEveryName) {
  std::mt19937 random(7);
  const std::string alphabet("AB=\n\0\0x\xc3", 8);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (std::uint32_t n = random() % 30; n > 0; --n) bytes += alphabet[random() % alphabet.size()];
    bytes += '\0';
    const EnvironmentRule rule = drop({"A*"});
    std::string expected;
    std::uint64_t dropped = 0;
    for (const Variable& variable : split_environment(bytes)) {
      if (glob_match("A*", variable.name)) {
        ++dropped;
        continue;
      }
      expected += variable.name;
      if (variable.value.data() != nullptr) expected.append("=").append(variable.value);
      expected += '\0';
    }
    const FilteredEnvironment filtered = filter_environment(make_bytes(bytes), rule);
    ASSERT_EQ(*filtered.bytes, expected) << printable(bytes, 1000);
    ASSERT_EQ(filtered.dropped, dropped) << printable(bytes, 1000);
  }
}

TEST(FilterEnvironmentTest, TakesLinearTimeWhateverIsDropped) {
  // A copy for each dropped string would move 20 TB here.
  std::string bytes;
  for (int n = 0; n < 1'000'000; ++n)
    bytes += n % 2 == 0 ? "TOKEN=0123456789abcdef0123456789\0"s : "A=0123456789abcdef\0"s;
  const Bytes environment = make_bytes(std::move(bytes));
  const FilteredEnvironment filtered = filter_environment(environment, drop({"TOKEN"}));
  EXPECT_EQ(filtered.dropped, 500'000U);
  EXPECT_EQ(filtered.bytes->size(), 500'000U * "A=0123456789abcdef\0"s.size());
}

TEST(FilterRawEnvironmentTest, AnyRuleButAllDropsWhatCannotBeParsed) {
  const Bytes raw = make_bytes("\x09\0\0\0A=1"s);
  EXPECT_EQ(filter_raw_environment(raw, {}).bytes.get(), raw.get());
  for (const EnvironmentRule& rule :
       {EnvironmentRule{.mode = Mode::kNone}, drop({"NOTHING"}), keep({"*"})}) {
    const FilteredEnvironment filtered = filter_raw_environment(raw, rule);
    EXPECT_EQ(filtered.bytes, nullptr);
    EXPECT_EQ(filtered.dropped, 1U);
  }
  EXPECT_EQ(filter_raw_environment(nullptr, drop({"A"})).dropped, 0U);
}

}  // namespace
}  // namespace scriptorium
