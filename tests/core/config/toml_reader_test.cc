#include "core/config/toml_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace scriptorium {
namespace {

using testing::ElementsAre;

class TomlReaderTest : public testing::Test {
 protected:
  std::vector<std::string> read(std::string_view text) {
    Problems problems;
    read_ = read_toml(text, "f.toml", problems);
    problems.sort();
    std::vector<std::string> texts;
    for (const Problem& problem : problems.list()) texts.push_back(problem.text());
    return texts;
  }
  const Table& table(std::initializer_list<const char*> way) const {
    const Table* at = &read_.table;
    for (const char* key : way) {
      const Value* value = at->find(key);
      if (value == nullptr || !std::holds_alternative<Table>(value->data))
        throw std::runtime_error(std::string("no table ") + key);
      at = &std::get<Table>(value->data);
    }
    return *at;
  }
  std::vector<std::string> keys(const Table& table) const {
    std::vector<std::string> result;
    for (const TableEntry& entry : table.entries)
      result.push_back(entry.key + "@" + std::to_string(entry.value.position.line) + "=" +
                       entry.value.text());
    return result;
  }

  TomlText read_;
};

TEST_F(TomlReaderTest, KeepsOrderLinesAndPaths) {
  EXPECT_THAT(read("z = 1\n"
                   "a = 2\n"
                   "\n"
                   "[sink.b]   # comment\n"
                   "root = '/x'\n"
                   "list = [1,\n"
                   "  2.5,\n"
                   "  [true]]\n"
                   "inline = { p = 1, q = \"s\" }\n"
                   "[sink.a]\n"
                   "d.e = 1\n"),
              ElementsAre());
  EXPECT_FALSE(read_.damaged);
  EXPECT_EQ(read_.table.position.line, 1U);
  EXPECT_EQ(read_.table.path, "");
  EXPECT_THAT(
      keys(table({"sink"})),
      ElementsAre("b@4={ root = \"/x\", list = [1, 2.5, [true]], inline = { p = 1, q = \"s\" } }",
                  "a@10={ d = { e = 1 } }"));
  EXPECT_EQ(read_.table.entries.at(0).key, "z");
  EXPECT_EQ(read_.table.entries.at(1).key, "a");
  const Table& b = table({"sink", "b"});
  EXPECT_EQ(b.path, "sink.b");
  EXPECT_EQ(b.position.file, "f.toml");
  EXPECT_THAT(keys(b), ElementsAre("root@5=\"/x\"", "list@6=[1, 2.5, [true]]",
                                   "inline@9={ p = 1, q = \"s\" }"));
  const auto& list = std::get<std::vector<Value>>(b.find("list")->data);
  EXPECT_EQ(list.at(1).position.line, 7U);
  EXPECT_EQ(list.at(2).position.line, 8U);
  EXPECT_EQ(table({"sink", "a", "d"}).path, "sink.a.d");
  EXPECT_EQ(table({"sink", "b", "inline"}).position.line, 9U);
}

TEST_F(TomlReaderTest, ATableOpenedAfterItsChildStandsAtItsOwnHeader) {
  EXPECT_THAT(read("[sink.a.tls]\nx = 1\n[sink.a]\ny = 2\n"), ElementsAre());
  EXPECT_EQ(table({"sink", "a"}).position.line, 3U);
  EXPECT_EQ(table({"sink", "a", "tls"}).position.line, 1U);
}

TEST_F(TomlReaderTest, TakesCrlfAndByteOrderMark) {
  EXPECT_THAT(read("\xef\xbb\xbf"
                   "a = 1\r\n\r\n[t]\r\nb = \"x\"\r\n"),
              ElementsAre());
  EXPECT_THAT(keys(read_.table), ElementsAre("a@1=1", "t@3={ b = \"x\" }"));
  EXPECT_THAT(read("\xef\xbb\xbf"
                   "a = 1\r\na = 2\r\nb = yes\r\n"),
              ElementsAre("f.toml:2: a: duplicate key; it is already in line 1",
                          "f.toml:3: b: syntax error: not a value; a text needs quotes; allowed: "
                          "\"text\", a number, true, "
                          "false, [a list], { a table }"));
}

TEST_F(TomlReaderTest, EmptyTextIsAnEmptyTable) {
  for (const char* text : {"", "\n", "# only a comment", "\xef\xbb\xbf", " \t\r\n"}) {
    EXPECT_THAT(read(text), ElementsAre()) << text;
    EXPECT_TRUE(read_.table.entries.empty());
  }
}

TEST_F(TomlReaderTest, KeysThatAreNoBareWordsAreQuotedInPaths) {
  EXPECT_THAT(
      read("[sink.\"a\\nb\"]\nx.\"y z\" = nan\n"),
      ElementsAre(
          "f.toml:2: sink.\"a\\nb\".x.\"y z\": wrong type: no key accepts inf or nan; given: nan"));
}

constexpr const char* kNotAValue =
    ": syntax error: not a value; a text needs quotes; allowed: \"text\", a number, true, false, "
    "[a list], { a table }";

TEST_F(TomlReaderTest, EveryMistakeOfSyntaxIsReportedInOneRun) {
  EXPECT_THAT(
      read("cluster = lab\n"         // 1
           "state_dir = /var/lib\n"  // 2
           "host = \"a\n"            // 3
           "[sink.a\n"               // 4
           "x = 1\n"                 // 5
           "[sink.b]\n"              // 6
           "size = 10 MiB\n"         // 7
           "path = \"C:\\q\"\n"      // 8
           "flag = True\n"           // 9
           "empty =\n"               // 10
           "alone\n"                 // 11
           "zero = 007\n"            // 12
           "good = 1\n"),
      ElementsAre(
          std::string("f.toml:1: cluster") + kNotAValue,
          std::string("f.toml:2: state_dir") + kNotAValue,
          "f.toml:3: host: syntax error: the text's closing quote is missing, or it holds a "
          "control character",
          "f.toml:4: sink.a: syntax error in table header: expected ']', saw '\\n'",
          "f.toml:7: sink.b.size: syntax error: the value is followed by something else; allowed: "
          "a "
          "# comment",
          "f.toml:8: sink.b.path: syntax error in string: unknown escape sequence '\\q'",
          std::string("f.toml:9: sink.b.flag") + kNotAValue,
          "f.toml:10: sink.b.empty: syntax error in key-value pair: expected value, saw '\\n'",
          "f.toml:12: sink.b.zero: syntax error in decimal integer: leading zeroes are "
          "prohibited"));
  // Line 11 begins no key, so it may be the rest of what was taken out above it; the next run says
  // it.
  EXPECT_TRUE(read_.damaged);
  EXPECT_TRUE(read_.table.damaged);
  EXPECT_TRUE(table({"sink", "b"}).damaged);
  EXPECT_THAT(keys(table({"sink", "b"})), ElementsAre("good@13=1"));
  EXPECT_EQ(table({"sink"}).find("a"), nullptr)
      << "the keys below a broken header must not be taken for another table's";
}

TEST_F(TomlReaderTest, OnlyTheTableOfABrokenLineIsDamaged) {
  EXPECT_THAT(read("cluster = \"lab\"\n[sink.a]\nx = 1\n[sink.b]\ny = oops\n[sink.c]\n"),
              ElementsAre(std::string("f.toml:5: sink.b.y") + kNotAValue));
  EXPECT_TRUE(read_.damaged);
  EXPECT_FALSE(read_.table.damaged);
  EXPECT_FALSE(table({"sink", "a"}).damaged);
  EXPECT_TRUE(table({"sink", "b"}).damaged);
  EXPECT_FALSE(table({"sink", "c"}).damaged);
}

TEST_F(TomlReaderTest, DuplicatesKeepTheFirstValueAndNameItsLine) {
  EXPECT_THAT(read("[sink.a]\n"    // 1
                   "x = 1\n"       // 2
                   "x = 2\n"       // 3
                   "[sink.b]\n"    // 4
                   "x = 3\n"       // 5
                   "[ sink.a ]\n"  // 6
                   "y = 4\n"       // 7
                   "[sink.c]\n"    // 8
                   "t = { p = 1, p = 2 }\n"
                   "[sink]\n"  // 10
                   "a = 3\n"),
              ElementsAre("f.toml:3: sink.a.x: duplicate key; it is already in line 2",
                          "f.toml:6: sink.a: duplicate table; it is already in line 1",
                          "f.toml:9: sink.c.t: duplicate key: 'p' is already defined",
                          "f.toml:11: sink.a: duplicate key: 'a' is already defined"));
  EXPECT_THAT(keys(table({"sink", "a"})), ElementsAre("x@2=1"));
  EXPECT_THAT(keys(table({"sink", "b"})), ElementsAre("x@5=3"));
  EXPECT_FALSE(read_.damaged) << "nothing is missing: the first value counts";
}

TEST_F(TomlReaderTest, AListThatIsNotClosedIsReportedWhereItBegins) {
  EXPECT_THAT(
      read("[sink.a]\nkinds = [\"x\",\n  \"y\"\nworkers = 2\nmore = [\n[sink.b]\nz = 1\n"),
      ElementsAre(
          "f.toml:2: sink.a.kinds: syntax error: the list that begins here has no closing ']'",
          "f.toml:5: sink.a.more: syntax error: the list that begins here has no closing ']'"));
  EXPECT_THAT(keys(table({"sink", "a"})), ElementsAre("workers@4=2"));
  EXPECT_THAT(keys(table({"sink", "b"})), ElementsAre("z@7=1"));
}

TEST_F(TomlReaderTest, AMistakeInAListThatIsClosedIsReportedOnItsOwnLine) {
  EXPECT_THAT(
      read(
          "[sink.a]\nlist = [\n  [1, oops],\n  [nope]\n]\nmore = [\n  \"x\"\n  \"y\",\n]\nz = 1\n"),
      ElementsAre(
          "f.toml:3: sink.a.list: syntax error: not a value; a text needs quotes; allowed: "
          "\"text\", a number, "
          "true, false, [a list], { a table }",
          "f.toml:8: sink.a.more: syntax error in array: expected comma or closing ']', saw '\"'"));
  EXPECT_THAT(keys(table({"sink", "a"})), ElementsAre("list@2=[]", "more@6=[\"x\"]", "z@10=1"));
}

TEST_F(TomlReaderTest, ALongTextThatIsNotClosedIsReportedWhereItBegins) {
  EXPECT_THAT(read("a = yes\n[sink.a]\nx = \"\"\"\nabc\n[sink.b]\n"),
              ElementsAre(std::string("f.toml:1: a") + kNotAValue,
                          "f.toml:3: sink.a.x: syntax error: the closing quotes of the text that "
                          "begins here are missing"));
}

TEST_F(TomlReaderTest, HeadersAndKeysInsideTextsAndListsAreNoHeadersAndKeys) {
  EXPECT_THAT(
      read("[sink.a]\nx = \"\"\"\n[sink.b]\ny = 1\n\"\"\"\nlist = [\n  [1],\n  [2]\n]\nz = 5\n"),
      ElementsAre());
  EXPECT_THAT(keys(table({"sink", "a"})),
              ElementsAre("x@2=\"[sink.b]\\ny = 1\\n\"", "list@6=[[1], [2]]", "z@10=5"));
}

TEST_F(TomlReaderTest, DatesAndNumbersWithoutEndAreRefusedInWords) {
  EXPECT_THAT(
      read("a = 2026-11-21\nb = 12:30:00\nc = 2026-11-21T12:30:00Z\nd = -inf\ne = [1, nan]\n[t]\nf "
           "= 1\n"),
      ElementsAre(
          "f.toml:1: a: wrong type: no key accepts a date or time; put a text in quotes; given: "
          "2026-11-21",
          "f.toml:2: b: wrong type: no key accepts a date or time; put a text in quotes; given: "
          "12:30:00",
          "f.toml:3: c: wrong type: no key accepts a date or time; put a text in quotes; given: "
          "2026-11-21T12:30:00Z",
          "f.toml:4: d: wrong type: no key accepts inf or nan; given: -inf",
          "f.toml:5: e: wrong type: no key accepts inf or nan; given: nan"));
  EXPECT_TRUE(read_.table.damaged) << "a date for a required key is one problem, not two";
  EXPECT_FALSE(table({"t"}).damaged);
}

TEST_F(TomlReaderTest, BytesThatAreNoUtf8AreReportedWithTheirLine) {
  EXPECT_THAT(read("a = 1\nb = \"\xff\"\nc = 2\n"),
              ElementsAre("f.toml:2: b: syntax error: the file is not UTF-8 here"));
  EXPECT_THAT(keys(read_.table), ElementsAre("a@1=1", "c@3=2"));
}

TEST_F(TomlReaderTest, AKeyOfAHundredThousandPartsDoesNotOverflowTheStack) {
  std::string key = "a";
  for (int n = 0; n < 100'000; ++n) key += ".a";
  const std::string too_many = "a key with too many parts; allowed: at most 16 parts";
  EXPECT_THAT(read("x = 1\n" + key + " = 1\n"), ElementsAre("f.toml:2: " + too_many));
  EXPECT_THAT(read("[" + key + "]\n"), ElementsAre("f.toml:1: " + too_many));
  EXPECT_THAT(read("x = { " + key + " = 1 }\n"), ElementsAre("f.toml:1: " + too_many));
  // Behind a mistake that is taken out first.
  EXPECT_THAT(read("y = \"\"\"\nx = '''\n" + key + " = 1\n"),
              ElementsAre("f.toml:1: y: syntax error: the closing quotes of the text that begins "
                          "here are missing"));
  EXPECT_THAT(read("y = \"\nx = '\n" + key + " = 1\n"), testing::Contains("f.toml:3: " + too_many));
  // Dots in texts, comments and lists are no parts of a key.
  std::string many;
  for (int n = 0; n < 100; ++n) many += "1.5, 'a.b.c', \"d.e\", # f.g.h\n";
  EXPECT_THAT(read("x = [" + many + "]\ny = '" + key + "'\n"), ElementsAre());
}

TEST_F(TomlReaderTest, DeepNestingIsAProblemNotACrash) {
  const std::string deep = std::string(40, '[') + std::string(40, ']');
  EXPECT_THAT(
      read("x = " + deep + "\n"),
      ElementsAre("f.toml:1: x: tables and lists are nested too deeply; allowed: 32 levels"));
  const std::string deeper = std::string(500'000, '[');
  EXPECT_FALSE(read("x = " + deeper + "\n").empty());
}

TEST_F(TomlReaderTest, AFileFullOfMistakesEndsSoon) {
  std::string text;
  for (int n = 0; n < 20'000; ++n) text += "key" + std::to_string(n) + " = oops\n";
  const auto problems = read(text);
  ASSERT_EQ(problems.size(), 65U);
  EXPECT_EQ(problems.back(), "f.toml:65: too many mistakes; the rest of this file was not read");
}

}  // namespace
}  // namespace scriptorium
