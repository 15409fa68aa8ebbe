#include "schedulers/checkpoint/user_records.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/record.h"
#include "core/base/accounts.h"
#include "tests/support/fake_clock.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::checkpoint_records {
namespace {

// Keeps what it is given.
class EventKeeper final : public EventWriter {
 public:
  Result<void> write(std::vector<Event> more, std::optional<std::string> /*position*/) override {
    if (is_full) return Error{ErrorKind::kTransient, "full"};
    for (Event& event : more) events.push_back(std::move(event));
    return {};
  }
  std::optional<std::string> position() const override { return std::nullopt; }
  std::map<std::string, std::size_t> count_by_user() const {
    std::map<std::string, std::size_t> count;
    for (const Event& event : events) ++count[event.user.id.value_or("")];
    return count;
  }

  bool is_full = false;
  std::vector<Event> events;
};

class UserRecordsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_.make_directory("records");
    clock_.jump_to(system_clock().now());  // as that of the files
  }
  std::string path(const std::string& name = {}) const {
    return folder_.path_to("records") + (name.empty() ? "" : "/" + name);
  }
  static checkpoint::Record saved(const std::string& job) {
    checkpoint::Record record;
    record.time = system_clock().now();
    record.node = "elsewhere";
    record.scheduler = "slurm";
    record.job = job;
    record.action = "made";
    record.engine = "app";
    record.runs_on = true;
    return record;
  }
  // As scriptorium-run does.
  void write(const std::string& job) {
    ASSERT_TRUE(checkpoint::write_user_record(path(), saved(job)));
  }
  void put(const std::string& name, const std::string& text) {
    folder_.write("records/" + name, text);
  }
  void give(const std::string& name, uid_t uid) const {
    ASSERT_EQ(::lchown(path(name).c_str(), uid, static_cast<gid_t>(-1)), 0);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path()))
      names.push_back(entry.path().filename());
    return names;
  }
  void collect() { ASSERT_TRUE(records_.collect(events_, {})); }

  test::TempDir folder_;
  test::RecordingLogger log_;
  test::FakeClock clock_;
  PluginContext context_{.name = "checkpoint", .cluster = "lab", .log = log_, .clock = clock_};
  EventKeeper events_;
  UserRecords records_{folder_.path_to("records"), context_};
};

TEST_F(UserRecordsTest, MakesAnUnverifiedEventOfTheFilesOwner) {
  const Timestamp before = system_clock().now();
  checkpoint::Record record = saved("4711");
  record.user = "root";  // what it says of itself does not count
  record.uid = 4294967;
  record.time = {1};
  ASSERT_TRUE(checkpoint::write_user_record(path(), record));
  collect();
  ASSERT_EQ(events_.events.size(), 1U);
  const Event& event = events_.events[0];
  EXPECT_FALSE(event.user.verified);
  EXPECT_EQ(event.user.id, std::to_string(::geteuid()));
  EXPECT_EQ(event.user.name, find_user(::geteuid()).value().value().name);
  EXPECT_EQ(event.user.unverified_reason, "a program of this user wrote it");
  EXPECT_GE(event.time.nanoseconds, before.nanoseconds - kSecond);
  EXPECT_EQ(event.host, "") << "core's";
  EXPECT_EQ(event.job.id, "4711");
  EXPECT_EQ(
      nlohmann::json::parse(event.extra_json),
      nlohmann::json::parse(R"({"checkpoint":{"action":"made","engine":"app","runs_on":true}})"));
  EXPECT_TRUE(names().empty());
  EXPECT_EQ(records_.status().records, 1U);
}

TEST_F(UserRecordsTest, KeepsARecordThatTheJournalDidNotTake) {
  write("1");
  events_.is_full = true;
  EXPECT_FALSE(records_.collect(events_, {}));
  EXPECT_EQ(names().size(), 1U);
}

TEST_F(UserRecordsTest, RemovesAndCountsWhatIsNotARecordAndTakesTheRest) {
  put("broken", "{\"format\": 1\n");
  put("service", "{\"format\": 2}\n");
  put("huge", std::string(std::size_t{1} << 20, ' '));
  const std::string record = checkpoint::record_text(saved("9"));
  const std::string victim = folder_.write("victim", record);
  ASSERT_EQ(::symlink(victim.c_str(), path("link").c_str()), 0);
  ASSERT_EQ(::symlink(path().c_str(), path("loop").c_str()), 0);
  ASSERT_EQ(::link(victim.c_str(), path("hard-link").c_str()), 0);
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  folder_.make_directory("records/directory");
  write("1");
  collect();
  EXPECT_EQ(events_.events.size(), 1U);
  EXPECT_EQ(records_.status().refused, 8U);
  EXPECT_EQ(log_.count("CHECKPOINT_USER_RECORDS_REMOVED"), 1U);
  EXPECT_TRUE(names().empty());
  EXPECT_EQ(folder_.read("victim"), record);
}

