#include "core/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> texts(const Problems& problems) {
  std::vector<std::string> result;
  for (const Problem& problem : problems.list()) result.push_back(problem.text());
  return result;
}

constexpr const char* kNoSource =
    "f.toml: source: no source is configured, so nothing would be captured; write a table "
    "[source.NAME] with the options of a "
    "plugin, here or in a file "
    "of plugins.d beside this one (\"scriptorium plugins\" lists the plugins)";
constexpr const char* kNoSink =
    "f.toml: sink: no sink is configured, so nothing would be delivered; write a table [sink.NAME] "
    "with the options of a plugin, "
    "here or in a file of "
    "plugins.d beside this one (\"scriptorium plugins\" lists the plugins)";
constexpr const char* kNoCluster =
    "f.toml:1: cluster: required key is missing (name of the cluster, which every event carries); "
    "allowed: string, a letter or "
    "digit, then letters, "
    "digits, '.', '_' and '-', at most 64";

class ParseConfigTest : public testing::Test {
 protected:
  std::vector<std::string> problems_of(std::string_view text) {
    Problems problems;
    config_ = parse_config(text, "f.toml", problems);
    return texts(problems);
  }
  // With all that must be there around it; the text begins on line 1.
  std::vector<std::string> problems_in_top(const std::string& text) {
    return problems_of(text + "\ncluster = \"lab\"\n[source.s]\n[sink.k]\n");
  }
  std::vector<std::string> problems_in_source(const std::string& text) {
    return problems_of("cluster = \"lab\"\n[sink.k]\n[source.s]\n" + text);
  }
  std::vector<std::string> problems_in_sink(const std::string& text) {
    return problems_of("cluster = \"lab\"\n[source.s]\n[sink.k]\n" + text);
  }

  Config config_;
};

TEST_F(ParseConfigTest, ASmallConfigHasTheDefaultsOfTheStructs) {
  EXPECT_THAT(problems_of("cluster = \"lab\"\n[source.slurm]\nspool = "
                          "\"/s\"\n[sink.archive]\nplugin = \"file\"\nroot = \"/a\"\n"),
              IsEmpty());
  EXPECT_EQ(config_.core.cluster, "lab");
  EXPECT_EQ(config_.core.state_dir, "/var/lib/scriptorium");
  EXPECT_EQ(config_.core.journal_max_bytes, 1 << 30);
  EXPECT_THAT(config_.files, ElementsAre("f.toml"));
  ASSERT_EQ(config_.sources.size(), 1U);
  EXPECT_EQ(config_.sources[0].name, "slurm");
  EXPECT_EQ(config_.sources[0].common.plugin, "slurm") << "absent: the instance's name";
  EXPECT_EQ(config_.sources[0].common.capture, "auto");
  EXPECT_EQ(config_.sources[0].common.rescan_seconds, std::nullopt);
  EXPECT_EQ(config_.sources[0].common.environment.mode, EnvironmentRule::Mode::kAll);
  EXPECT_EQ(config_.sources[0].table.path, "source.slurm");
  EXPECT_EQ(config_.sources[0].table.position.line, 2U);
  ASSERT_NE(config_.sources[0].table.find("spool"), nullptr);
  ASSERT_EQ(config_.sinks.size(), 1U);
  EXPECT_EQ(config_.sinks[0].name, "archive");
  EXPECT_EQ(config_.sinks[0].common.plugin, "file");
  EXPECT_THAT(config_.sinks[0].common.kinds, ElementsAre("job.script"));
  EXPECT_THAT(config_.sinks[0].common.parts, ElementsAre("script", "environment", "records"));
  EXPECT_EQ(config_.sinks[0].common.batch_max_events, 500);
}

TEST_F(ParseConfigTest, EveryCoreOptionIsRead) {
  EXPECT_THAT(problems_of(R"(cluster = "Lab-1.x_y"
state_dir = "/srv/state"
host = "ctl1.example.org"
plugin_dirs = ["/opt/a", "/opt/b"]
journal_max_bytes = 2_000_000
shutdown_seconds = 5
log_level = "debug"
[source.s]
plugin = "replay"
capture = "scan"
rescan_seconds = 1
incomplete_after_seconds = 3
resolve_timeout_seconds = 4
max_file_bytes = 4096
environment = { keep = ["SLURM_*", "PATH"], drop = ["*TOKEN*"] }
[sink.k]
plugin = "null"
kinds = ["job.script", "usage.*"]
parts = ["environment", "script"]
batch_max_events = 2
batch_max_bytes = 3
batch_max_ms = 4
retry_max_ms = 5
workers = 6
)"),
              IsEmpty());
  EXPECT_EQ(config_.core.cluster, "Lab-1.x_y");
  EXPECT_EQ(config_.core.state_dir, "/srv/state");
  EXPECT_EQ(config_.core.host, "ctl1.example.org");
  EXPECT_THAT(config_.core.plugin_dirs, ElementsAre("/opt/a", "/opt/b"));
  EXPECT_EQ(config_.core.journal_max_bytes, 2'000'000);
  EXPECT_EQ(config_.core.shutdown_seconds, 5);
  EXPECT_EQ(config_.core.log_level, "debug");
  const SourceConfig& source = config_.sources.at(0).common;
  EXPECT_EQ(source.plugin, "replay");
  EXPECT_EQ(source.capture, "scan");
  EXPECT_EQ(source.rescan_seconds, 1);
  EXPECT_EQ(source.incomplete_after_seconds, 3);
  EXPECT_EQ(source.resolve_timeout_seconds, 4);
  EXPECT_EQ(source.max_file_bytes, 4096);
  EXPECT_EQ(source.environment.mode, EnvironmentRule::Mode::kPatterns);
  ASSERT_TRUE(source.environment.keep);
  EXPECT_THAT(*source.environment.keep, ElementsAre("SLURM_*", "PATH"));
  EXPECT_THAT(source.environment.drop, ElementsAre("*TOKEN*"));
  const SinkConfig& sink = config_.sinks.at(0).common;
  EXPECT_EQ(sink.plugin, "null");
  EXPECT_THAT(sink.kinds, ElementsAre("job.script", "usage.*"));
  EXPECT_THAT(sink.parts, ElementsAre("environment", "script"));
  EXPECT_EQ(sink.batch_max_events, 2);
  EXPECT_EQ(sink.batch_max_bytes, 3);
  EXPECT_EQ(sink.batch_max_ms, 4);
  EXPECT_EQ(sink.retry_max_ms, 5);
  EXPECT_EQ(sink.workers, 6);
}

