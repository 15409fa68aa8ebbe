#include "core/api/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/api/kit/secret_file.h"
#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

enum class Codec { kNone, kZstd };

struct Sample {
  bool flag = true;
  std::int64_t number = 7;
  double ratio = 0.5;
  std::string text = "a \"b\"";
  std::vector<std::string> list = {"x", "y"};
  std::optional<std::int64_t> maybe;
  std::int64_t bounded = 3;
  Codec codec = Codec::kZstd;
  std::string brokers;
};

const Schema<Sample>& schema() {
  static const Schema<Sample> made{
      option("flag", &Sample::flag, "a flag"),
      option("number", &Sample::number, "a number"),
      option("ratio", &Sample::ratio, "a ratio"),
      option("text", &Sample::text, "a text"),
      option("list", &Sample::list, "a list"),
      option("maybe", &Sample::maybe, "perhaps a number"),
      integer("bounded", &Sample::bounded, 1, 10, "a bounded number"),
      choice("codec", &Sample::codec, {{"none", Codec::kNone}, {"zstd", Codec::kZstd}}, "a codec"),
      required("brokers", &Sample::brokers, "host:port list"),
  };
  return made;
}

class SchemaTest : public testing::Test {
 protected:
  SchemaTest() {
    table_.position = {"plugins.d/kafka.toml", 5};
    table_.path = "sink.kafka";
    set("brokers", std::string("k1:9092"));
  }

  template <typename V>
  void set(const std::string& key, V value) {
    ++line_;
    for (TableEntry& entry : table_.entries) {
      if (entry.key == key) {
        entry.value = Value{std::move(value), {"plugins.d/kafka.toml", line_}};
        return;
      }
    }
    table_.entries.push_back({key, Value{std::move(value), {"plugins.d/kafka.toml", line_}}});
  }
  Value item(std::string text) const {
    return Value{std::move(text), {"plugins.d/kafka.toml", 40}};
  }
  Value item(std::int64_t number) const { return Value{number, {"plugins.d/kafka.toml", 41}}; }

  std::vector<std::string> problems() {
    Problems problems;
    parsed_ = schema().parse(table_, problems);
    std::vector<std::string> texts;
    for (const Problem& problem : problems.list()) texts.push_back(problem.text());
    return texts;
  }

  Table table_;
  Sample parsed_;
  std::uint32_t line_ = 5;
};

TEST_F(SchemaTest, KeysThatAreAbsentKeepTheStructsDefaults) {
  EXPECT_THAT(problems(), ElementsAre());
  EXPECT_EQ(parsed_.number, 7);
  EXPECT_EQ(parsed_.codec, Codec::kZstd);
  EXPECT_EQ(parsed_.maybe, std::nullopt);
  EXPECT_EQ(parsed_.brokers, "k1:9092");
}

TEST_F(SchemaTest, EveryTypeIsReadFromItsTomlType) {
  set("flag", false);
  set("number", std::int64_t{-1});
  set("ratio", std::int64_t{2});  // 2 for 2.0 is what people write
  set("text", std::string("t"));
  set("list", std::vector<Value>{item("p"), item("q")});
  set("maybe", std::int64_t{9});
  set("bounded", std::int64_t{10});
  set("codec", std::string("none"));
  EXPECT_THAT(problems(), ElementsAre());
  EXPECT_FALSE(parsed_.flag);
  EXPECT_EQ(parsed_.number, -1);
  EXPECT_EQ(parsed_.ratio, 2.0);
  EXPECT_EQ(parsed_.text, "t");
  EXPECT_THAT(parsed_.list, ElementsAre("p", "q"));
  EXPECT_EQ(parsed_.maybe, 9);
  EXPECT_EQ(parsed_.bounded, 10);
  EXPECT_EQ(parsed_.codec, Codec::kNone);
}

