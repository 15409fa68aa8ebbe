#include "core/base/json_text.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>

namespace scriptorium {
namespace {

std::string json(std::string_view text) {
  std::string out;
  append_json_string(text, out);
  return out;
}

// RFC 8259, section 7, byte by byte.
std::string expected(std::string_view text) {
  constexpr std::string_view kShort = "\b\f\n\r\t\"\\";
  constexpr std::string_view kLetters = "bfnrt\"\\";
  std::string out = "\"";
  for (const char c : text) {
    if (const auto at = kShort.find(c); at != std::string_view::npos) {
      out += '\\';
      out += kLetters[at];
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::array<char, 8> code{};
      std::snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(c));
      out += code.data();
    } else {
      out += c;
    }
  }
  return out + '"';
}

TEST(JsonTextTest, EscapesWhatJsonWantsEscapedAndNothingElse) {
  using namespace std::string_view_literals;
  EXPECT_EQ(json(""), R"("")");
  EXPECT_EQ(json("plain"), R"("plain")");
  EXPECT_EQ(json("\"\\\b\f\n\r\t"), R"("\"\\\b\f\n\r\t")");
  EXPECT_EQ(json("\0\x01\x1b\x1f"sv), R"("\u0000\u0001\u001b\u001f")");
  EXPECT_EQ(json("/ \x7f"), "\"/ \x7f\"");
  EXPECT_EQ(json("Öl 油 🛢 \xC2\x80 \xE2\x80\xA8"), "\"Öl 油 🛢 \xC2\x80 \xE2\x80\xA8\"");
}

// Blocks of sixteen bytes are looked at as one, so a byte is tried at every place of one and of the
// rest behind it.
TEST(JsonTextTest, EveryByteIsWrittenAlikeWhereverItStands) {
  for (int c = 0; c < 0x80; ++c) {
    for (std::size_t size = 1; size <= 40; ++size) {
      for (std::size_t at = 0; at < size; ++at) {
        std::string text(size, 'x');
        text[at] = static_cast<char>(c);
        ASSERT_EQ(json(text), expected(text)) << "byte " << c << " at " << at << " of " << size;
      }
    }
  }
}

TEST(JsonTextTest, LongTextsOfAnySizePassTheBufferWhole) {
  for (const std::string unit : {"a", "\x01", "ab\n", "油", "fifteen bytes..\"", "\\\\\\",
                                 "x油\x1f yz, and more of it, so that blocks are plain"}) {
    std::string text;
    while (text.size() < 2000) {
      text += unit;
      ASSERT_EQ(json(text), expected(text)) << text.size();
    }
  }
}

TEST(JsonTextTest, AppendsToWhatIsThere) {
  std::string out = "{";
  append_json_string("a", out);
  out += ':';
  append_json_string("b\n", out);
  EXPECT_EQ(out, R"({"a":"b\n")");
}

}  // namespace
}  // namespace scriptorium
