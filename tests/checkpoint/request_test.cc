#include "checkpoint/request.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace scriptorium::checkpoint {
namespace {

TEST(RequestNameTest, AcceptsTheIdsOfJobsOnly) {
  const std::vector<std::pair<std::string, std::string>> table{
      {"34", "34"}, {"34_5", "34_5"}, {"", ""},          {"../34", ""}, {"*", ""},
      {"34_", ""},  {"_5", ""},       {"3_4_5", ""},     {"34 ", ""},   {"-34", ""},
      {"34\n", ""}, {"0x22", ""},     {"$(reboot)", ""}, {"34;35", ""}, {std::string(41, '1'), ""}};
  for (const auto& [id, job] : table) {
    const auto name = parse_request_name(id + ".checkpoint");
    ASSERT_TRUE(name) << id;
    EXPECT_EQ(name->job, job) << id;
    EXPECT_EQ(name->action, Action::kCheckpoint);
  }
  EXPECT_EQ(parse_request_name("35.resume")->action, Action::kResume);
}

TEST(RequestNameTest, LeavesOtherFilesAlone) {
  for (const char* file : {"34", "34.checkpoint.old", "notes", ".34.checkpoint~", "34.RESUME"})
    EXPECT_FALSE(parse_request_name(file)) << file;
}

TEST(RequestBodyTest, TakesTheFirstLineAsProcessAndTheLastAsDirectory) {
  const auto body = parse_request_body(Action::kCheckpoint, "1980\n/home/alice/ck\n");
  ASSERT_TRUE(body);
  EXPECT_EQ(body->pid, 1980);
  EXPECT_EQ(body->directory, "/home/alice/ck");
  EXPECT_EQ(parse_request_body(Action::kCheckpoint, "7\nanything\n/a b\n")->directory, "/a b");
  EXPECT_EQ(parse_request_body(Action::kResume, "/home/alice/ck\n")->directory, "/home/alice/ck");
}

TEST(RequestBodyTest, HasOptionsBeforeTheDirectoryAndIgnoresOtherLines) {
  const auto options = parse_request_body(Action::kCheckpoint, "1980\nx\nkeep_job\n/keep_job\n");
  ASSERT_TRUE(options);
  EXPECT_TRUE(options->keeps_job);
  EXPECT_FALSE(options->runs_on);
  EXPECT_TRUE(parse_request_body(Action::kCheckpoint, "1980\nruns_on\n/home\n")->runs_on);
  EXPECT_EQ(options->directory, "/keep_job");
  EXPECT_TRUE(parse_request_body(Action::kResume, "keep_job\n/home\n")->keeps_job);
  EXPECT_FALSE(parse_request_body(Action::kResume, "/keep_job\n")->keeps_job);
  EXPECT_FALSE(parse_request_body(Action::kCheckpoint, "1980\nkeep_jobs\n/home\n")->keeps_job);
}

TEST(RequestBodyTest, MayLimitTheImagesThatAreKept) {
  EXPECT_EQ(parse_request_body(Action::kCheckpoint, "1980\nkeep 3\n/home\n")->keep, 3);
  for (const char* line : {"keep", "keep 0", "keep -1", "keep x", "keep 99999999999999999999"}) {
    const auto body =
        parse_request_body(Action::kCheckpoint, "1980\n" + std::string(line) + "\n/home\n");
    EXPECT_EQ(body->keep, 0) << line;
  }
}

TEST(RequestBodyTest, SaysWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> table{
      {"", "two lines"},
      {"/home/alice\n", "two lines"},
      {"\n/home/alice\n", "process id"},
      {"0\n/home/alice\n", "process id"},
      {"1\n/home/alice\n", "process id"},
      {"-1980\n/home/alice\n", "process id"},
      {"1980 1981\n/home/alice\n", "process id"},
      {"99999999999\n/home/alice\n", "process id"},
      {"1980\nhome/alice\n", "absolute"},
      {"1980\n/" + std::string(4095, 'x'), "4 KiB"},
      {std::string("1980\n/home\0/x\n", 14), "zero byte"}};
  for (const auto& [text, problem] : table) {
    const auto body = parse_request_body(Action::kCheckpoint, text);
    ASSERT_FALSE(body) << text;
    EXPECT_NE(body.error().message().find(problem), std::string::npos) << body.error().message();
  }
}

// OAR's users' scripts write a request with two writes: 5 bytes, then 15 more.
TEST(RequestBodyTest, IsIncompleteUntilItsLastNewline) {
  const std::string whole = "1980\n/home/alice/ck\n";
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_FALSE(looks_complete(Action::kCheckpoint, whole.substr(0, bytes))) << bytes;
  EXPECT_TRUE(looks_complete(Action::kCheckpoint, whole));
}

}  // namespace
}  // namespace scriptorium::checkpoint