TEST_F(SchemaTest, EachWrongValueIsAProblemOfItsOwnAtItsLine) {
  set("flag", std::string("yes"));
  set("number", 1.5);
  set("ratio", std::string("1"));
  set("text", std::int64_t{1});
  set("list", std::string("x"));
  set("maybe", true);
  set("bounded", std::int64_t{11});
  set("codec", std::string("zstdd"));
  EXPECT_THAT(
      problems(),
      ElementsAre(
          "plugins.d/kafka.toml:7: sink.kafka.flag: wrong type; allowed: true or false; given: "
          "\"yes\"",
          "plugins.d/kafka.toml:8: sink.kafka.number: wrong type; allowed: integer; given: 1.5",
          "plugins.d/kafka.toml:9: sink.kafka.ratio: wrong type; allowed: number; given: \"1\"",
          "plugins.d/kafka.toml:10: sink.kafka.text: wrong type; allowed: string; given: 1",
          "plugins.d/kafka.toml:11: sink.kafka.list: wrong type; allowed: list of strings; given: "
          "\"x\"",
          "plugins.d/kafka.toml:12: sink.kafka.maybe: wrong type; allowed: integer; given: true",
          "plugins.d/kafka.toml:13: sink.kafka.bounded: out of range; allowed: 1 .. 10; given: 11",
          "plugins.d/kafka.toml:14: sink.kafka.codec: unknown value; did you mean \"zstd\"?; "
          "allowed: \"none\", \"zstd\"; "
          "given: \"zstdd\""));
}

TEST_F(SchemaTest, AWrongTypeOfABoundedOptionNamesTypeAndBounds) {
  set("bounded", std::string("4"));
  set("codec", std::int64_t{1});
  EXPECT_THAT(problems(), ElementsAre("plugins.d/kafka.toml:7: sink.kafka.bounded: wrong type; "
                                      "allowed: integer, 1 .. 10; given: \"4\"",
                                      "plugins.d/kafka.toml:8: sink.kafka.codec: wrong type; "
                                      "allowed: \"none\", \"zstd\"; given: 1"));
}

// ---- numbers with a unit

