#include "backends/file/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace scriptorium::file {
namespace {

using ::testing::HasSubstr;

class FileConfigTest : public ::testing::Test {
 protected:
  void set(const std::string& key,
           std::variant<bool, std::int64_t, double, std::string, std::vector<Value>, Table> data) {
    table_.entries.push_back({key, Value{std::move(data), {"file.toml", ++line_}}});
  }
  void set_list(const std::string& key, const std::vector<std::string>& words) {
    std::vector<Value> values;
    for (const std::string& w : words) values.push_back(Value{w, {"file.toml", line_ + 1}});
    set(key, std::move(values));
  }
  std::string problems() {
    Problems problems;
    config_ = parse_config(table_, problems);
    std::string text;
    for (const Problem& p : problems.list()) text += p.text() + '\n';
    return text;
  }

  Table table_{.entries = {}, .position = {"file.toml", 1}, .path = "sink.archive"};
  std::uint32_t line_ = 1;
  FileConfig config_;
};

TEST_F(FileConfigTest, RootAloneGivesTheDefaults) {
  set("root", std::string("/srv/archive//"));
  EXPECT_EQ(problems(), "");
  EXPECT_EQ(config_.root, "/srv/archive");
  EXPECT_EQ(config_.layout, "user-month");
  EXPECT_EQ(config_.kinds, (std::vector<FileKind>{FileKind::kScript, FileKind::kEnvironment,
                                                  FileKind::kMetadata}));
  EXPECT_TRUE(config_.owner_may_read);
}

TEST_F(FileConfigTest, RootIsRequiredAndAbsolute) {
  EXPECT_THAT(problems(), HasSubstr("root"));
  set("root", std::string("archive"));
  EXPECT_THAT(problems(), HasSubstr("not an absolute path"));
}

TEST_F(FileConfigTest, TheXdmodPresetKeepsTheScriptOnlyUnlessToldOtherwise) {
  set("root", std::string("/a"));
  set("layout", std::string("xdmod"));
  EXPECT_EQ(problems(), "");
  EXPECT_EQ(config_.kinds, std::vector<FileKind>{FileKind::kScript});
  set_list("files", {"metadata", "script"});
  EXPECT_EQ(problems(), "");
  EXPECT_EQ(config_.kinds, (std::vector<FileKind>{FileKind::kScript,
                                                  FileKind::kMetadata}));  // metadata last, as ever
}

TEST_F(FileConfigTest, SeveralFilesNeedExt) {
  set("root", std::string("/a"));
  set("layout", std::string("{job_id}.sh"));
  EXPECT_THAT(problems(), HasSubstr("{ext} is missing"));
  set_list("files", {"script"});
  EXPECT_EQ(problems(), "");
}

TEST_F(FileConfigTest, NamesEveryUnknownFieldOfTheLayout) {
  set("root", std::string("/a"));
  set("layout", std::string("{usr}/{source}/{jobid}.{ext}"));
  EXPECT_THAT(problems(), HasSubstr("unknown field {usr}; did you mean {user}? unknown field "
                                    "{source}; unknown field {jobid}; "
                                    "did you mean {job_id}? the fields are {cluster} {scheduler}"));
}

TEST_F(FileConfigTest, SaysEveryProblemAtOnceWithItsLine) {
  set("root", std::string("rel"));
  set("layout", std::string("{usr}/{job_id}"));
  set_list("files", {"script", "scripts", "script"});
  set("acl", std::string("none"));
  set_list("acl_users", {"root"});
  const std::string text = problems();
  EXPECT_THAT(text, HasSubstr("file.toml:2: sink.archive.root"));
  EXPECT_THAT(
      text,
      HasSubstr("file.toml:3: sink.archive.layout: unknown field {usr}; did you mean {user}?"));
  EXPECT_THAT(text, HasSubstr("{job_name} {array_job_id} {ext}")) << "the fields";
  EXPECT_THAT(text, HasSubstr("unknown file \"scripts\""));
  EXPECT_THAT(text, HasSubstr("\"script\" appears twice"));
  EXPECT_THAT(text, HasSubstr("sink.archive.acl_users: set, but acl = \"none\""));
}

TEST_F(FileConfigTest, AnEmptyListOfFilesIsAProblem) {
  set("root", std::string("/a"));
  set_list("files", {});
  EXPECT_THAT(problems(), HasSubstr("nothing would be kept"));
}

}  // namespace
}  // namespace scriptorium::file
