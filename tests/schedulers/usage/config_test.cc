#include "schedulers/usage/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace scriptorium::usage {
namespace {

using ::testing::ElementsAre;

class UsageConfigTest : public ::testing::Test {
 protected:
  Table table_{.path = "source.usage"};
  Problems problems_;

  template <typename T>
  void set(const std::string& key, T value) {
    Value made;
    made.data = std::move(value);
    table_.entries.push_back({key, std::move(made)});
  }
  std::vector<std::string> keys() {
    problems_ = {};
    read_config(table_, problems_);
    std::vector<std::string> keys;
    for (const Problem& problem : problems_.list()) keys.push_back(problem.key);
    return keys;
  }
};

TEST_F(UsageConfigTest, AnEmptyTableMeasuresTheNode) {
  EXPECT_THAT(keys(), ElementsAre());
  const UsageConfig config = read_config(table_, problems_);
  EXPECT_TRUE(config.samples_node());
  EXPECT_EQ(config.root, "/sys/fs/cgroup");
  EXPECT_EQ(config.interval_seconds, 30);
  EXPECT_FALSE(config.samples);
}

TEST_F(UsageConfigTest, AnImportMeasuresNothingUnlessTold) {
  set("accounting", std::string("sacct"));
  EXPECT_FALSE(read_config(table_, problems_).samples_node());
  set("sample_node", true);
  EXPECT_TRUE(read_config(table_, problems_).samples_node());
  EXPECT_TRUE(problems_.empty());
}

TEST_F(UsageConfigTest, FilesOfProcessesAreOnlyFoundInProc) {
  set("executables", true);
  EXPECT_THAT(keys(), ElementsAre());
  set("proc", std::string("/host/proc"));
  EXPECT_THAT(keys(), ElementsAre("source.usage.executables"));
}

TEST_F(UsageConfigTest, AnInstanceThatDoesNothingIsAMistake) {
  set("sample_node", false);
  EXPECT_THAT(keys(), ElementsAre("source.usage.sample_node"));
}

TEST_F(UsageConfigTest, PathsAreAbsoluteAndSomeMayBeLeftOut) {
  set("root", std::string("cgroup"));
  set("proc", std::string(""));
  set("state_file", std::string(""));
  set("gpu_jobs_dir", std::string("run/gpustat"));
  set("sluid_dir", std::string(""));
  set("sys", std::string("/sys/"));
  EXPECT_THAT(keys(),
              ElementsAre("source.usage.root", "source.usage.proc", "source.usage.gpu_jobs_dir"));
  EXPECT_EQ(read_config(table_, problems_).sys, "/sys");
}

TEST_F(UsageConfigTest, ThePageOfAFindingIsAUrl) {
  const auto problem = [this](const std::string& url) {
    table_.entries.clear();
    set("help_url", url);
    keys();
    std::string text;
    for (const Problem& one : problems_.list()) text += one.text();
    return text;
  };
  EXPECT_EQ(problem(""), "");
  EXPECT_EQ(problem("https://hpc.example.org/usage/{finding}"), "");
  EXPECT_EQ(read_config(table_, problems_).jobs.findings.help_url("cpu_low"),
            "https://hpc.example.org/usage/cpu_low");
  EXPECT_EQ(problem("http://hpc/" + std::string(501, 'a')), "");
  using ::testing::HasSubstr;
  EXPECT_THAT(problem("http://hpc/" + std::string(502, 'a')), HasSubstr("help_url: too long"));
  EXPECT_THAT(problem("javascript:alert(1)"),
              HasSubstr("source.usage.help_url: not a URL that begins with http:// or https://; "
                        "allowed: \"\", or at most 512 characters such as"));
  for (const char* url : {"https://hpc/a b", "https://hpc/\033[2J", "https://hpc/\n",
                          "https://hpc/<x>", "https://hpc/\xe2\x80\xae"})
    EXPECT_THAT(problem(url), HasSubstr("help_url: a character that a URL cannot hold")) << url;
  EXPECT_THAT(problem("https://hpc/{findings}"),
              HasSubstr("unknown field {findings}; did you mean {finding}?"));
  EXPECT_THAT(problem("https://hpc/{finding"), HasSubstr("'{' without '}' after it"));
}

TEST_F(UsageConfigTest, TwoInstancesDoNotShareAStateFile) {
  EXPECT_EQ(read_config(table_, problems_).state_file, "/var/lib/scriptorium/usage.state");
  table_.path = "source.second";
  EXPECT_EQ(read_config(table_, problems_).state_file, "/var/lib/scriptorium/usage-second.state");
  set("state_file", std::string("/x"));
  EXPECT_EQ(read_config(table_, problems_).state_file, "/x");
}

TEST_F(UsageConfigTest, NumbersHaveTheirBounds) {
  set("interval_seconds", std::int64_t{0});
  set("gpu_interval_seconds", std::int64_t{61});
  set("kept_files", std::int64_t{-1});
  EXPECT_THAT(keys(), ElementsAre("source.usage.interval_seconds", "source.usage.kept_files",
                                  "source.usage.gpu_interval_seconds"));
}

TEST_F(UsageConfigTest, EveryKeyOfBothHalvesIsDescribed) {
  std::set<std::string> names;
  for (const OptionInfo& option : describe()) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name << " twice";
    EXPECT_FALSE(option.help.empty()) << option.name;
  }
  for (const char* key : {"interval_seconds", "state_file", "accounting", "findings", "resolve"})
    EXPECT_EQ(names.count(key), 1U) << key;
}

}  // namespace
}  // namespace scriptorium::usage