TEST_F(ParseConfigTest, InstancesKeepTheFilesOrder) {
  EXPECT_THAT(problems_of("cluster = \"lab\"\n[sink.z]\n[source.y]\n[sink.a]\n[source.b]\n"),
              IsEmpty());
  EXPECT_EQ(config_.sinks.at(0).name, "z");
  EXPECT_EQ(config_.sinks.at(1).name, "a");
  EXPECT_EQ(config_.sources.at(0).name, "y");
  EXPECT_EQ(config_.sources.at(1).name, "b");
}

TEST_F(ParseConfigTest, ASourceAndASinkMayShareAName) {
  EXPECT_THAT(problems_of("cluster = \"lab\"\n[sink.x]\n[source.x]\n"), IsEmpty());
}

TEST_F(ParseConfigTest, AnEmptyFileSaysWhatToWrite) {
  for (const char* text : {"", "\n\n", "# comment\n", "\xef\xbb\xbf"})
    EXPECT_THAT(problems_of(text), ElementsAre(kNoCluster, kNoSource, kNoSink));
}

TEST_F(ParseConfigTest, CrlfAndByteOrderMarkAreTaken) {
  EXPECT_THAT(problems_of("\xef\xbb\xbf"
                          "cluster = \"lab\"\r\n\r\n[source.s]\r\n[sink.k]\r\nworkers = 0\r\n"),
              ElementsAre("f.toml:5: sink.k.workers: out of range; allowed: 1 .. 64; given: 0"));
}

TEST_F(ParseConfigTest, FiveDifferentMistakesAreAllReportedWithTheirLines) {
  EXPECT_THAT(
      problems_of("cluster = \"lab\"\n"        // 1
                  "state_dir = \"var/lib\"\n"  // 2  not absolute
                  "log_levle = \"info\"\n"     // 3  unknown key
                  "\n"                         // 4
                  "[source.slurm]\n"           // 5
                  "capture = \"inotfy\"\n"     // 6  unknown word
                  "capture = \"auto\"\n"       // 7  duplicate
                  "rescan_seconds = \"60\"\n"  // 8  no unit
                  "\n"                         // 9
                  "[sink.archive]\n"           // 10
                  "workers = 0\n"              // 11 out of range
                  "root = /archive\n"),        // 12 syntax
      ElementsAre("f.toml:2: state_dir: is not an absolute path; allowed: an absolute path; given: "
                  "\"var/lib\"",
                  "f.toml:3: log_levle: unknown key; did you mean \"log_level\"?",
                  "f.toml:6: source.slurm.capture: unknown value; did you mean \"inotify\"?; "
                  "allowed: \"auto\", "
                  "\"fanotify\", \"inotify\", "
                  "\"scan\"; given: \"inotfy\"",
                  "f.toml:7: source.slurm.capture: duplicate key; it is already in line 6",
                  "f.toml:8: source.slurm.rescan_seconds: not a duration such as \"500ms\", "
                  "\"90s\", \"5m\", \"2h\" or \"1h30m\"; "
                  "allowed: 1 .. 86400; given: \"60\"",
                  "f.toml:11: sink.archive.workers: out of range; allowed: 1 .. 64; given: 0",
                  "f.toml:12: sink.archive.root: syntax error: not a value; a text needs quotes; "
                  "allowed: \"text\", a "
                  "number, true, false, "
                  "[a list], { a table }"));
}

// What a mistake must not do: make other messages that are not true.
TEST_F(ParseConfigTest, AMistakeDoesNotMakeOthersUp) {
  EXPECT_EQ(problems_of("cluster = lab\n[source.s]\n[sink.k]\n").size(), 1U)
      << "cluster is there, only without quotes";
  EXPECT_EQ(problems_of("cluster = 5\n[source.s]\n[sink.k]\n").size(), 1U);
  EXPECT_EQ(problems_of("cluster = 2026-01-01\n[source.s]\n[sink.k]\n").size(), 1U);
  EXPECT_EQ(problems_of("cluster = \"lab\"\n[source.s]\n[sink.k\nroot = \"/x\"\n").size(), 1U)
      << "a sink was meant";
  EXPECT_EQ(problems_of("cluster = \"lab\"\n[source.s]\n[[sink]]\nroot = \"/x\"\n").size(), 1U);
  EXPECT_EQ(problems_of("cluster = \"lab\"\n[source.s]\n[sink]\nk = \"file\"\n").size(), 1U);
}

