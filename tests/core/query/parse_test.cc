#include "core/query/parse.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/query/query_shape.h"

namespace scriptorium::query {
namespace {

constexpr Timestamp kNow{1'795'275'000 * kSecond};  // 2026-11-21 15:30:00 UTC

std::string parsed(std::string_view text) {
  const Parsed result = parse(text, kNow);
  if (!result.error) return shape(result.query);
  return std::to_string(result.error->position) + "+" + std::to_string(result.error->length) +
         ": " + result.error->problem + "; " + result.error->hint;
}

struct Case {
  std::string typed;
  std::string tree;
};
void expect_trees(const std::vector<Case>& cases) {
  for (const Case& one : cases) EXPECT_EQ(parsed(one.typed), one.tree) << one.typed;
}
// Only the beginning: position, length, problem.
void expect_errors(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    const std::string found = parsed(one.typed);
    EXPECT_TRUE(found.starts_with(one.tree)) << one.typed << "\n  " << found << "\n  " << one.tree;
  }
}

TEST(QueryParseTest, ReadsWordsPhrasesAndPrefixes) {
  expect_trees({
      {"", "all"},
      {"  \t\n", "all"},
      {"*", "all"},
      {"gromacs", "(text 'gromacs')"},
      {"gromacs gpu", "(and (text 'gromacs') (text 'gpu'))"},
      {" gromacs\n\tgpu ", "(and (text 'gromacs') (text 'gpu'))"},
      {"\"mpirun -np 16\"", "(text 'mpirun -np 16')"},
      {"\"mpirun \t -np\"", "(text 'mpirun -np')"},
      {"\"a \\\"b\\\" c:\\\\x \\n\"", "(text 'a \"b\" c:\\x \\n')"},
      {"\"a\"\"b\"c", "(and (text 'a') (text 'b') (text 'c'))"},
      {"\"a* OR (b\"", "(text 'a* OR (b')"},
      {"run_0*", "(text 'run_0' prefix)"},
      {"run_0**", "(text 'run_0' prefix)"},
      {"\"module load GRO\"*", "(text 'module load GRO' prefix)"},
      {"GROMACS/*", "(text 'GROMACS/')"},
      {"caf\xC3\xA9*", "(text 'caf\xC3\xA9' prefix)"},
      {"\xFF\xFE", "(text '\xFF\xFE')"},
  });
}

TEST(QueryParseTest, TakesWhatStandsInScriptsAsText) {
  for (const std::string text : {"GROMACS/2023.1",
                                 "$SCRATCH/run_01",
                                 "--mem=16G",
                                 "--gres=gpu:1",
                                 "gres=gpu:a100:2",
                                 "#SBATCH",
                                 "#!/bin/bash",
                                 "http://x.org/a?b=c",
                                 "https://x",
                                 "std::vector",
                                 "C:\\data",
                                 "c:/x",
                                 "/scratch/user/x.py",
                                 "/scratch",
                                 "${TMPDIR}",
                                 "$(pwd)",
                                 "f()",
                                 "a(b)c",
                                 "1:2",
                                 "LD_LIBRARY_PATH:/x",
                                 "--nodes=2:ppn",
                                 "it's",
                                 "or",
                                 "and",
                                 "not",
                                 "ANDROID",
                                 "NOTE",
                                 "a-b",
                                 "x=>y",
                                 "2>&1",
                                 ":",
                                 "::",
                                 "file.txt:12",
                                 "--",
                                 "---",
                                 "%j.out",
                                 "!x",
                                 "+y",
                                 "don\"t",
                                 "echo>file"})
    EXPECT_EQ(parsed(text), "(text '" + text + "')");
  EXPECT_EQ(parsed("--comment=\"two words\" x"),
            "(and (text '--comment=\"two words\"') (text 'x'))");
}

TEST(QueryParseTest, BindsAndCloserThanOrAndNotCloserThanBoth) {
  expect_trees({
      {"a b OR c", "(or (and (text 'a') (text 'b')) (text 'c'))"},
      {"a AND b", "(and (text 'a') (text 'b'))"},
      {"a (b OR c)", "(and (text 'a') (or (text 'b') (text 'c')))"},
      {"a OR b OR c", "(or (text 'a') (text 'b') (text 'c'))"},
      {"a (b c)", "(and (text 'a') (text 'b') (text 'c'))"},
      {"((a))", "(text 'a')"},
      {"(a)(b)", "(and (text 'a') (text 'b'))"},
      {"-a", "(not (text 'a'))"},
      {"NOT a b", "(and (not (text 'a')) (text 'b'))"},
      {"a -\"b c\"", "(and (text 'a') (not (text 'b c')))"},
      {"-(a OR b)", "(not (or (text 'a') (text 'b')))"},
      {"NOT(a)", "(not (text 'a'))"},
      {"NOT -a", "(not (not (text 'a')))"},
      {"-user:bob", "(not (user 'bob'))"},
      {"-/x/", "(not (re 'x'))"},
      {"a AND NOT b", "(and (text 'a') (not (text 'b')))"},
      {"-*", "(not all)"},
      {"(a OR $(pwd))", "(or (text 'a') (text '$(pwd)'))"},
      {"\"OR\"", "(text 'OR')"},
  });
}

TEST(QueryParseTest, ReadsExpressionsAndTellsThemFromPaths) {
  expect_trees({
      {"/ntasks=\\d+/", "(re 'ntasks=\\d+')"},
      {"/mpirun +-np/i", "(re 'mpirun +-np' i)"},
      {"/a\\/b/", "(re 'a/b')"},
      {"/a\\\\/", "(re 'a\\\\')"},
      {"(/a/ OR /b/i)", "(or (re 'a') (re 'b' i))"},
      {"/home/alice /scratch/x", "(and (text '/home/alice') (text '/scratch/x'))"},
      {"/usr/include", "(text '/usr/include')"},
      {"/", "(text '/')"},
      {"//", "(text '//')"},
      {"/a/x", "(text '/a/x')"},
  });
}

TEST(QueryParseTest, ReadsFields) {
  expect_trees({
      {"user:alice", "(user 'alice')"},
      {"USER:alice", "(user 'alice')"},
      {"user: alice x", "(and (user 'alice') (text 'x'))"},
      {"module:GROMACS*", "(module 'GROMACS*')"},
      {"name:*_gpu", "(name '*_gpu')"},
      {"name:\"two words\"", "(name 'two words')"},
      {"account:(a OR b)", "(or (account 'a') (account 'b'))"},
      {"module:(a -b*)", "(and (module 'a') (not (module 'b*')))"},
      {"workdir:/home/alice/*", "(workdir '/home/alice/*')"},
      {"workdir:\"/home/a b\"", "(workdir '/home/a b')"},
      {"directive:--gres=gpu:1", "(directive '--gres=gpu:1')"},
      {"job:4711_3", "(job '4711_3')"},
      {"state:failed", "(state 'failed')"},
      {"finding:CPU_low", "(finding 'cpu_low')"},
      {"array:true array:4711", "(and (array 'true') (array '4711'))"},
      {"array:No", "(array 'false')"},
      {"array:1", "(array '1')"},
      {"complete:no verified:YES", "(and (complete 'false') (verified 'true'))"},
      {"family:42", "(family '42')"},
      {"script:BEEF12", "(script 'beef12')"},
      {"(user:a OR user:b)", "(or (user 'a') (user 'b'))"},
      {"user:*", "(user '*')"},
      {"name:-x", "(name '-x')"},
      {"name:f(x)", "(name 'f(x)')"},
  });
}

TEST(QueryParseTest, ReadsRangesInEachFieldsUnits) {
  expect_trees({
      {"mem:>64G", "(mem 68719476737 -)"},
      {"mem:>=1K", "(mem 1024 -)"},
      {"mem:<1K", "(mem - 1023)"},
      {"mem:<=1K", "(mem - 1024)"},
      {"mem:1K..2K", "(mem 1024 2048)"},
      {"mem:..2K", "(mem - 2048)"},
      {"mem:64", "(mem 64 64)"},
      {"mem:>\"1K\"", "(mem 1025 -)"},
      {"mem:> 1K x", "(and (mem 1025 -) (text 'x'))"},
      {"mem:*", "(mem - -)"},
      {"mem:>90%", "(mem 91% -)"},
      {"elapsed:1h..2h", "(elapsed 3600 7200)"},
      {"elapsed:>1-00:00:00", "(elapsed 86401 -)"},
      {"cpu:<30%", "(cpu - 29%)"},
      {"cpu:4", "(cpu 4 4)"},
      {"gpu:>=1", "(gpu 1 -)"},
      {"gpu:10%..20%", "(gpu 10% 20%)"},
      {"exit:0", "(exit 0 0)"},
      {"exit:=0", "(exit 0 0)"},
      {"exit:>0", "(exit 1 -)"},
      {"exit:signal:9", "(exit 'signal:9')"},
      {"exit:0:9", "(and (exit 0 0) (exit 'signal:9'))"},
      {"exit:3:0", "(exit 3 3)"},
      {"exit:(1 OR 2)", "(or (exit 1 1) (exit 2 2))"},
  });
}

TEST(QueryParseTest, ReadsTimes) {
  expect_trees({
      {"submitted:2026-11", "(submitted 2026-11-01T00:00:00Z 2026-11-30T23:59:59.999999999Z)"},
      {"submitted:2026-11..", "(submitted 2026-11-01T00:00:00Z -)"},
      {"time:2026-10..2026-11", "(submitted 2026-10-01T00:00:00Z 2026-11-30T23:59:59.999999999Z)"},
      {"time:>=2026-01", "(submitted 2026-01-01T00:00:00Z -)"},
      {"time:>2026-01", "(submitted 2026-02-01T00:00:00Z -)"},
      {"time:<2026-01", "(submitted - 2025-12-31T23:59:59.999999999Z)"},
      {"time:<=2026-01", "(submitted - 2026-01-31T23:59:59.999999999Z)"},
      {"submitted:\"2026-11-14 08:00\"",
       "(submitted 2026-11-14T08:00:00Z 2026-11-14T08:00:59.999999999Z)"},
      {"since:7d", "(submitted 2026-11-14T15:30:00Z -)"},
      {"after:2026-11", "(submitted 2026-11-01T00:00:00Z -)"},
      {"before:2026-11", "(submitted - 2026-10-31T23:59:59.999999999Z)"},
      {"until:2026-11", "(submitted - 2026-11-30T23:59:59.999999999Z)"},
      {"ended:yesterday", "(ended 2026-11-20T00:00:00Z 2026-11-20T23:59:59.999999999Z)"},
      {"ended:7d", "(ended 2026-11-14T15:30:00Z -)"},
      {"ended:7d..2d", "(ended 2026-11-14T15:30:00Z 2026-11-19T15:30:00Z)"},
      {"ended:..7d", "(ended - 2026-11-14T15:30:00Z)"},
      {"-ended:*", "(not (ended - -))"},
  });
}

TEST(QueryParseTest, ReadsTheEnvironment) {
  expect_trees({
      {"env.OMP_NUM_THREADS:8", "(var OMP_NUM_THREADS '8')"},
      {"ENV.Path:*apps*", "(var Path '*apps*')"},
      {"env.X:\"\"", "(var X '')"},
      {"env.X:\"a b\"", "(var X 'a b')"},
      {"env.X:(8 OR 16)", "(or (var X '8') (var X '16'))"},
      {"env.SLURM_*:x:y", "(var SLURM_* 'x:y')"},
      {"env:conda", "(text env 'conda')"},
      {"env:\"two words\"", "(text env 'two words')"},
      {"env:mini*", "(text env 'mini' prefix)"},
      {"env:/py.*3/i", "(re env 'py.*3' i)"},
      {"env:/usr/lib/x", "(text env '/usr/lib/x')"},
      {"env:(a OR b)", "(or (text env 'a') (text env 'b'))"},
      {"-env:a", "(not (text env 'a'))"},
      {"env:*", "(var * '*')"},
  });
}

TEST(QueryParseTest, SaysWhereAQueryIsWrongAndWhatIsAllowed) {
  expect_errors({
      {"gromacs usr:alice",
       "8+3: unknown field \"usr\"; did you mean \"user\"? quotes make it text: \"usr:alice\""},
      {"qwertz:123", "0+6: unknown field \"qwertz\"; quotes make it text: \"qwertz:123\""},
      {"memory:>64G", "0+6: unknown field \"memory\"; did you mean \"mem\"?"},
      {"user.name:ann", "0+9: unknown field \"user.name\"; did you mean \"user\"?"},
      {"environment.PATH:x",
       "0+16: unknown field \"environment.PATH\"; did you mean \"env.PATH\"?"},
      {"a (b c", "2+1: \"(\" without \")\""},
      {"a (", "2+1: \"(\" without \")\""},
      {"a b)", "3+1: \")\" without \"(\""},
      {"a ()", "2+2: nothing between the brackets"},
      {"a ( )", "2+3: nothing between the brackets"},
      {"a \"b c", "2+1: a quote without its end"},
      {"a \"\"", "2+2: nothing between the quotes"},
      {"a \" \"", "2+3: nothing between the quotes"},
      {"a OR", "2+2: OR needs something on both sides; quotes make it text: \"OR\""},
      {"OR a", "0+2: OR needs something on both sides"},
      {"a AND", "2+3: AND needs something on both sides"},
      {"AND a", "0+3: AND needs something on both sides"},
      {"a OR OR b", "5+2: OR needs something on both sides"},
      {"a AND OR b", "2+3: AND needs something on both sides"},
      {"(a OR )", "3+2: OR needs something on both sides"},
      {"a NOT", "2+3: NOT needs something behind it"},
      {"NOT OR a", "0+3: NOT needs something behind it"},
      {"a \xE2\x80\x9Cmpirun -np 16\xE2\x80\x9D", "2+3: a typographic quote; write \" before"},
      {"a - b", "2+1: a single - excludes what stands directly behind it"},
      {"a*b", "1+1: * may only be the end of a word; quotes make it text: \"a*b\""},
      {"*.dat", "0+1: * may only be the end of a word"},
      {"env:*.dat", "4+1: * may only be the end of a word"},
      {"x user:", "2+5: \"user\" needs a value behind the colon"},
      {"(user: )", "1+5: \"user\" needs a value behind the colon"},
      {"user:()", "5+2: nothing between the brackets"},
      {"user:\"\"", "5+2: user: an empty value; to find jobs without one: -user:*"},
      {"user:\"a", "5+1: a quote without its end"},
      {"user:>a", "5+2: user: this field has no order to compare by"},
      {"mem:lots", "4+4: mem: cannot read \"lots\"; allowed: a size such as 64G"},
      {"mem:1G..x", "4+5: mem: cannot read \"x\"; allowed: a size"},
      {"mem:2G..1G", "4+6: mem: \"2G..1G\" ends before it begins; write the smaller end first"},
      {"mem:..", "4+2: mem: cannot read \"..\""},
      {"mem:10%..2G", "4+7: mem: one end of \"10%..2G\" is percent"},
      {"mem:>", "4+1: mem: cannot read \"\""},
      {"mem>64G", "0+7: a comparison needs a colon; write mem:>64G"},
      {"elapsed:90", "8+2: elapsed: cannot read \"90\"; allowed: a duration such as 90s"},
      {"elapsed:>50%", "8+4: elapsed: cannot read \"50%\""},
      {"exit:x", "5+1: exit: cannot read \"x\"; allowed: an exit code"},
      {"exit:signal:KILL", "5+11: exit: cannot read \"signal:KILL\""},
      {"cpu:99999999999999999999", "4+20: cpu: cannot read"},
      {"since:2026-13", "6+7: since: cannot read \"2026-13\"; allowed: one time such as"},
      {"since:7d..", "6+4: since: cannot read \"7d..\""},
      {"ended:>7d", "6+3: ended: it is not clear on which side of an age \">\" is; write 7d.."},
      {"time:2026-11..2026-10",
       "5+16: time: \"2026-11..2026-10\" ends before it begins; write the "
       "earlier end first"},
      {"complete:maybe", "9+5: complete: cannot read \"maybe\"; allowed: true or false"},
      {"family:x", "7+1: family: cannot read \"x\""},
      {"script:gromacs", "7+7: script: cannot read \"gromacs\"; allowed: the sha256"},
      {"script:abc", "7+3: script: cannot read \"abc\""},
      {"x /(/", "2+3: the expression does not compile"},
      {"env:/[/", "4+3: the expression does not compile"},
      {"/a{101}/", "0+8: the expression repeats something more than 100 times"},
      {"/(?=a)/", "0+7: the expression does not compile"},
  });
  EXPECT_TRUE(parsed(std::string("ab\0c", 4)).starts_with("2+1: a NUL byte"));
}

TEST(QueryParseTest, KeepsItsLimitsForAnyInput) {
  EXPECT_TRUE(parsed(std::string(1 << 20, 'a')).starts_with("4096+1: the query has 1048576 bytes"));
  EXPECT_EQ(parsed(std::string(kMostQueryBytes, 'a')),
            "(text '" + std::string(kMostQueryBytes, 'a') + "')");
  const auto repeated = [](std::string_view part, std::size_t times) {
    std::string text;
    for (std::size_t i = 0; i < times; ++i) text += part;
    return text;
  };
  EXPECT_TRUE(parsed(repeated("a ", kMostQueryTerms)).starts_with("(and"));
  EXPECT_EQ(parsed(repeated("a ", kMostQueryTerms + 1)),
            "128+1: too many words and fields; at most 64 are allowed");
  EXPECT_TRUE(parsed(repeated("(", 31) + "a" + repeated(")", 31)).starts_with("(text"));
  EXPECT_TRUE(parsed(repeated("(", 40)).starts_with("32+1: too deeply nested"));
  EXPECT_TRUE(parsed(repeated("(", 4096)).starts_with("32+1: too deeply nested"));
  EXPECT_TRUE(parsed(repeated("NOT ", 1000)).starts_with("128+1: too deeply nested"));
  EXPECT_EQ(parsed(repeated("user:(", 600)).substr(0, 16), "5+1: \"(\" without");
  EXPECT_TRUE(parsed(repeated("(a OR b (", 30)).find("too") != std::string::npos);
  // Deeper than allowed by AND and OR in turn, though each bracket is within the limit.
  EXPECT_EQ(parsed(repeated("(a OR b ", 20) + "c" + repeated(")", 20)),
            "0+1: too deeply nested; at most 32 levels are allowed");
}

TEST(QueryParseTest, RemembersWhereEachTermBegins) {
  const Parsed result = parse("aa (user:b OR -\"c d\") mem:>1", kNow);
  ASSERT_FALSE(result.error);
  ASSERT_EQ(result.query.children.size(), 3u);
  EXPECT_EQ(result.query.children[0].position, 0u);
  EXPECT_EQ(result.query.children[1].children[0].position, 4u);
  EXPECT_EQ(result.query.children[1].children[1].position, 14u);
  EXPECT_EQ(result.query.children[1].children[1].children[0].position, 15u);
  EXPECT_EQ(result.query.children[2].position, 22u);
}

TEST(QueryParseTest, TakesEveryExampleOfItsPage) {
  std::ifstream page(SCRIPTORIUM_SOURCE_DIR "/docs/search.md");
  bool inside = false;
  int examples = 0;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("```")) {
      inside = line == "```query";
    } else if (inside) {
      const Parsed result = parse(line, kNow);
      EXPECT_FALSE(result.error) << line << "\n" << parsed(line);
      ++examples;
    }
  }
  EXPECT_GE(examples, 10);
}