TEST_F(UserRecordsTest, WaitsAMinuteForTheEndOfAFileThatIsHalfWritten) {
  const std::string text = checkpoint::record_text(saved("1"));
  put("half", text.substr(0, 40));
  put("whole", text.substr(0, text.size() - 1));  // JSON as it must be, without the line break
  collect();
  EXPECT_EQ(names().size(), 2U);
  EXPECT_EQ(records_.status().refused, 0U);
  clock_.advance(std::chrono::seconds(UserRecords::kUnfinishedSeconds + 1));
  collect();
  EXPECT_TRUE(names().empty());
  EXPECT_EQ(records_.status().refused, 1U);
  EXPECT_EQ(events_.events.size(), 1U);
}

TEST_F(UserRecordsTest, RecordsBeyondTheRateOfAUserWaitAndThoseOfOthersDoNot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  for (std::size_t i = 0; i < 2 * UserRecords::kMostAMinute; ++i) write(std::to_string(i));
  put("others", checkpoint::record_text(saved("7")));
  give("others", 1);
  collect();
  EXPECT_EQ(events_.count_by_user(),
            (std::map<std::string, std::size_t>{{"0", UserRecords::kMostAMinute}, {"1", 1}}));
  collect();
  EXPECT_EQ(names().size(), UserRecords::kMostAMinute);
  clock_.advance(std::chrono::seconds(30));
  collect();
  EXPECT_EQ(names().size(), UserRecords::kMostAMinute / 2);
  clock_.advance(std::chrono::minutes(1));
  collect();
  EXPECT_TRUE(names().empty());
  EXPECT_EQ(records_.status().dropped, 0U);
  // In the order in which they were written.
  EXPECT_EQ(events_.events.back().job.id, std::to_string(2 * UserRecords::kMostAMinute - 1));
}

TEST_F(UserRecordsTest, AHundredThousandFilesOfOneUserDelayNobodyElse) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  constexpr std::size_t kFlood = 100'000;
  for (std::size_t i = 0; i < kFlood; ++i) {
    const std::string name = std::to_string(i);
    ASSERT_EQ(::mknod(path(name).c_str(), S_IFREG | 0600, 0), 0);
    give(name, 2);
  }
  put("others", checkpoint::record_text(saved("7")));
  give("others", 1);
  collect();
  EXPECT_EQ(events_.count_by_user(), (std::map<std::string, std::size_t>{{"1", 1}}));
  EXPECT_EQ(names().size(), UserRecords::kMostWaiting) << "they may be half written";
  EXPECT_EQ(records_.status().dropped, kFlood - UserRecords::kMostWaiting);
  EXPECT_EQ(log_.count("CHECKPOINT_USER_RECORDS_REMOVED"), 1U);
  clock_.advance(std::chrono::hours(1));
  collect();
  EXPECT_TRUE(names().empty());
  EXPECT_EQ(events_.events.size(), 1U);
}

TEST_F(UserRecordsTest, CountsFoldersThatCannotBeRemovedAndTakesTheRest) {
  folder_.write("records/directory/inside", "");
  write("1");
  collect();
  collect();
  EXPECT_EQ(events_.events.size(), 1U);
  EXPECT_EQ(records_.status().not_removed, 1U);
  EXPECT_EQ(records_.status().refused, 0U);
}

TEST_F(UserRecordsTest, RefusesFilesOfAnIdThatIsNotAUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  constexpr uid_t kNobodys = 3'999'999'999;
  ASSERT_FALSE(find_user(kNobodys).value());
  put("record", checkpoint::record_text(saved("7")));
  give("record", kNobodys);
  collect();
  EXPECT_TRUE(events_.events.empty());
  EXPECT_EQ(log_.last("CHECKPOINT_USER_RECORDS_REMOVED")->field("reason"),
            "its owner is not a user of this node");
  EXPECT_TRUE(names().empty());
}

TEST_F(UserRecordsTest, TheSameTextOfAnotherUserIsAnotherEvent) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const std::string text = checkpoint::record_text(saved("7"));
  put("a", text);
  put("b", text);
  give("b", 1);
  collect();
  ASSERT_EQ(events_.events.size(), 2U);
  EXPECT_NE(events_.events[0].id, events_.events[1].id);
  put("again", text);
  collect();
  ASSERT_EQ(events_.events.size(), 3U);
  EXPECT_EQ(events_.events[2].id, events_.events[0].id);
}

TEST_F(UserRecordsTest, AFolderThatIsNotThereIsEmpty) {
  std::filesystem::remove_all(path());
  collect();
  EXPECT_TRUE(log_.messages().empty());
  EXPECT_FALSE(checkpoint::write_user_record(path(), saved("1")));
  folder_.make_directory("records");
  write("1");
  collect();
  EXPECT_EQ(events_.events.size(), 1U);
}

TEST_F(UserRecordsTest, TheFoldersGroupCanReadWhatAJobWithAnyUmaskWrites) {
  const mode_t before = ::umask(0077);
  write("1");
  ::umask(before);
  struct stat found{};
  ASSERT_EQ(::stat(path(names().at(0)).c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777U, 0640U);
}

}  // namespace
}  // namespace scriptorium::checkpoint_records
