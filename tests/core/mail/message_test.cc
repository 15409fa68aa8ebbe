#include "core/mail/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/text.h"

namespace scriptorium::mail {
namespace {

using namespace std::literals;
using ::testing::HasSubstr;
using ::testing::Not;

class MessageTest : public ::testing::Test {
 protected:
  MessageTest() {
    message_.from = "Support <hpc-support@example.org>";
    message_.to = "anna@example.org";
    message_.subject = "Your jobs in week 46";
    message_.date = Timestamp{1'794'816'000 * kSecond};  // 2026-11-16T08:00:00Z
    message_.zone = [](Timestamp) { return std::int64_t{3600}; };
    message_.id = "cafe-1";
    message_.domain = "example.org";
    message_.unsubscribe = "hpc-support@example.org";
    message_.language = "de";
    message_.text = "Grüße\n";
    message_.html = "<p>Grüße</p>\n";
  }
  // The value of a header, with its line breaks.
  std::string header(const std::string& name) const {
    const std::string text = "\n" + message_text(message_);
    const auto begin = text.find("\n" + name + ": ") + name.size() + 3;
    auto end = text.find('\n', begin);
    while (text.at(end + 1) == ' ') end = text.find('\n', end + 1);
    return text.substr(begin, end - begin);
  }
  static std::vector<std::string> lines(const std::string& text) {
    std::vector<std::string> result;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) result.push_back(line);
    return result;
  }
  std::string subject_of(const std::string& subject) {
    message_.subject = subject;
    return header("Subject");
  }
  Message message_;
};

TEST_F(MessageTest, IsWrittenAsExpected) {
  EXPECT_EQ(message_text(message_),
            "From: Support <hpc-support@example.org>\n"
            "To: anna@example.org\n"
            "Subject: Your jobs in week 46\n"
            "Date: Mon, 16 Nov 2026 09:00:00 +0100\n"
            "Message-ID: <cafe-1@example.org>\n"
            "MIME-Version: 1.0\n"
            "Auto-Submitted: auto-generated\n"
            "Precedence: bulk\n"
            "List-Id: <scriptorium.example.org>\n"
            "List-Unsubscribe: <mailto:hpc-support@example.org>\n"
            "Content-Language: de\n"
            "Content-Type: multipart/alternative;\n"
            " boundary=\"=_437d4a983514a96199aa607f885fb61b\"\n"
            "\n"
            "--=_437d4a983514a96199aa607f885fb61b\n"
            "Content-Type: text/plain; charset=utf-8\n"
            "Content-Transfer-Encoding: base64\n"
            "\n"
            "R3LDvMOfZQ0K\n"
            "\n"
            "--=_437d4a983514a96199aa607f885fb61b\n"
            "Content-Type: text/html; charset=utf-8\n"
            "Content-Transfer-Encoding: base64\n"
            "\n"
            "PHA+R3LDvMOfZTwvcD4NCg==\n"
            "\n"
            "--=_437d4a983514a96199aa607f885fb61b--\n");
}

TEST_F(MessageTest, HeadersWithoutAValueAreLeftOut) {
  message_.unsubscribe.clear();
  message_.language.clear();
  message_.domain.clear();
  const std::string text = message_text(message_);
  EXPECT_THAT(text, Not(HasSubstr("List-Unsubscribe")));
  EXPECT_THAT(text, Not(HasSubstr("Content-Language")));
  EXPECT_THAT(text, HasSubstr("Message-ID: <cafe-1@localhost>\n"));
}

TEST_F(MessageTest, NoTextBeginsAnotherHeader) {
  const std::string hostile = "x\r\nBcc: bob@example.org\n\nbody\0y\x85\u0085\u2028\u202e"s;
  message_.from = hostile + " <a@b" + hostile + ">";
  message_.to = message_.subject = message_.id = message_.domain = hostile;
  message_.unsubscribe = message_.language = hostile;
  const std::string text = message_text(message_);
  const std::string head = text.substr(0, text.find("\n\n"));
  for (const std::string& line : lines(head)) {
    EXPECT_FALSE(line.starts_with("Bcc")) << line;
    for (const char c : line) EXPECT_TRUE(c >= ' ' && c <= '~') << line;
  }
  EXPECT_THAT(head, HasSubstr("\nContent-Type: multipart/alternative;")) << "the last header";
}

TEST_F(MessageTest, ALongSubjectIsFoldedAtItsBlanks) {
  const std::string most(69, 'x');  // "Subject: " has nine
  EXPECT_EQ(subject_of(most), most);
  EXPECT_EQ(subject_of(most.substr(3) + " yy"), most.substr(3) + " yy");
  EXPECT_EQ(subject_of(most.substr(2) + " yy"), most.substr(2) + "\n yy");
  EXPECT_EQ(subject_of("a " + most + "12345678 b"), "a\n " + most + "12345678\n b");
  EXPECT_TRUE(subject_of("a " + most + "123456789").starts_with("=?utf-8?B?"))
      << "no line has room for its second word";
  EXPECT_TRUE(subject_of(most + "x").starts_with("=?utf-8?B?"));
}

TEST_F(MessageTest, ASubjectThatPlainTextWouldChangeIsEncoded) {
  EXPECT_EQ(subject_of("two  blanks"), "=?utf-8?B?dHdvICBibGFua3M=?=");
  EXPECT_EQ(subject_of(" blank"), "=?utf-8?B?IGJsYW5r?=");
  EXPECT_EQ(subject_of("=?utf-8?B?eA==?="), "=?utf-8?B?PT91dGYtOD9CP2VBPT0/PQ==?=");
  EXPECT_EQ(subject_of("Grüße"), "=?utf-8?B?R3LDvMOfZQ==?=");
  EXPECT_EQ(subject_of("\xff"), "=?utf-8?B?77+9?=");
  EXPECT_EQ(subject_of(""), "");
}

TEST_F(MessageTest, EncodedWordsAreShortEnoughAndHoldWholeCharacters) {
  for (const std::string& shift : {""s, "a"s, "aa"s, "aaa"s}) {
    std::string subject = shift;
    for (int i = 0; i < 500; ++i) subject += i % 2 == 0 ? "😀" : "ü";
    std::string decoded;
    bool is_first = true;
    for (const std::string& line : lines(subject_of(subject))) {
      const std::string word = is_first ? line : line.substr(1);
      EXPECT_LE(line.size() + (is_first ? "Subject: "sv.size() : 0), 78U);
      EXPECT_LE(word.size(), 75U);
      ASSERT_TRUE(word.starts_with("=?utf-8?B?") && word.ends_with("?=")) << word;
      const auto part = base64_decode(word.substr(10, word.size() - 12));
      ASSERT_TRUE(part) << word;
      EXPECT_TRUE(is_utf8(*part)) << "a character is split: " << word;
      decoded += *part;
      is_first = false;
    }
    EXPECT_EQ(decoded, subject);
  }
}

TEST_F(MessageTest, ANameInFromIsEncodedIfItIsMoreThanWords) {
  const auto from = [this](const std::string& text) {
    message_.from = text;
    return header("From");
  };
  EXPECT_EQ(from("a@b"), "a@b");
  EXPECT_EQ(from("<a@b>"), "<a@b>");
  EXPECT_EQ(from("HPC Support <a@b>"), "HPC Support <a@b>");
  EXPECT_EQ(from("Müller <a@b>"), "=?utf-8?B?TcO8bGxlcg==?= <a@b>");
  EXPECT_EQ(from("x, <c@d> <a@b>"), "=?utf-8?B?eCwgPGNAZD4=?= <a@b>") << "one address, not two";
  EXPECT_EQ(from(std::string(60, 'x') + " <hpc-support@example.org>"),
            std::string(60, 'x') + "\n <hpc-support@example.org>");
}

TEST_F(MessageTest, TheDateIsOfTheZoneAtThatTime) {
  const auto date = [this](std::int64_t seconds, UtcOffset zone) {
    message_.date = Timestamp{seconds * kSecond};
    message_.zone = zone;
    return header("Date");
  };
  EXPECT_EQ(date(0, kUtc), "Thu, 01 Jan 1970 00:00:00 +0000");
  EXPECT_EQ(date(1'798'761'599, [](Timestamp) { return std::int64_t{-12'600}; }),
            "Thu, 31 Dec 2026 20:29:59 -0330");
  EXPECT_EQ(date(1'798'759'800, [](Timestamp) { return std::int64_t{20'700}; }),
            "Fri, 01 Jan 2027 05:15:00 +0545");
}