// The first column of each of the page's tables of what to type.
TEST(QueryParseTest, TakesWhatThePageSaysToType) {
  std::ifstream page(SCRIPTORIUM_SOURCE_DIR "/docs/search.md");
  bool typed = false;
  bool times = false;
  int seen = 0;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) times = line == "## Times";
    if (!line.starts_with("| ")) {
      typed = false;
      continue;
    }
    if (line.starts_with("| you type")) typed = true;
    const std::string cell = line.substr(0, line.find(" | ", 2));
    for (std::size_t at = 0; typed && (at = cell.find('`', at)) != std::string::npos; ++at) {
      const std::size_t end = cell.find('`', at + 1);
      std::string query = cell.substr(at + 1, end - at - 1);
      if (query == "time:") query += "2026";
      const bool is_time = query.starts_with("2026") || query.find(':') == std::string::npos;
      if (times && is_time) query = "since:" + query;
      EXPECT_FALSE(parse(query, kNow).error) << query << "\n" << parsed(query);
      ++seen;
      at = end;
    }
  }
  EXPECT_GE(seen, 50);
}

TEST(QueryErrorTextTest, MarksTheWrongBytesBelowTheQuery) {
  const std::string text = "gromacs usr:alice";
  const Parsed result = parse(text, kNow);
  ASSERT_TRUE(result.error);
  EXPECT_EQ(error_text(text, *result.error, "search"),
            "search:1:9: unknown field \"usr\"; did you mean \"user\"? quotes make it text: "
            "\"usr:alice\"\n"
            "  gromacs usr:alice\n"
            "          ^~~\n");
}

TEST(QueryErrorTextTest, PlacesTheMarkBelowCharactersThatATerminalShows) {
  const std::string text = "caf\xC3\xA9 \x1b[0m usr:a";
  const Parsed result = parse(text, kNow);
  ASSERT_TRUE(result.error);
  const std::string shown = error_text(text, *result.error, "search");
  EXPECT_NE(shown.find("  caf\xC3\xA9 \\x1b[0m usr:a\n"
                       "               ^~~\n"),
            std::string::npos)
      << shown;
}

TEST(QueryErrorTextTest, CutsAQueryThatIsFarTooLong) {
  const std::string text = std::string(1 << 20, 'a');
  const Parsed result = parse(text, kNow);
  ASSERT_TRUE(result.error);
  EXPECT_LT(error_text(text, *result.error, "search").size(), 1000u);
}

TEST(QueryErrorTextTest, PointsBehindAQueryThatEndsTooEarly) {
  const ParseError error{.position = 3, .length = 5, .problem = "p", .hint = ""};
  EXPECT_EQ(error_text("abc", error, "search"), "search:1:4: p\n  abc\n     ^\n");
}

}  // namespace
}  // namespace scriptorium::query