TEST_F(ParseConfigTest, EachWrongTopKeyIsExplained) {
  struct Case {
    const char* text;
    const char* expected;
  };
  const std::vector<Case> cases = {
      {"clustr = \"x\"", "f.toml:1: clustr: unknown key; did you mean \"cluster\"?"},
      {"zzz = 1", "f.toml:1: zzz: unknown key"},
      {"batch_max_ms = 5",
       "f.toml:1: batch_max_ms: unknown key; a plugin's options belong below its [sink.NAME] "
       "line"},
      {"capture = \"scan\"",
       "f.toml:1: capture: unknown key; a plugin's options belong below its [source.NAME] line"},
      {"plugin = \"file\"",
       "f.toml:1: plugin: unknown key; a plugin's options belong below its [source.NAME] or "
       "[sink.NAME] line"},
      {"\"a b\\n\" = 1", "f.toml:1: \"a b\\n\": unknown key"},
      {"state_dir = \"\"", "f.toml:1: state_dir: is empty; allowed: an absolute path; given: \"\""},
      {"state_dir = \"x\"",
       "f.toml:1: state_dir: is not an absolute path; allowed: an absolute path; given: \"x\""},
      {"state_dir = \"~/x\"",
       "f.toml:1: state_dir: is not an absolute path; allowed: an absolute path; given: \"~/x\""},
      {"state_dir = \"/a\\u0000b\"",
       "f.toml:1: state_dir: holds a control character; allowed: an absolute path; given: "
       "\"/a\\u0000b\""},
      {"state_dir = [\"/a\"]",
       "f.toml:1: state_dir: wrong type; allowed: string, an absolute path; given: [\"/a\"]"},
      {"plugin_dirs = \"/a\"",
       "f.toml:1: plugin_dirs: wrong type; allowed: list of strings, absolute paths; given: "
       "\"/a\""},
      {"plugin_dirs = [\"/a\",\n\"b\"]",
       "f.toml:2: plugin_dirs: is not an absolute path; allowed: absolute paths; given: \"b\""},
      {"plugin_dirs = [\"/a\", 5]",
       "f.toml:1: plugin_dirs: item 2 of the list is of the wrong type; allowed: string; given: 5"},
      {"host = \"a b\"",
       "f.toml:1: host: cannot be a host's name; allowed: letters, digits, '.', '_' and '-', at "
       "most 253; given: \"a b\""},
      {"journal_max_bytes = 1048575",
       "f.toml:1: journal_max_bytes: out of range; allowed: 1048576 .. 17592186044416; given: "
       "1048575"},
      {"journal_max_bytes = 1e9",
       "f.toml:1: journal_max_bytes: wrong type; allowed: integer or a size such as \"64MiB\", "
       "1048576 .. 17592186044416; given: "
       "1e+09"},
      {"journal_max_bytes = \"1 KiB\"",
       "f.toml:1: journal_max_bytes: out of range; allowed: 1048576 .. 17592186044416; given: \"1 "
       "KiB\""},
      {"shutdown_seconds = 0",
       "f.toml:1: shutdown_seconds: out of range; allowed: 1 .. 3600; given: 0"},
      {"shutdown_seconds = 3601",
       "f.toml:1: shutdown_seconds: out of range; allowed: 1 .. 3600; given: 3601"},
      {"log_level = \"warn\"",
       "f.toml:1: log_level: unknown value; allowed: \"debug\", \"info\", \"warning\", \"error\"; "
       "given: \"warn\""},
      {"source = 5", "f.toml:1: source: wrong type; write [source.NAME] and its options below"},
      {"sink = []", "f.toml:1: sink: wrong type; write [sink.NAME] and its options below"},
      {"cluster_ = { a = 1 }",
       "f.toml:1: cluster_: unknown table; allowed: [source.NAME], [sink.NAME], [report], "
       "[serve]"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    const std::string text = c.text;
    const bool makes_sections = text.rfind("source", 0) == 0 || text.rfind("sink", 0) == 0;
    EXPECT_THAT(
        makes_sections ? problems_of(text + "\ncluster = \"lab\"\n") : problems_in_top(text),
        ElementsAre(c.expected));
  }
}

TEST_F(ParseConfigTest, ClusterIsHeldAgainstItsRule) {
  const std::string rule =
      "allowed: a letter or digit, then letters, digits, '.', '_' and '-', at most 64; given: ";
  const auto problems = [&](const std::string& name) {
    return problems_of("cluster = \"" + name + "\"\n[source.s]\n[sink.k]\n");
  };
  EXPECT_THAT(problems(""), ElementsAre("f.toml:1: cluster: is empty; " + rule + "\"\""));
  for (const std::string name : {"-a", ".a", "a b", "a/b", "ü", "_a"}) {
    EXPECT_THAT(problems(name), ElementsAre("f.toml:1: cluster: cannot be a cluster's name; " +
                                            rule + "\"" + name + "\""));
  }
  EXPECT_THAT(problems(std::string(65, 'a')), ElementsAre(HasSubstr("cannot be a cluster's name")));
  for (const std::string& name :
       {std::string("a"), std::string("9"), std::string("A.b_c-1"), std::string(64, 'a')})
    EXPECT_THAT(problems(name), IsEmpty());
}

TEST_F(ParseConfigTest, WrongTablesAreExplained) {
  const std::string cluster = "cluster = \"lab\"\n[source.s]\n[sink.k]\n";
  EXPECT_THAT(problems_of(cluster + "[sinks.x]\n"),
              ElementsAre("f.toml:4: sinks: unknown table; did you mean \"sink\"?"));
  EXPECT_THAT(problems_of(cluster + "[sources.x]\n"),
              ElementsAre("f.toml:4: sources: unknown table; did you mean \"source\"?"));
  EXPECT_THAT(
      problems_of(cluster + "[output]\n"),
      ElementsAre("f.toml:4: output: unknown table; allowed: [source.NAME], [sink.NAME], [report], "
                  "[serve]"));
  EXPECT_THAT(
      problems_of(cluster + "[[outputs]]\n"),
      ElementsAre(
          "f.toml:4: outputs: unknown table; allowed: [source.NAME], [sink.NAME], [report], "
          "[serve]"));
  EXPECT_THAT(problems_of("cluster = \"lab\"\n[source.s]\n[[sink]]\n"),
              ElementsAre("f.toml:3: sink: has no name; write [sink.NAME] instead of [[sink]]"));
  EXPECT_THAT(
      problems_of(cluster + "[[sink.x]]\n"),
      ElementsAre(
          "f.toml:4: sink.x: is defined as a list; write [sink.NAME] with single brackets"));
  EXPECT_THAT(
      problems_of(cluster + "[sink]\nroot = \"/x\"\n"),
      ElementsAre("f.toml:5: sink.root: wrong type; options belong below a line [sink.NAME]"));
  EXPECT_THAT(problems_of(cluster + "[sink.k]\n"),
              ElementsAre("f.toml:4: sink.k: duplicate table; it is already in line 3"));
}

TEST_F(ParseConfigTest, TheTableOfMailsIsRead) {
  const std::string start = "cluster = \"lab\"\n[source.s]\n[sink.k]\n[report]\n";
  Problems problems;
  EXPECT_FALSE(parse_config(start, "f.toml", problems).report.mail);
  const Config config = parse_config(
      start +
          "page_url = \"https://example.org/{user}\"\n[report.mail]\n"
          "from = \"HPC <hpc@example.org>\"\nmin_wasted_core_hours = 2.5\nconsent = \"opt-in\"\n",
      "f.toml", problems);
  EXPECT_TRUE(problems.empty());
  ASSERT_TRUE(config.report.mail);
  EXPECT_EQ(config.report.page_url, "https://example.org/{user}");
  EXPECT_EQ(config.report.mail->from, "HPC <hpc@example.org>");
  EXPECT_EQ(config.report.mail->min_wasted_core_hours, 2.5);
  EXPECT_EQ(config.report.mail->consent, "opt-in");
  EXPECT_EQ(config.report.mail->language, "en");
}

TEST_F(ParseConfigTest, TheTableOfTheQueryServiceIsReadIfItIsThere) {
  const std::string start = "cluster = \"lab\"\n[source.s]\n[sink.k]\n";
  Problems problems;
  EXPECT_FALSE(parse_config(start, "f.toml", problems).serve);
  const auto serve =
      parse_config(start + "[serve]\nreader_groups = [\"hpc-support\"]\nproxy_users = [\"www\"]\n",
                   "f.toml", problems)
          .serve;
  EXPECT_TRUE(problems.empty());
  ASSERT_TRUE(serve);
  EXPECT_EQ(serve->socket, "/run/scriptorium-web/query.sock");
  EXPECT_THAT(serve->reader_groups, ElementsAre("hpc-support"));
  EXPECT_EQ(serve->page_socket, "/run/scriptorium-web/page.sock");
  EXPECT_THAT(serve->proxy_users, ElementsAre("www"));
  EXPECT_THAT(problems_of(start + "[serve]\nreader_group = []\n"),
              ElementsAre("f.toml:5: serve.reader_group: unknown key; did you mean "
                          "\"reader_groups\"?"));
  EXPECT_THAT(problems_of(start + "[serve]\nsocket = \"x\"\nreader_groups = [\"\"]\n"),
              ElementsAre(HasSubstr("serve.socket: is not an absolute path"),
                          HasSubstr("serve.reader_groups: cannot be a group's name")));
}

TEST_F(ParseConfigTest, MistakesInTheTableOfMailsAreExplained) {
  const std::string start = "cluster = \"lab\"\n[source.s]\n[sink.k]\n";
  EXPECT_THAT(problems_of(start + "[report]\nmial = 1\n"),
              ElementsAre("f.toml:5: report.mial: unknown key; did you mean \"mail\"?"));
  EXPECT_THAT(problems_of(start + "[report.mail]\n"),
              ElementsAre(HasSubstr("f.toml:4: report.mail.from: ")));
  EXPECT_THAT(problems_of(start + "[report.mail]\nfrom = \"a@b\"\nadresses = \"/x\"\n"),
              ElementsAre("f.toml:6: report.mail.adresses: unknown key; did you mean "
                          "\"addresses\"?"));
  EXPECT_THAT(problems_of("report = 1\n" + start),
              ElementsAre("f.toml:1: report: wrong type; write its options below a line [report]; "
                          "given: 1"));
  EXPECT_THAT(problems_of(start + "[report]\nmail = \"x\"\n"),
              ElementsAre(HasSubstr("f.toml:5: report.mail: ")));
  for (const char* from : {"", "a b", "-f@example.org", "a@b, c@d", "A <a@b", "|cmd", "/file", "a@",
                           "A\\nBcc: c <a@b>"}) {
    EXPECT_THAT(problems_of(start + "[report.mail]\nfrom = \"" + from + "\"\n"),
                ElementsAre(HasSubstr("f.toml:5: report.mail.from: cannot be a mail address")))
        << from;
  }
}

TEST(MailAddressTest, IsWhatAMailProgramTakesForAnAddress) {
  const std::string longest(242, 'a');
  EXPECT_EQ(mail_address("hpc"), "hpc");
  EXPECT_EQ(mail_address("a.b_c%d+e-f@mail-1.example.org"), "a.b_c%d+e-f@mail-1.example.org");
  EXPECT_EQ(mail_address("HPC \"support\" <hpc@example.org>"), "hpc@example.org");
  EXPECT_EQ(mail_address("<hpc>"), "hpc");
  EXPECT_TRUE(mail_address(longest + "@example.org"));
  for (const std::string& none :
       {std::string(), std::string("@b"), std::string("a@b@c"), std::string("<a@b> x"),
        std::string("a\r@b"), std::string("ü@b"), longest + "a@example.org", std::string("<>"),
        std::string("a>"), std::string("!a"), std::string("\n<a@b>")}) {
    EXPECT_FALSE(mail_address(none)) << none;
  }
}

TEST_F(ParseConfigTest, InstanceNamesAreHeldAgainstTheirRule) {
  const std::string rule =
      ": cannot be the name of an instance; allowed: a lower-case letter, then at most 63 of a-z, "
      "0-9, _ and -";
  const std::string cluster = "cluster = \"lab\"\n[source.s]\n[sink.k]\n";
  EXPECT_THAT(problems_of(cluster + "[sink.Archive]\n"),
              ElementsAre("f.toml:4: sink.Archive" + rule));
  EXPECT_THAT(problems_of(cluster + "[sink.\"../x\"]\n"),
              ElementsAre("f.toml:4: sink.\"../x\"" + rule));
  EXPECT_THAT(problems_of(cluster + "[source.\"\"]\nplugin = \"p\"\n"),
              ElementsAre("f.toml:4: source.\"\"" + rule));
  EXPECT_THAT(problems_of(cluster + "[source.1a]\n"), ElementsAre("f.toml:4: source.1a" + rule));
  EXPECT_THAT(problems_of(cluster + "[sink." + std::string(65, 'a') + "]\n"),
              ElementsAre(HasSubstr("cannot be the name of an instance")));
  EXPECT_THAT(problems_of(cluster + "[sink." + std::string(64, 'a') + "]\n[sink.a-b_c9]\n"),
              IsEmpty());
}

TEST_F(ParseConfigTest, EachWrongSourceOptionIsExplained) {
  struct Case {
    const char* text;
    const char* expected;  // behind "f.toml:4: source.s."
  };
  const std::string allowed = "allowed: \"all\", \"none\", { keep = [...], drop = [...] }; given: ";
  const std::vector<Case> cases = {
      {"plugin = \"../x\"",
       "plugin: cannot be a plugin's name; allowed: a lower-case letter, then at most 63 of a-z, "
       "0-9, _ and -; given: \"../x\""},
      {"plugin = \"\"",
       "plugin: cannot be a plugin's name; allowed: a lower-case letter, then at most 63 of a-z, "
       "0-9, _ and -; given: \"\""},
      {"capture = true",
       "capture: wrong type; allowed: \"auto\", \"fanotify\", \"inotify\", \"scan\"; given: true"},
      {"capture = \"poll\"",
       "capture: unknown value; allowed: \"auto\", \"fanotify\", \"inotify\", \"scan\"; given: "
       "\"poll\""},
      {"rescan_seconds = 0", "rescan_seconds: out of range; allowed: 1 .. 86400; given: 0"},
      {"rescan_seconds = 86401", "rescan_seconds: out of range; allowed: 1 .. 86400; given: 86401"},
      {"rescan_seconds = 1.5",
       "rescan_seconds: wrong type; allowed: integer or a duration such as \"5m\", 1 .. 86400; "
       "given: 1.5"},
      {"incomplete_after_seconds = -1",
       "incomplete_after_seconds: out of range; allowed: 1 .. 86400; given: -1"},
      {"resolve_timeout_seconds = 0",
       "resolve_timeout_seconds: out of range; allowed: 1 .. 86400; given: 0"},
      {"max_file_bytes = 1", "max_file_bytes: out of range; allowed: 1024 .. 1073741824; given: 1"},
      {"environment = true",
       "environment: wrong type; allowed: \"all\", \"none\", { keep = [...], drop = [...] }; "
       "given: true"},
      {"environment = [\"A\"]",
       "environment: wrong type; allowed: \"all\", \"none\", { keep = [...], drop = [...] }; "
       "given: [\"A\"]"},
      {"environment = \"non\"",
       "environment: unknown value; did you mean \"none\"?; allowed: \"all\", \"none\", { keep = "
       "[...], drop = [...] }; given: "
       "\"non\""},
      {"environment = { kepp = [\"A\"] }", "environment.kepp: unknown key; did you mean \"keep\"?"},
      {"environment = { keep = \"A\" }",
       "environment.keep: wrong type; allowed: list of strings; given: \"A\""},
      {"environment = { drop = [\"A\", 1] }",
       "environment.drop: item 2 of the list is of the wrong type; allowed: string; given: 1"},
      {"environment = { drop = [\"[A\"] }",
       "environment.drop: bad pattern: '[' without ']'; given: \"[A\""},
      {"environment = { drop = [\"\"] }",
       "environment.drop: bad pattern: an empty pattern matches nothing; given: \"\""},
      {"environment = { keep = [\"A\\\\\"] }",
       "environment.keep: bad pattern: a '\\' at the end escapes nothing; given: \"A\\\\\""},
      {"environment = { keep = [\"[z-a]\"] }",
       "environment.keep: bad pattern: the range 'z-a' is the wrong way round; given: \"[z-a]\""},
      {"environment = { drop = [\"SECRET=*\"] }",
       "environment.drop: bad pattern: it is matched against the name only, which has no '='; "
       "given: "
       "\"SECRET=*\""},
      {"environment = { keep = [] }",
       "environment.keep: an empty list keeps nothing; write environment = \"none\" if that is "
       "intended; given: []"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    EXPECT_THAT(problems_in_source(c.text),
                ElementsAre("f.toml:4: source.s." + std::string(c.expected)));
  }
}

TEST_F(ParseConfigTest, EachPatternThatIsWrongIsReportedAtItsOwnLine) {
  EXPECT_THAT(
      problems_in_source("[source.s.environment]\nkeep = [\n  \"OK\",\n  \"[\",\n  \"a=b\",\n]\n"),
      ElementsAre("f.toml:7: source.s.environment.keep: bad pattern: '[' without ']'; given: \"[\"",
                  "f.toml:8: source.s.environment.keep: bad pattern: it is matched against the "
                  "name only, which has no '='; given: \"a=b\""));
}

TEST_F(ParseConfigTest, EnvironmentTakesItsThreeShapes) {
  using Mode = EnvironmentRule::Mode;
  const auto rule = [&](const std::string& text) {
    EXPECT_THAT(problems_in_source("environment = " + text), IsEmpty());
    return config_.sources.at(0).common.environment;
  };
  EXPECT_EQ(rule("\"all\"").mode, Mode::kAll);
  EXPECT_EQ(rule("\"none\"").mode, Mode::kNone);
  EXPECT_EQ(rule("{}").mode, Mode::kPatterns);
  EXPECT_EQ(rule("{ drop = [] }").keep, std::nullopt);
  EXPECT_THAT(rule("{ drop = [\"=odd\", \"A*\"] }").drop, ElementsAre("=odd", "A*"));
  EXPECT_THAT(rule("{ keep = [\"A\"] }").keep.value(), ElementsAre("A"));
}

TEST_F(ParseConfigTest, EachWrongSinkOptionIsExplained) {
  struct Case {
    const char* text;
    const char* expected;  // behind "f.toml:4: sink.k."
  };
  const std::vector<Case> cases = {
      {"kinds = \"job.script\"",
       "kinds: wrong type; allowed: list of strings, patterns that are not empty; given: "
       "\"job.script\""},
      {"kinds = []",
       "kinds: an empty list; this sink would get nothing; allowed: patterns that are not empty; "
       "given: []"},
      {"kinds = [\"a\", \"\"]",
       "kinds: an empty pattern matches nothing; allowed: patterns that are not empty; given: "
       "\"\""},
      {"kinds = [\"[\"]",
       "kinds: '[' without ']'; allowed: patterns that are not empty; given: \"[\""},
      {"kinds = [1]", "kinds: item 1 of the list is of the wrong type; allowed: string; given: 1"},
      {"parts = []",
       "parts: an empty list; to get all parts, leave the option out; allowed: \"script\", "
       "\"environment\", \"records\"; given: []"},
      {"parts = [\"script\", \"enviroment\"]",
       "parts: unknown value; did you mean \"environment\"?; allowed: \"script\", "
       "\"environment\", \"records\"; given: \"enviroment\""},
      {"parts = \"script\"",
       "parts: wrong type; allowed: list of strings, \"script\", \"environment\", \"records\"; "
       "given: \"script\""},
      {"batch_max_events = 0", "batch_max_events: out of range; allowed: 1 .. 100000; given: 0"},
      {"batch_max_bytes = 0", "batch_max_bytes: out of range; allowed: 1 .. 1073741824; given: 0"},
      {"batch_max_ms = 60001", "batch_max_ms: out of range; allowed: 1 .. 60000; given: 60001"},
      {"retry_max_ms = 0", "retry_max_ms: out of range; allowed: 1 .. 86400000; given: 0"},
      {"workers = 65", "workers: out of range; allowed: 1 .. 64; given: 65"},
      {"workers = 9223372036854775807",
       "workers: out of range; allowed: 1 .. 64; given: 9223372036854775807"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    EXPECT_THAT(problems_in_sink(c.text),
                ElementsAre("f.toml:4: sink.k." + std::string(c.expected)));
  }
}

TEST_F(ParseConfigTest, ATextOfMoreThanOneMebibyteIsRefused) {
  EXPECT_THAT(problems_of(std::string((1 << 20) + 1, '#')),
              ElementsAre("f.toml: is larger than 1.0 MiB, which no configuration needs"));
}

class CheckUnknownKeysTest : public ParseConfigTest {
 protected:
  std::vector<std::string> unknown(const std::string& text, std::vector<OptionInfo> known) {
    EXPECT_THAT(problems_in_sink(text), IsEmpty());
    for (OptionInfo& o : sink_options()) known.push_back(std::move(o));
    Problems problems;
    check_unknown_keys(config_.sinks.at(0).table, known, problems);
    return texts(problems);
  }
};

TEST_F(CheckUnknownKeysTest, KnowsThePluginsAndCoresKeys) {
  EXPECT_THAT(unknown("plugin = \"file\"\nroot = \"/a\"\nworkers = 2\n", {{.name = "root"}}),
              IsEmpty());
}

TEST_F(CheckUnknownKeysTest, SuggestsTheFileOfASecretThatIsTypedIntoTheConfiguration) {
  EXPECT_THAT(
      unknown("password = \"hunter2\"\n", {{.name = "password_file"}, {.name = "username"}}),
      ElementsAre("f.toml:4: sink.k.password: unknown key; did you mean \"password_file\"?"));
}

TEST_F(CheckUnknownKeysTest, SuggestsTheNearestKeyOfBoth) {
  EXPECT_THAT(unknown("rooot = \"/a\"\nwrkers = 2\nzzzzzz = 1\n", {{.name = "root"}}),
              ElementsAre("f.toml:4: sink.k.rooot: unknown key; did you mean \"root\"?",
                          "f.toml:5: sink.k.wrkers: unknown key; did you mean \"workers\"?",
                          "f.toml:6: sink.k.zzzzzz: unknown key"));
}

TEST_F(CheckUnknownKeysTest, SaysWhereCoresKeysBelong) {
  EXPECT_THAT(unknown("state_dir = \"/x\"\n", {}),
              ElementsAre("f.toml:4: sink.k.state_dir: unknown key; it is one of core's and "
                          "belongs above the first [table] of scriptorium.toml"));
}

TEST_F(CheckUnknownKeysTest, NeverRepeatsTheValue) {
  for (const std::string& text :
       unknown("passphrase = \"hunter2\"\n[sink.k.login]\nx = \"hunter2\"\n", {}))
    EXPECT_THAT(text, testing::Not(HasSubstr("hunter2")));
}

class LoadConfigTest : public testing::Test {
 protected:
  std::vector<std::string> problems_of(const std::string& file) {
    Problems problems;
    config_ = load_config(file, problems);
    std::vector<std::string> result = texts(problems);
    for (std::string& text : result) {  // the folder's name is not the point
      for (std::size_t at = 0; (at = text.find(folder_.path() + "/", at)) != std::string::npos;)
        text.erase(at, folder_.path().size() + 1);
    }
    return result;
  }
  std::vector<std::string> problems() { return problems_of(folder_.path_to("scriptorium.toml")); }

  test::TempDir folder_;
  Config config_;
};

constexpr const char* kGood = "cluster = \"lab\"\n[source.s]\n[sink.k]\n";

TEST_F(LoadConfigTest, ReadsTheFileThenPluginsDInNameOrder) {
  folder_.write("scriptorium.toml", "cluster = \"lab\"\n[sink.main]\n");
  folder_.write("plugins.d/90-b.toml", "[sink.b]\n");
  folder_.write("plugins.d/10-a.toml", "[source.a]\n[sink.a]\n");
  folder_.write("plugins.d/.hidden.toml", "not TOML");
  folder_.write("plugins.d/50-off.toml.disabled", "not TOML");
  folder_.write("plugins.d/README", "not TOML");
  EXPECT_THAT(problems(), IsEmpty());
  EXPECT_THAT(config_.files, ElementsAre(folder_.path_to("scriptorium.toml"),
                                         folder_.path_to("plugins.d/10-a.toml"),
                                         folder_.path_to("plugins.d/90-b.toml")));
  std::vector<std::string> sinks;
  for (const SinkInstance& sink : config_.sinks) sinks.push_back(sink.name);
  EXPECT_THAT(sinks, ElementsAre("main", "a", "b"));
  EXPECT_EQ(config_.sinks.at(2).table.position.file, folder_.path_to("plugins.d/90-b.toml"));
}

TEST_F(LoadConfigTest, ARelativeNameFindsPluginsDBesideIt) {
  folder_.write("scriptorium.toml", "cluster = \"lab\"\n[sink.main]\n");
  folder_.write("plugins.d/10-a.toml", "[source.a]\nworkers = 1\n");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder_.path());
  EXPECT_THAT(problems_of("scriptorium.toml"), IsEmpty());
  std::filesystem::current_path(before);
  EXPECT_THAT(config_.files, ElementsAre("scriptorium.toml", "plugins.d/10-a.toml"));
}

TEST_F(LoadConfigTest, ProblemsOfAllFilesComeInOneRunInTheOrderOfTheFiles) {
  folder_.write("scriptorium.toml",
                "cluster = \"l b\"\n[source.s]\nrescan_seconds = 0\n[sink.k]\n");
  folder_.write("plugins.d/10.toml", "[sink.x\nroot = \"/a\"\n");
  folder_.write("plugins.d/20.toml", "[sink.y]\nworkers = 0\nworkers = 1\n");
  EXPECT_THAT(
      problems(),
      ElementsAre(
          HasSubstr("scriptorium.toml:1: cluster: cannot be"),
          HasSubstr("scriptorium.toml:3: source.s.rescan_seconds: out of range"),
          HasSubstr("plugins.d/10.toml:1: sink.x: syntax error"),
          HasSubstr("plugins.d/20.toml:2: sink.y.workers: out of range"),
          HasSubstr(
              "plugins.d/20.toml:3: sink.y.workers: duplicate key; it is already in line 2")));
}

TEST_F(LoadConfigTest, TheSameInstanceInTwoFilesNamesBothPlaces) {
  folder_.write("scriptorium.toml", kGood);
  folder_.write("plugins.d/50-file.toml", "# ours\n\n[sink.k]\nroot = \"/a\"\n");
  folder_.write("plugins.d/60-file.toml", "[source.s]\n");
  EXPECT_THAT(problems(), ElementsAre("plugins.d/50-file.toml:3: sink.k: is defined twice; first "
                                      "at scriptorium.toml:3; given: { root = \"/a\" }",
                                      "plugins.d/60-file.toml:1: source.s: is defined twice; first "
                                      "at scriptorium.toml:2; given: {}"));
  EXPECT_EQ(config_.sinks.size(), 1U);
}

TEST_F(LoadConfigTest, PluginsDHoldsSourcesAndSinksOnly) {
  folder_.write("scriptorium.toml", kGood);
  folder_.write("plugins.d/a.toml",
                "state_dir = \"/x\"\nplugin = \"file\"\nroot = \"/x\"\n[sinks.a]\n[source.t]\n");
  EXPECT_THAT(problems(),
              ElementsAre("plugins.d/a.toml:1: state_dir: belongs in scriptorium.toml; a file of "
                          "plugins.d holds [source.NAME] and [sink.NAME] "
                          "tables only",
                          "plugins.d/a.toml:2: plugin: unknown key; a plugin's options belong "
                          "below its [source.NAME] or [sink.NAME] line",
                          "plugins.d/a.toml:3: root: unknown key; a plugin's options belong below "
                          "its [source.NAME] or [sink.NAME] line",
                          "plugins.d/a.toml:4: sinks: unknown table; did you mean \"sink\"?"));
}

TEST_F(LoadConfigTest, AFileThatIsNotThereSaysWhatToDo) {
  EXPECT_THAT(problems(),
              ElementsAre("scriptorium.toml: cannot be opened: no such file or directory; write "
                          "the configuration there, or name another file "
                          "with --config"));
}

TEST_F(LoadConfigTest, DirectoriesFifosAndLargeFilesAreRefusedInWords) {
  folder_.write("scriptorium.toml", kGood);
  folder_.make_directory("plugins.d/a.toml");
  ASSERT_EQ(::mkfifo(folder_.path_to("plugins.d/b.toml").c_str(), 0600), 0);
  folder_.write("plugins.d/c.toml", std::string(10 << 20, '#'));
  ASSERT_EQ(::symlink("nowhere", folder_.path_to("plugins.d/d.toml").c_str()), 0);
  folder_.write("plugins.d/e.toml", std::string(1 << 20, '#'));
  EXPECT_THAT(
      problems(),
      ElementsAre(
          "plugins.d/a.toml: is a directory, not a file", "plugins.d/b.toml: is not a regular file",
          "plugins.d/c.toml: is larger than 1.0 MiB, which no configuration needs (10.0 MiB)",
          "plugins.d/d.toml: cannot be opened: no such file or directory"));
  std::filesystem::remove_all(folder_.path_to("plugins.d"));
  EXPECT_THAT(problems_of(folder_.path()), ElementsAre(HasSubstr(": is a directory, not a file")));
}

TEST_F(LoadConfigTest, PluginsDThatIsNoDirectoryIsAProblem) {
  folder_.write("scriptorium.toml", kGood);
  folder_.write("plugins.d", "");
  EXPECT_THAT(problems(), ElementsAre("plugins.d: cannot be listed: not a directory"));
}

TEST_F(LoadConfigTest, AnUnreadableFileIsAProblemAndHidesNoOther) {
  if (::geteuid() == 0)
    GTEST_SKIP() << "root may read every file; run the tests as an ordinary user for this case";
  folder_.write("scriptorium.toml", "cluster = \"lab\"\nshutdown_seconds = 0\n[source.s]\n");
  ASSERT_EQ(::chmod(folder_.write("plugins.d/a.toml", "[sink.k]\n").c_str(), 0), 0);
  EXPECT_THAT(problems(),
              ElementsAre(HasSubstr("scriptorium.toml:2: shutdown_seconds: out of range"),
                          "plugins.d/a.toml: cannot be opened: permission denied"));
}

TEST_F(LoadConfigTest, ASymbolicLinkToAFileIsFollowed) {
  folder_.write("scriptorium.toml", "cluster = \"lab\"\n[source.s]\n");
  folder_.write("available/k.toml", "[sink.k]\n");
  folder_.make_directory("plugins.d");
  ASSERT_EQ(::symlink("../available/k.toml", folder_.path_to("plugins.d/k.toml").c_str()), 0);
  EXPECT_THAT(problems(), IsEmpty());
}

// The files that we ship: whatever stands in them must be free of mistakes, alone and together.
TEST_F(LoadConfigTest, ShippedFilesHaveNoProblem) {
  const std::filesystem::path source(SCRIPTORIUM_SOURCE_DIR);
  const auto copy = [&](const std::filesystem::path& from, const std::string& to) {
    std::ifstream in(from, std::ios::binary);
    folder_.write(
        to, std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()));
  };
  if (std::filesystem::exists(source / "packaging/scriptorium.toml")) {
    copy(source / "packaging/scriptorium.toml", "scriptorium.toml");
  } else {
    folder_.write("scriptorium.toml", "cluster = \"lab\"\n");
  }
  if (std::filesystem::exists(source / "plugins.d")) {
    for (const auto& entry : std::filesystem::directory_iterator(source / "plugins.d")) {
      if (entry.path().extension() == ".toml")
        copy(entry.path(), "plugins.d/" + entry.path().filename().string());
    }
  }
  std::vector<std::string> found = problems();
  // An example that leaves everything commented out is a good file without instances.
  std::erase_if(found, [](const std::string& text) {
    return text.find("no source is configured") != std::string::npos ||
           text.find("no sink is configured") != std::string::npos;
  });
  EXPECT_THAT(found, IsEmpty());
}

TEST(CoreOptionsTest, EveryOptionHasTypeAndHelpAndADefaultThatItWouldTakeItself) {
  struct Group {
    const char* before;
    const char* after;
    std::vector<OptionInfo> options;
  };
  for (const Group& group :
       {Group{"", "\ncluster = \"lab\"\n[source.s]\n[sink.k]\n", core_options()},
        Group{"cluster = \"lab\"\n[sink.k]\n[source.s]\n", "", source_options()},
        Group{"cluster = \"lab\"\n[source.s]\n[sink.k]\n", "", sink_options()}}) {
    for (const OptionInfo& o : group.options) {
      SCOPED_TRACE(o.name);
      EXPECT_FALSE(o.type.empty());
      EXPECT_FALSE(o.help.empty());
      EXPECT_THAT(o.help, testing::Not(testing::EndsWith(".")))
          << "a sentence without a full stop, as it stands in tables";
      if (o.default_value.empty()) continue;
      Problems problems;
      parse_config(std::string(group.before) + o.name + " = " + o.default_value + group.after,
                   "f.toml", problems);
      EXPECT_THAT(texts(problems), IsEmpty());
    }
  }
}

TEST(CoreOptionsTest, OptionsAreOfTheStructs) {
  const auto find = [](const std::vector<OptionInfo>& options, const std::string& name) {
    return *std::find_if(options.begin(), options.end(),
                         [&](const OptionInfo& o) { return o.name == name; });
  };
  EXPECT_TRUE(find(core_options(), "cluster").required);
  EXPECT_EQ(find(core_options(), "state_dir").default_value, "\"/var/lib/scriptorium\"");
  EXPECT_EQ(find(sink_options(), "kinds").default_value, "[\"job.script\"]");
  EXPECT_EQ(find(source_options(), "environment").default_value, "\"all\"");
  EXPECT_EQ(find(source_options(), "plugin").default_value, "");
  EXPECT_EQ(find(sink_options(), "workers").allowed, "1 .. 64");
}

}  // namespace
}  // namespace scriptorium