TEST_F(MessageTest, APartOfAnyBytesHasShortLinesOfBase64) {
  message_.text = ".\nFrom x\r\n\xff" + std::string(5000, 'x') + "\n.\n";
  std::string encoded;
  const auto all = lines(message_text(message_));
  for (auto line = std::find(all.begin(), all.end(), "Content-Transfer-Encoding: base64") + 2;
       !line->empty(); ++line) {
    EXPECT_LE(line->size(), 76U);
    encoded += *line;
  }
  EXPECT_EQ(base64_decode(encoded),
            ".\r\nFrom x\r\n\xEF\xBF\xBD" + std::string(5000, 'x') + "\r\n.\r\n");
}

TEST(AddressTest, OnlyWhatAMailProgramTakesForOneAddressIsAnAddress) {
  for (const auto& good :
       {"anna", "anna@example.org", "a.b_c%d+e-f@x-y.z", "0", ".", "a@localhost"})
    EXPECT_TRUE(is_address(good)) << good;
  EXPECT_TRUE(is_address(std::string(250, 'a') + "@b.c"));
  EXPECT_FALSE(is_address(std::string(251, 'a') + "@b.c")) << "more than 254 bytes";
  for (const auto& bad :
       {"",          "@",   "a@",       "@b",    "a@b@c",      "-bp",   "|cmd", "/file",
        "a/b",       "a b", "a@h, b@h", "a,b",   "<a@b>",      "a@b\n", "\na",  "a\nBcc: b",
        "\"a b\"@c", "ä@b", "a@ä",      "a@b_c", ":include:x", "a!b",   "a;b",  "a@[127.0.0.1]",
        "a\\b",      "$a",  "a@b%c"})
    EXPECT_FALSE(is_address(bad)) << bad;
  EXPECT_FALSE(is_address("a\0b"sv));
}

}  // namespace
}  // namespace scriptorium::mail
