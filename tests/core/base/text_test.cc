#include "core/base/text.h"

#include <gtest/gtest.h>

#include <chrono>

#include "core/base/sha256.h"
#include "tests/support/patience.h"

namespace scriptorium {
namespace {

using namespace std::string_literals;

TEST(Utf8Test, TakesWellFormedAndRefusesSurrogatesOverlongAndCutSequences) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("plain ascii, longer than eight bytes"));
  EXPECT_TRUE(is_utf8("Öl-Förderung 油田 🛢"));
  EXPECT_TRUE(is_utf8("a\0b"s));
  EXPECT_FALSE(is_utf8("\xff"));
  EXPECT_FALSE(is_utf8("\xc0\xaf")) << "overlong";
  EXPECT_FALSE(is_utf8("\xe0\x80\xaf")) << "overlong";
  EXPECT_FALSE(is_utf8("\xed\xa0\x80")) << "surrogate";
  EXPECT_FALSE(is_utf8("\xf4\x90\x80\x80")) << "beyond U+10FFFF";
  EXPECT_FALSE(is_utf8("12345678\xe6\xb2")) << "cut";
  EXPECT_FALSE(is_utf8("\x80"));
}

TEST(Utf8Test, LossyTextIsWellFormedAndKeepsWhatWas) {
  EXPECT_EQ(to_utf8_lossy("bad\xff\xfename"), "bad\xEF\xBF\xBD\xEF\xBF\xBDname");
  EXPECT_EQ(to_utf8_lossy("油"), "油");
  // The example of Unicode 15, table 3-8, with what Python's bytes.decode("utf-8", "replace") makes
  // of it.
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(to_utf8_lossy("\xE0\x80\x80"), bad + bad + bad);
  EXPECT_EQ(to_utf8_lossy("\xED\xA0\x80"), bad + bad + bad);
  EXPECT_EQ(to_utf8_lossy("a\xF1\x80\x80\xE1\x80\xC2"
                          "b\x80"
                          "c\x80\xBF"
                          "d"),
            "a" + bad + bad + bad + "b" + bad + "c" + bad + bad + "d");
  EXPECT_EQ(to_utf8_lossy("\xE6\xB2"), bad);
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string bytes = {'x', static_cast<char>(first), static_cast<char>(second)};
      EXPECT_TRUE(is_utf8(to_utf8_lossy(bytes))) << first << " " << second;
    }
  }
}

TEST(Base64Test, KnowsTheVectorsOfRfc4648AndReadsBackWhatItWrote) {
  EXPECT_EQ(base64_encode(""), "");
  EXPECT_EQ(base64_encode("f"), "Zg==");
  EXPECT_EQ(base64_encode("fo"), "Zm8=");
  EXPECT_EQ(base64_encode("foobar"), "Zm9vYmFy");
  std::string bytes;
  for (int i = 0; i < 256; ++i) {
    bytes += static_cast<char>(i);
    EXPECT_EQ(base64_decode(base64_encode(bytes)), bytes);
  }
  EXPECT_EQ(base64_decode("Zg="), std::nullopt);
  EXPECT_EQ(base64_decode("Zh=="), std::nullopt) << "bits that no byte has";
  EXPECT_EQ(base64_decode("Z@=="), std::nullopt);
}

TEST(HexTest, ReadsBothCasesAndRefusesTheRest) {
  EXPECT_EQ(hex_encode("\x00\xff\x10"s), "00ff10");
  EXPECT_EQ(hex_decode("00fF10"), "\x00\xff\x10"s);
  EXPECT_EQ(hex_decode("0"), std::nullopt);
  EXPECT_EQ(hex_decode("0g"), std::nullopt);
}

TEST(Sha256Test, KnowsTheVectorOfFips180) {
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 hash;
  hash.update("a");
  hash.update("bc");
  EXPECT_EQ(hash.finish_hex(), sha256_hex("abc"));
}

struct GlobCase {
  const char* pattern;
  const char* text;
  bool matches;
};

class GlobTest : public testing::TestWithParam<GlobCase> {};

TEST_P(GlobTest, MatchesTheWholeName) {
  EXPECT_EQ(glob_match(GetParam().pattern, GetParam().text), GetParam().matches)
      << GetParam().pattern << " on " << GetParam().text;
}

INSTANTIATE_TEST_SUITE_P(
    Table, GlobTest,
    testing::Values(
        GlobCase{"SLURM_*", "SLURM_JOB_ID", true}, GlobCase{"SLURM_*", "XSLURM_JOB_ID", false},
        GlobCase{"*TOKEN*", "HF_TOKEN", true}, GlobCase{"*TOKEN*", "TOKE", false},
        GlobCase{"?", "a", true}, GlobCase{"?", "", false}, GlobCase{"[a-c]x", "bx", true},
        GlobCase{"[!a-c]x", "bx", false}, GlobCase{"[!a-c]x", "dx", true},
        GlobCase{"[]]", "]", true}, GlobCase{"[a-]", "-", true}, GlobCase{"a\\*b", "a*b", true},
        GlobCase{"a\\*b", "aXb", false}, GlobCase{"*", "", true}, GlobCase{"", "", true},
        GlobCase{"a*b*c", "aXXbYYc", true}, GlobCase{"a*b*c", "aXXcYYb", false},
        GlobCase{"BASH_FUNC_*%%", "BASH_FUNC_module%%", true}));