struct Amounts {
  std::int64_t wait_seconds = 1;
  std::int64_t pause_ms = 1;
  std::int64_t keep_days = 1;
  std::int64_t room_bytes = 1;
  std::optional<std::int64_t> first_hours;
  std::int64_t workers = 1;
};
const Schema<Amounts>& amounts() {
  static const Schema<Amounts> made{
      integer("wait_seconds", &Amounts::wait_seconds, 1, 86'400, "a wait"),
      integer("pause_ms", &Amounts::pause_ms, 1, 86'400'000, "a pause"),
      integer("keep_days", &Amounts::keep_days, 0, 1000, "how long"),
      integer("room_bytes", &Amounts::room_bytes, 1, std::int64_t{1} << 44, "room"),
      option("first_hours", &Amounts::first_hours, "hours"),
      integer("workers", &Amounts::workers, 1, 64, "workers")};
  return made;
}
Amounts parse_amount(const std::string& key, const std::string& text, Problems& problems) {
  Table table{.position = {"f.toml", 1}, .path = "sink.x"};
  table.entries.push_back({key, {text, {"f.toml", 2}}});
  return amounts().parse(table, problems);
}

TEST(AmountTest, DurationsAreReadAsPeopleWriteThem) {
  Problems problems;
  EXPECT_EQ(parse_amount("wait_seconds", "90s", problems).wait_seconds, 90);
  EXPECT_EQ(parse_amount("wait_seconds", "5m", problems).wait_seconds, 300);
  EXPECT_EQ(parse_amount("wait_seconds", "5 min", problems).wait_seconds, 300);
  EXPECT_EQ(parse_amount("wait_seconds", "1h30m", problems).wait_seconds, 5400);
  EXPECT_EQ(parse_amount("wait_seconds", "1h 30m", problems).wait_seconds, 5400);
  EXPECT_EQ(parse_amount("wait_seconds", "0.5h", problems).wait_seconds, 1800);
  EXPECT_EQ(parse_amount("wait_seconds", "2000ms", problems).wait_seconds, 2);
  EXPECT_EQ(parse_amount("pause_ms", "2h", problems).pause_ms, 7'200'000);
  EXPECT_EQ(parse_amount("keep_days", "2w", problems).keep_days, 14);
  EXPECT_EQ(parse_amount("first_hours", "1d", problems).first_hours, 24);
  EXPECT_TRUE(problems.empty()) << problems.list().front().text();
}

TEST(AmountTest, SizesAreReadAsPeopleWriteThem) {
  Problems problems;
  for (const auto& [text, bytes] :
       std::vector<std::pair<std::string, std::int64_t>>{{"17B", 17},
                                                         {"1GiB", std::int64_t{1} << 30},
                                                         {"1.5 GiB", std::int64_t{3} << 29},
                                                         {"64M", std::int64_t{64} << 20},
                                                         {"1GB", 1'000'000'000},
                                                         {"512kB", 512'000},
                                                         {"2TiB", std::int64_t{2} << 40}}) {
    EXPECT_EQ(parse_amount("room_bytes", text, problems).room_bytes, bytes) << text;
  }
  EXPECT_TRUE(problems.empty()) << problems.list().front().text();
}

TEST(AmountTest, WhatIsNoneIsRefusedWithWhatIsAllowed) {
  const auto problem = [](const std::string& key, const std::string& text) {
    Problems problems;
    parse_amount(key, text, problems);
    return problems.list().size() == 1 ? problems.list().front().text()
                                       : std::to_string(problems.list().size()) + " problems";
  };
  EXPECT_EQ(problem("wait_seconds", "5 parsecs"),
            "f.toml:2: sink.x.wait_seconds: not a duration such as \"500ms\", \"90s\", \"5m\", "
            "\"2h\" or \"1h30m\"; allowed: 1 .. "
            "86400; given: \"5 parsecs\"");
  EXPECT_THAT(problem("room_bytes", "5m"),
              HasSubstr("not a size such as \"512KiB\", \"64MiB\" or \"1GiB\""));
  for (const char* text :
       {"", "5", "m", "-5m", "1..5h", "5m5", ".5h", "1.h", "99999999999999999999s"})
    EXPECT_THAT(problem("wait_seconds", text), HasSubstr("not a duration")) << text;
  EXPECT_THAT(problem("wait_seconds", "500ms"), HasSubstr("not a whole number of seconds"));
  EXPECT_THAT(problem("wait_seconds", "2d"), HasSubstr("out of range; allowed: 1 .. 86400"));
  EXPECT_THAT(problem("workers", "5m"), HasSubstr("wrong type; allowed: integer, 1 .. 64"))
      << "a count has no unit";
}

TEST(AmountTest, TheReferenceSaysWhatMayStandThere) {
  EXPECT_EQ(amounts().options()[0].type, "integer or a duration such as \"5m\"");
  EXPECT_EQ(amounts().options()[3].type, "integer or a size such as \"64MiB\"");
  EXPECT_EQ(amounts().options()[4].type, "integer or a duration such as \"5m\"");
  EXPECT_EQ(amounts().options()[5].type, "integer");
}

TEST_F(SchemaTest, AWrongItemOfAListIsNamedWithItsOwnLine) {
  set("list", std::vector<Value>{item("p"), item(5)});
  EXPECT_THAT(problems(), ElementsAre("plugins.d/kafka.toml:41: sink.kafka.list: item 2 of the "
                                      "list is of the wrong type; allowed: string; given: 5"));
}

TEST_F(SchemaTest, ARequiredKeyThatIsMissingIsSaidAtItsTable) {
  table_.entries.clear();
  EXPECT_THAT(problems(), ElementsAre("plugins.d/kafka.toml:5: sink.kafka.brokers: required key is "
                                      "missing (host:port list); allowed: string"));
}

TEST_F(SchemaTest, NothingIsMissingFromADamagedTable) {
  table_.entries.clear();
  table_.damaged = true;
  EXPECT_THAT(problems(), ElementsAre());
}

TEST_F(SchemaTest, OptionsTellNameTypeDefaultAndBounds) {
  std::vector<std::string> seen;
  for (const OptionInfo& o : schema().options()) {
    seen.push_back(o.name + "|" + o.type + "|" + o.default_value + "|" + o.allowed + "|" +
                   (o.required ? "required" : ""));
    EXPECT_FALSE(o.help.empty()) << o.name;
  }
  EXPECT_THAT(seen,
              ElementsAre("flag|true or false|true||", "number|integer|7||", "ratio|number|0.5||",
                          "text|string|\"a \\\"b\\\"\"||", "list|list of strings|[\"x\", \"y\"]||",
                          "maybe|integer|||", "bounded|integer|3|1 .. 10|",
                          "codec|\"none\" | \"zstd\"|\"zstd\"|\"none\", \"zstd\"|",
                          "brokers|string|||required"));
}

TEST(ProblemTest, TextLeavesOutWhatIsNotKnown) {
  EXPECT_EQ((Problem{.position = {"f.toml", 3}, .key = "a", .problem = "bad"}.text()),
            "f.toml:3: a: bad");
  EXPECT_EQ((Problem{.position = {"f.toml", 0}, .problem = "is empty"}.text()), "f.toml: is empty");
  EXPECT_EQ(
      (Problem{.key = "a", .problem = "bad", .allowed = "x", .given = "y", .did_you_mean = "z"}
           .text()),
      "a: bad; did you mean \"z\"?; allowed: x; given: y");
}

TEST(ProblemsTest, AddPointsAtTheKeyOrElseAtItsTable) {
  Table table{.entries = {{"root", Value{std::string("x"), {"f.toml", 7}}}},
              .position = {"f.toml", 4},
              .path = "sink.a"};
  Problems problems;
  problems.add(table, "root", "is no folder", "an absolute path");
  problems.add(table, "layout", "needs {ext}");
  ASSERT_EQ(problems.list().size(), 2U);
  EXPECT_EQ(problems.list()[0].text(),
            "f.toml:7: sink.a.root: is no folder; allowed: an absolute path; given: \"x\"");
  EXPECT_EQ(problems.list()[1].text(), "f.toml:4: sink.a.layout: needs {ext}");
}

TEST(ProblemsTest, SortGoesByFileInOrderOfMentionThenByLine) {
  Problems problems;
  problems.add({.position = {"z", 0}, .problem = "whole"});
  problems.add({.position = {"z", 9}, .problem = "nine"});
  problems.add({.position = {"a", 1}, .problem = "other"});
  problems.add({.position = {"z", 2}, .problem = "two"});
  problems.add({.position = {"z", 9}, .problem = "nine again"});
  problems.sort();
  std::vector<std::string> order;
  for (const Problem& problem : problems.list()) order.push_back(problem.problem);
  EXPECT_THAT(order, ElementsAre("two", "nine", "nine again", "whole", "other"));
}

TEST(ProblemsTest, ASecretInTheConfigIsNeverRepeated) {
  Table table{
      .entries = {{"password", Value{std::string("hunter2"), {"f.toml", 7}}},
                  {"tls", Value{Table{.entries = {{"API_Token", Value{std::string("hunter2"), {}}},
                                                  {"ca", Value{std::int64_t{1}, {}}}}},
                                {"f.toml", 8}}},
                  {"password_file", Value{std::string("/etc/pw"), {"f.toml", 9}}}},
      .path = "sink.a"};
  Problems problems;
  problems.add(table, "password", "unknown key");
  problems.add(table, "tls", "wrong type");
  problems.add(table, "password_file", "is not there");
  options_detail::wrong_type(table.entries[0].value, table,
                             {.name = "plain", .type = "integer", .secret = true}, problems);
  for (const Problem& problem : problems.list())
    EXPECT_THAT(problem.text(), testing::Not(HasSubstr("hunter2")));
  EXPECT_EQ(problems.list()[0].given, "***");
  EXPECT_EQ(problems.list()[1].given, "{ API_Token = ***, ca = 1 }");
  EXPECT_EQ(problems.list()[2].given, "\"/etc/pw\"");
  EXPECT_EQ(problems.list()[3].given, "***");
}

TEST(ValueTest, TextIsTomlOnOneLine) {
  const auto text = [](auto value) { return Value{std::move(value), {}}.text(); };
  EXPECT_EQ(text(true), "true");
  EXPECT_EQ(text(std::int64_t{-5}), "-5");
  EXPECT_EQ(text(1e300), "1e+300");
  EXPECT_EQ(text(2.0), "2.0");
  EXPECT_EQ(text(std::string("a\"\\\n\t\x01\x7f")), R"("a\"\\\n\t\u0001\u007F")");
  EXPECT_EQ(text(std::string("\xc2\x9b m\xc3\xbc")), "\"\\u009B m\xc3\xbc\"");
  EXPECT_EQ(text(std::vector<Value>{Value{std::string("a"), {}}, Value{std::int64_t{1}, {}}}),
            "[\"a\", 1]");
  EXPECT_EQ(text(Table{}), "{}");
  EXPECT_EQ(text(Table{.entries = {{"a b", Value{false, {}}}}}), "{ \"a b\" = false }");
}

TEST(ValueTest, ALongTextIsCutBetweenCharacters) {
  for (std::size_t length = 70; length < 100; ++length) {
    std::string umlauts;
    for (std::size_t i = 0; i < length; ++i) umlauts += "\xc3\xbc";
    const std::string text = Value{umlauts, {}}.text();
    EXPECT_LE(text.size(), 80U);
    EXPECT_EQ(text.size() % 2, 0U) << "half a character: " << text;  // quote, pairs, three dots
    EXPECT_THAT(text, testing::EndsWith("\xc3\xbc..."));
  }
  std::vector<Value> many(1'000'000, Value{std::int64_t{1}, {}});
  EXPECT_LE((Value{std::move(many), {}}.text().size()), 80U);
}

TEST(DefaultTextTest, IsTomlForEveryType) {
  using options_detail::default_text;
  EXPECT_EQ(default_text(5.0), "5.0");
  EXPECT_EQ(default_text(0.1), "0.1");
  EXPECT_EQ(default_text(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(default_text(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(default_text(std::vector<std::string>{}), "[]");
  EXPECT_EQ(default_text(std::optional<std::string>{}), "");
  EXPECT_EQ(default_text(std::optional<std::string>{"a"}), "\"a\"");
}

TEST(JoinKeyTest, QuotesWhatTomlWouldQuote) {
  using options_detail::join_key;
  EXPECT_EQ(join_key("", "a-b_1"), "a-b_1");
  EXPECT_EQ(join_key("sink.x", "a b"), "sink.x.\"a b\"");
  EXPECT_EQ(join_key("sink.x", ""), "sink.x.\"\"");
  EXPECT_EQ(join_key("", "a\nb"), "\"a\\nb\"");
  EXPECT_LE(join_key("", std::string(1'000'000, 'x')).size(), 100U);
}

class ReadSecretTest : public testing::Test {
 protected:
  std::string file(const std::string& bytes, mode_t mode = 0600) {
    ::unlink(folder_.path_to("secret").c_str());  // the last one may have been read-only
    const std::string path = folder_.write("secret", bytes);
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  static std::string refusal(const std::string& path) {
    const auto secret = read_secret(path);
    if (secret) return "(accepted)";
    EXPECT_EQ(secret.error().kind(), ErrorKind::kInvalidConfig);
    return secret.error().message();
  }
  void TearDown() override { ::unsetenv("CREDENTIALS_DIRECTORY"); }

  test::TempDir folder_;
};

TEST_F(ReadSecretTest, GivesTheContentsWithoutTheFinalNewline) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"s3cret\n", "s3cret"},
      {"s3cret", "s3cret"},
      {"s3cret\r\n", "s3cret"},
      {" a b \n\n", " a b \n"},
      {"-----BEGIN\nx\n", "-----BEGIN\nx"}};
  for (const auto& [bytes, expected] : cases) {
    const auto secret = read_secret(file(bytes));
    ASSERT_TRUE(secret) << secret.error().message();
    EXPECT_EQ(secret->reveal(), expected);
  }
}

TEST_F(ReadSecretTest, NeverPrintsItself) { EXPECT_STREQ(Secret("x").text(), "***"); }

TEST_F(ReadSecretTest, OwnersAndGroupsMayReadIt) {
  for (const mode_t mode : {0400, 0600, 0440, 0640})
    EXPECT_TRUE(read_secret(file("x\n", mode))) << mode;
}

TEST_F(ReadSecretTest, RefusesAFileThatOthersMayReadOrWriteWithTheRemedy) {
  EXPECT_EQ(refusal(file("x\n", 0644)),
            "secret file " + folder_.path_to("secret") +
                ": every user of this machine may read it (mode 0644); run: chmod 600 " +
                folder_.path_to("secret"));
  EXPECT_THAT(refusal(file("x\n", 0602)), HasSubstr("may write it (mode 0602); run: chmod 600 "));
  EXPECT_THAT(refusal(file("x\n", 0604)), HasSubstr("may read it (mode 0604)"));
}

TEST_F(ReadSecretTest, RefusesEmptyLargeAndOddFiles) {
  EXPECT_THAT(refusal(file("")), HasSubstr("is empty"));
  EXPECT_THAT(refusal(file("\n")), HasSubstr("is empty"));
  EXPECT_THAT(refusal(file(std::string("a\0b", 3))), HasSubstr("NUL byte"));
  EXPECT_EQ(refusal(file(std::string(65536, 'x'))), "(accepted)");
  EXPECT_THAT(refusal(file(std::string(65537, 'x'))), HasSubstr("larger than 64 KiB"));
  EXPECT_THAT(refusal(folder_.path()), HasSubstr("is not a regular file"));
  EXPECT_THAT(refusal(folder_.path_to("none")),
              HasSubstr("cannot be opened: no such file or directory"));
  const std::string fifo = folder_.path_to("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(refusal(fifo), HasSubstr("is not a regular file"));
}

TEST_F(ReadSecretTest, RefusesAPathThatDependsOnTheWorkingFolder) {
  EXPECT_THAT(refusal("etc/secret"), HasSubstr("must be an absolute path"));
  EXPECT_THAT(refusal(""), HasSubstr("no name is given"));
  EXPECT_THAT(refusal(std::string("/etc/passwd\0x", 13)), HasSubstr("NUL byte"));
}

TEST_F(ReadSecretTest, TakesANameWithoutSlashFromTheCredentialsOfTheService) {
  EXPECT_THAT(refusal("kafka"), HasSubstr("$CREDENTIALS_DIRECTORY is not set"));
  file("from systemd\n", 0400);
  ASSERT_EQ(::setenv("CREDENTIALS_DIRECTORY", folder_.path().c_str(), 1), 0);
  const auto secret = read_secret("secret");
  ASSERT_TRUE(secret) << secret.error().message();
  EXPECT_EQ(secret->reveal(), "from systemd");
  EXPECT_THAT(refusal("other"), HasSubstr("secret file other: cannot be opened: no such file"));
  EXPECT_THAT(refusal(".."), HasSubstr("is not a regular file"));
}

}  // namespace
}  // namespace scriptorium
