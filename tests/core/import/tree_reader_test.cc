#include "core/import/tree_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <map>

#include "tests/support/temp_dir.h"

namespace scriptorium::import {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// A scheduler whose own files are N.S and N.R.
class ToyAdapter final : public SpoolAdapter {
 public:
  std::string scheduler() const override { return "toy"; }
  std::string spool_root() const override { return "/"; }
  SpoolPath classify(std::string_view path) const override {
    if (path.size() < 3 || (!path.ends_with(".S") && !path.ends_with(".R"))) return {};
    return {SpoolPath::Role::kEntryFile, path.substr(0, path.size() - 2),
            path.substr(path.size() - 1)};
  }
  Assessment assess(const SpoolEntry&) const override { return {}; }
  Result<ParsedJob> parse(const SpoolEntry&) const override { return ParsedJob{}; }
};

class TreeReaderTest : public testing::Test {
 protected:
  Result<bool> walk(TreeReader::Options options = {}, const SpoolAdapter* adapter = nullptr) {
    auto opened = open_direct_access(own_.path_to("tree"), {false, false});
    if (!opened) return opened.error();
    TreeReader reader(options, *opened->access, adapter);
    return reader.walk(
        {.job =
             [&](FoundJob job) {
               jobs_.push_back(std::move(job));
               return jobs_.size() < most_;
             },
         .skip = [&](const std::string& path, std::string_view kind,
                     const std::string&) { skipped_.emplace(path, std::string(kind)); },
         .foreign = [&](const std::string& path) { foreign_.push_back(path); }});
  }
  std::vector<std::string> paths() const {
    std::vector<std::string> list;
    for (const FoundJob& job : jobs_) list.push_back(job.path);
    return list;
  }
  const TreeJob& job(std::size_t index) const { return std::get<TreeJob>(jobs_.at(index).job); }

  test::TempDir own_;
  std::vector<FoundJob> jobs_;
  std::map<std::string, std::string> skipped_;
  std::vector<std::string> foreign_;
  std::size_t most_ = 1000;
};

TEST_F(TreeReaderTest, FindsEachJobOnceWithItsFilesInOrder) {
  own_.write("tree/20241104/job.3_script", "three");
  own_.write("tree/20241103/job.2_environment", "A=b");
  own_.write("tree/20241103/job.2_script", "two");
  own_.write("tree/20241103/job.1_script", "one");
  ASSERT_TRUE(walk());
  EXPECT_THAT(paths(), ElementsAre("20241103/job.1_script", "20241103/job.2_script",
                                   "20241104/job.3_script"));
  EXPECT_EQ(job(0).environment, std::nullopt);
  EXPECT_EQ(*job(1).script.bytes, "two");
  EXPECT_EQ(*job(1).environment->bytes, "A=b");
  EXPECT_THAT(skipped_, IsEmpty());
  EXPECT_THAT(foreign_, IsEmpty());
}

TEST_F(TreeReaderTest, WhatIsNoRegularFileIsNamedAndTheOthersAreRead) {
  own_.write("secret", "not yours");
  own_.write("tree/job.1_script", "one");
  ASSERT_EQ(::symlink("../secret", own_.path_to("tree/job.2_script").c_str()), 0);
  ASSERT_EQ(::mkfifo(own_.path_to("tree/job.3_script").c_str(), 0600), 0);
  own_.make_directory("tree/job.4_script");
  ASSERT_EQ(::symlink("..", own_.path_to("tree/loop").c_str()), 0);
  own_.write("tree/job.5_environment", "A=b");
  own_.write("tree/job.6_script", "");
  own_.write("tree/job.7_script", "seven");
  ASSERT_EQ(::symlink("job.7_script", own_.path_to("tree/job.7_environment").c_str()), 0);
  ASSERT_TRUE(walk());
  EXPECT_THAT(paths(), ElementsAre("job.1_script", "job.7_script"));
  EXPECT_EQ(job(1).environment, std::nullopt);
  EXPECT_THAT(skipped_,
              UnorderedElementsAre(
                  Pair("job.2_script", "symbolic link"), Pair("job.3_script", "not a regular file"),
                  Pair("job.5_environment", "no script"), Pair("job.6_script", "empty script"),
                  Pair("job.7_environment", "environment left out: symbolic link")));
  EXPECT_THAT(foreign_, ElementsAre("loop"));
}

TEST_F(TreeReaderTest, ALargeFileIsReadToTheLimitAndMarked) {
  own_.write("tree/job.1_script", std::string(5000, 'x'));
  ASSERT_TRUE(walk({.max_file_bytes = 1000}));
  ASSERT_EQ(jobs_.size(), 1U);
  EXPECT_TRUE(job(0).script.truncated);
  EXPECT_EQ(job(0).script.bytes->size(), 1000U);
}

TEST_F(TreeReaderTest, AFolderThatCannotBeReadIsNamedAndTheOthersAreRead) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read every folder";
  own_.write("tree/a/job.1_script", "one");
  own_.write("tree/b/job.2_script", "two");
  ASSERT_EQ(::chmod(own_.path_to("tree/a").c_str(), 0), 0);
  ASSERT_TRUE(walk());
  EXPECT_THAT(paths(), ElementsAre("b/job.2_script"));
  EXPECT_THAT(skipped_, ElementsAre(Pair("a", "unreadable")));
}

TEST_F(TreeReaderTest, ATreeWithoutEndIsCutOff) {
  std::string path = "tree";
  for (int i = 0; i < 40; ++i) path += "/d";
  own_.write(path + "/job.1_script", "one");
  own_.write("tree/job.2_script", "two");
  ASSERT_TRUE(walk());
  EXPECT_THAT(paths(), ElementsAre("job.2_script"));
  ASSERT_EQ(skipped_.size(), 1U);
  EXPECT_EQ(skipped_.begin()->second, "too deep");
}

TEST_F(TreeReaderTest, TheVisitorCanStopIt) {
  for (int i = 1; i < 6; ++i) own_.write("tree/job." + std::to_string(i) + "_script", "x");
  most_ = 2;
  const auto walked = walk();
  ASSERT_TRUE(walked);
  EXPECT_FALSE(*walked);
  EXPECT_EQ(jobs_.size(), 2U);
}

TEST_F(TreeReaderTest, ATreeThatIsNotThereIsAnError) {
  const auto walked = walk();
  ASSERT_FALSE(walked);
  EXPECT_EQ(walked.error().kind(), ErrorKind::kVanished);
  EXPECT_THAT(walked.error().message(), HasSubstr("tree"));
}

TEST_F(TreeReaderTest, FilesThatTheSchedulerItselfNamesGoTogetherToo) {
  own_.write("tree/20241103/7.host.S", "script");
  own_.write("tree/20241103/7.host.R", "record");
  own_.write("tree/20241103/7.host.X", "?");
  const ToyAdapter adapter;
  ASSERT_TRUE(walk({}, &adapter));
  ASSERT_EQ(jobs_.size(), 1U);
  const auto& found = std::get<AdapterJob>(jobs_.front().job);
  EXPECT_EQ(found.entry.key, "7.host");
  EXPECT_EQ(*found.entry.file("S")->bytes, "script");
  EXPECT_EQ(*found.entry.file("R")->bytes, "record");
  EXPECT_EQ(found.period, period_of("20241103"));
  EXPECT_THAT(foreign_, ElementsAre("20241103/7.host.X"));
}

}  // namespace
}  // namespace scriptorium::import