TEST(GlobTimeTest, IsNotExponential) {
  const std::string text(20'000, 'a');
  const std::string pattern = "*a*a*a*a*a*a*a*a*b";
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_FALSE(glob_match(pattern, text));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, test::kPatience)
      << "a backtracking matcher would need years";
}

TEST(GlobProblemTest, SaysWhatIsWrong) {
  EXPECT_EQ(glob_problem("SLURM_*"), std::nullopt);
  EXPECT_EQ(glob_problem("[a-z]"), std::nullopt);
  EXPECT_EQ(glob_problem("[a"), "'[' without ']'");
  EXPECT_EQ(glob_problem("a\\"), "a '\\' at the end escapes nothing");
  EXPECT_EQ(glob_problem("[z-a]"), "the range 'z-a' is the wrong way round");
  EXPECT_TRUE(glob_problem("").has_value());
}

TEST(DidYouMeanTest, FindsTheNearKeyAndNothingFarAway) {
  const std::vector<std::string> keys = {"brokers", "topic", "compression"};
  EXPECT_EQ(did_you_mean("brokrs", keys), "brokers");
  EXPECT_EQ(did_you_mean("borkers", keys), "brokers") << "two letters exchanged";
  EXPECT_EQ(did_you_mean("xyz", keys), std::nullopt);
}

TEST(PrintableTest, EscapesWhatATerminalWouldActOn) {
  EXPECT_EQ(printable("a\nb\tc\x1b[31m"), "a\\nb\\tc\\x1b[31m");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m")
      << "an 8-bit CSI";
  EXPECT_EQ(printable("油\xff"), "油\\xff");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
}

TEST(PrintableTest, EscapesWhatReordersTheTextAroundIt) {
  EXPECT_EQ(printable("a\u202e"
                      "b\u2066"
                      "c\u200f"
                      "d\u2028"
                      "e\u061c"),
            "a\\u202eb\\u2066c\\u200fd\\u2028e\\u061c");
  EXPECT_EQ(printable("שלום, مرحبا"), "שלום, مرحبا") << "letters of every script stay";
}

TEST(WithoutControlsTest, DropsWhatPrintableEscapes) {
  EXPECT_EQ(without_controls("a\r\nb\tc\x1b[31m\x7f\0d"s), "abc[31md");
  EXPECT_EQ(without_controls("\u0085\u2028\u202e\u2066x\u061c"), "x");
  EXPECT_EQ(without_controls("油\xff שלום"), "油\ufffd שלום");
}

TEST(PrintableJsonTest, MeansTheSameAndHoldsNothingThatATerminalActsOn) {
  EXPECT_EQ(printable_json("{\"a\": \"\u202e\u009b"
                           "31m\x7f\"}"),
            R"({"a": "\u202e\u009b31m\u007f"})");
  EXPECT_EQ(printable_json("{\n  \"油\": \"\\u001b\"\n}"), "{\n  \"油\": \"\\u001b\"\n}");
}

TEST(FormatSecondsTest, SaysTimesInWords) {
  EXPECT_EQ(format_seconds(0.004), "4 ms");
  EXPECT_EQ(format_seconds(4.24), "4.2 s");
  EXPECT_EQ(format_seconds(812.4), "13 min 32 s");
  EXPECT_EQ(format_seconds(18600), "5 h 10 min");
  EXPECT_EQ(format_seconds(3 * 86400 + 4 * 3600), "3 d 4 h");
}

TEST(CharacterAtTest, IsACodePointOrIllFormed) {
  EXPECT_EQ(character_at("a", 0).code, 0x61U);
  EXPECT_EQ(character_at("x\u00e9", 1).code, 0xe9U);
  EXPECT_EQ(character_at("\U0001f600", 0).code, 0x1f600U);
  EXPECT_EQ(character_at("\U0001f600", 0).length, 4U);
  EXPECT_FALSE(character_at("\xe2\x82z", 0).code);
  EXPECT_EQ(character_at("\xe2\x82z", 0).length, 2U);
  EXPECT_EQ(character_at(std::string_view("\0", 1), 0).code, 0U);
}

TEST(FormatBytesTest, UsesTheUnitThatAPersonReads) {
  EXPECT_EQ(format_bytes(17), "17 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(std::uint64_t{1} << 30), "1.0 GiB");
}

}  // namespace
}  // namespace scriptorium
