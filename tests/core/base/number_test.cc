#include "core/base/number.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "core/base/ascii.h"
#include "core/base/path.h"

namespace scriptorium {
namespace {

TEST(NumberTest, TakesTheWholeTextOrNothing) {
  EXPECT_EQ(parse_number<std::uint32_t>("4711"), 4711U);
  EXPECT_EQ(parse_number<std::int64_t>("-1"), -1);
  EXPECT_EQ(parse_number<double>("1.5"), 1.5);
  for (const char* text : {"", " 1", "1 ", "+1", "1x", "x"})
    EXPECT_FALSE(parse_number<std::int64_t>(text)) << '"' << text << '"';
  EXPECT_FALSE(parse_number<std::uint32_t>("-1"));
}

TEST(NumberTest, WhatDoesNotFitIsNotANumber) {
  EXPECT_EQ(parse_number<std::uint16_t>("65535"), 65535);
  EXPECT_FALSE(parse_number<std::uint16_t>("65536"));
}

TEST(NumberTest, ANumberIsTakenOffTheFrontAndTheRestStays) {
  std::string_view text = "12:7";
  EXPECT_EQ(take_number<int>(text), 12);
  EXPECT_EQ(text, ":7");
  EXPECT_FALSE(take_number<int>(text));
  EXPECT_EQ(text, ":7");
}

TEST(AsciiTest, CharactersBeyondAsciiAreNeitherLettersNorDigits) {
  for (int c = 0x80; c < 0x100; ++c) EXPECT_FALSE(is_alphanumeric(static_cast<char>(c))) << c;
  EXPECT_TRUE(is_alphanumeric('z') && is_alphanumeric('A') && is_alphanumeric('0'));
  EXPECT_FALSE(is_alphanumeric('_') || is_alphanumeric('@') || is_alphanumeric('['));
}

TEST(AsciiTest, AnEmptyTextIsNotAllDigits) {
  EXPECT_TRUE(is_all_digits("0123456789"));
  EXPECT_FALSE(is_all_digits("") || is_all_digits("1a") || is_all_digits("-1"));
}

TEST(AsciiTest, TrimTakesTheGivenCharactersOffBothEnds) {
  EXPECT_EQ(trim("  a b "), "a b");
  EXPECT_EQ(trim("\t a\n", " \t\n"), "a");
  EXPECT_EQ(trim("   "), "");
  EXPECT_EQ(to_lower("ClusterName"), "clustername");
}

TEST(PathTest, TheParentOfANameIsEmpty) {
  EXPECT_EQ(parent_of("a/b/c"), "a/b");
  EXPECT_EQ(parent_of("/a"), "");
  EXPECT_EQ(parent_of("a"), "");
}

}  // namespace
}  // namespace scriptorium
