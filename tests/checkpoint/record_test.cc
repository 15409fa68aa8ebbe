#include "checkpoint/record.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/folder.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::checkpoint {
namespace {

using Json = nlohmann::json;

Record saved() {
  Record record;
  record.time = {1'795'881'600'123'456'789};
  record.node = "n1";
  record.scheduler = "slurm";
  record.job = "4711";
  record.user = "alice";
  record.uid = 1001;
  record.action = "made";
  record.engine = "criu";
  record.engine_version = "4.1.1";
  record.root_pid = 77;
  record.processes = 2;
  record.image_path = "/home/alice/run/checkpoint";
  record.image_bytes = 512;
  record.manifest_sha256 = std::string(64, 'a');
  record.duration_ms = 1500;
  record.frozen_ms = 250;
  record.runs_on = false;
  return record;
}

class RecordFolderTest : public testing::Test {
 protected:
  RecordFolder open(std::size_t most, std::size_t most_of_one_user) const {
    return RecordFolder::open(path(), ::getegid(), most, most_of_one_user).value();
  }
  std::string path() const { return folder_.path_to("records"); }
  std::vector<std::string> names() const {
    const UniqueFd directory(::open(path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    auto names = names_in(directory.get()).value();
    std::ranges::sort(names);
    return names;
  }
  mode_t mode_of(const std::string& name) const {
    struct stat found{};
    EXPECT_EQ(::lstat(folder_.path_to(name).c_str(), &found), 0);
    return found.st_mode & 07777U;
  }

  test::TempDir folder_;
};

TEST(RecordTextTest, HasWhatIsKnownAndNothingElse) {
  EXPECT_EQ(Json::parse(record_text(saved())), Json::parse(R"({
    "format": 1, "time": "2026-11-28T16:00:00.123Z", "node": "n1", "scheduler": "slurm",
    "job": "4711", "user": {"name": "alice", "id": "1001"},
    "checkpoint": {"action": "made", "engine": "criu", "engine_version": "4.1.1", "root_pid": 77,
      "processes": 2, "image_path": "/home/alice/run/checkpoint", "image_bytes": 512,
      "manifest_sha256": ")" + std::string(64, 'a') + R"(",
      "duration_seconds": 1.5, "frozen_seconds": 0.25, "runs_on": false}})"));
  Record ended;
  ended.action = "ended";
  ended.exit_code = 0;
  EXPECT_EQ(Json::parse(record_text(ended))["checkpoint"],
            Json::parse(R"({"action": "ended", "exit_code": 0})"));
}

TEST(RecordTextTest, LeavesOutAPathThatIsNotUtf8OrTooLong) {
  Record record = saved();
  record.image_path = "/home/\xff/checkpoint";
  EXPECT_FALSE(Json::parse(record_text(record))["checkpoint"].contains("image_path"));
  // A control character is six bytes in JSON.
  record.image_path = "/" + std::string(4095, '\x01');
  const std::string text = record_text(record);
  EXPECT_LE(text.size(), kMostRecordBytes);
  EXPECT_FALSE(Json::parse(text)["checkpoint"].contains("image_path"));
  EXPECT_EQ(Json::parse(text)["checkpoint"]["root_pid"], 77);
}

TEST_F(RecordFolderTest, WritesWholeFilesThatOnlyTheGroupCanRead) {
  const mode_t before = ::umask(0077);
  RecordFolder records = open(10, 10);
  ASSERT_TRUE(records.write(saved()));
  ::umask(before);
  EXPECT_EQ(mode_of("records"), 02770U);
  ASSERT_EQ(names(), std::vector<std::string>{"1795881600123456789-1001.json"});
  EXPECT_EQ(mode_of("records/" + names().front()), 0640U);
  EXPECT_EQ(folder_.read("records/" + names().front()), record_text(saved()));
}

TEST_F(RecordFolderTest, KeepsTheOrderOfRecordsWhenTheClockIsSetBack) {
  RecordFolder records = open(10, 10);
  Record record = saved();
  ASSERT_TRUE(records.write(record));
  record.time.nanoseconds -= kSecond;
  record.action = "failed";
  ASSERT_TRUE(records.write(record));
  ASSERT_EQ(names().size(), 2U);
  EXPECT_EQ(folder_.read("records/" + names().back()), record_text(record));
}

TEST_F(RecordFolderTest, DropsWhatExceedsTheNumberOfOneUserAndOfAll) {
  RecordFolder records = open(3, 2);
  Record record = saved();
  ASSERT_TRUE(records.write(record));
  ASSERT_TRUE(records.write(record));
  EXPECT_EQ(records.write(record).error().kind(), ErrorKind::kExhausted);
  record.uid = 1;  // not the user "1001", whose names end in the same digit
  ASSERT_TRUE(records.write(record));
  EXPECT_EQ(records.write(record).error().kind(), ErrorKind::kExhausted);
  EXPECT_EQ(names().size(), 3U);
  // Once it is collected there is room again.
  ASSERT_EQ(::unlink((path() + "/" + names().front()).c_str()), 0);
  EXPECT_TRUE(records.write(record));
}

TEST_F(RecordFolderTest, FollowsNoLinkThatTheGroupHasPutThere) {
  RecordFolder records = open(10, 10);
  const std::string victim = folder_.write("victim", "safe");
  ASSERT_EQ(::symlink(victim.c_str(), (path() + "/.new").c_str()), 0);
  ASSERT_TRUE(records.write(saved()));
  EXPECT_EQ(folder_.read("victim"), "safe");
  EXPECT_EQ(folder_.read("records/" + names().front()), record_text(saved()));
}

TEST_F(RecordFolderTest, RefusesAFolderThatOthersCanChange) {
  open(10, 10);
  ASSERT_EQ(::chmod(path().c_str(), 02777), 0);
  EXPECT_EQ(RecordFolder::open(path(), ::getegid()).error().kind(), ErrorKind::kInvalidConfig);
  ASSERT_EQ(::chmod(path().c_str(), 02770), 0);
  EXPECT_TRUE(RecordFolder::open(path(), ::getegid()));
  ASSERT_EQ(::symlink(path().c_str(), folder_.path_to("link").c_str()), 0);
  EXPECT_FALSE(RecordFolder::open(folder_.path_to("link"), ::getegid()));
}

}  // namespace
}  // namespace scriptorium::checkpoint
