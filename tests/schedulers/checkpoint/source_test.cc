#include "schedulers/checkpoint/source.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/record.h"
#include "tests/support/fake_clock.h"
#include "tests/support/patience.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::checkpoint_records {
namespace {

using Json = nlohmann::json;

class Journal final : public EventWriter {
 public:
  Result<void> write(std::vector<Event> events, std::optional<std::string> position) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(position);
    if (on_write) on_write();
    if (is_full) return Error{ErrorKind::kTransient, "full"};
    for (const Event& event : events) {
      ids_.push_back(event.id);
      jobs_.push_back(event.job.id);
    }
    written_.notify_all();
    return {};
  }
  std::optional<std::string> position() const override { return std::nullopt; }

  std::vector<std::string> ids() const {
    const std::lock_guard lock(mutex_);
    return ids_;
  }
  std::vector<std::string> jobs() const {
    const std::lock_guard lock(mutex_);
    return jobs_;
  }
  bool wait_for(std::size_t events) {
    std::unique_lock lock(mutex_);
    return written_.wait_for(lock, test::kPatience, [&] { return ids_.size() >= events; });
  }

  bool is_full = false;
  std::function<void()> on_write;

 private:
  mutable std::mutex mutex_;
  std::condition_variable written_;
  std::vector<std::string> ids_;
  std::vector<std::string> jobs_;
};

class RecordsSourceTest : public testing::Test {
 protected:
  void SetUp() override {
    open_folder();
    folder_.make_directory("user-records");
  }
  void open_folder() { records_ = checkpoint::RecordFolder::open(path(), ::getegid()).value(); }
  std::string path() const { return folder_.path_to("records"); }
  std::string user_path() const { return folder_.path_to("user-records"); }
  // As the service writes it.
  void write(const std::string& job) {
    checkpoint::Record record;
    record.time = {1'795'881'600'000'000'000};
    record.node = "n1";
    record.scheduler = "slurm";
    record.job = job;
    record.user = "alice";
    record.uid = 1001;
    record.action = "made";
    ASSERT_TRUE(records_->write(record));
  }
  std::string put(const std::string& name, const std::string& text) {
    return folder_.write("records/" + name, text);
  }
  std::size_t files() const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(path())) ++count;
    return count;
  }
  Result<void> collect() { return source_.run(journal_, {}, true); }
  Json status() const { return Json::parse(source_.status_json()); }

  test::TempDir folder_;
  std::optional<checkpoint::RecordFolder> records_;
  test::RecordingLogger log_;
  test::FakeClock clock_;
  PluginContext context_{.name = "checkpoint", .cluster = "lab", .log = log_, .clock = clock_};
  Journal journal_;
  RecordsSource source_{{path(), user_path()}, context_};
};

TEST_F(RecordsSourceTest, GivesEachRecordToTheJournalInItsOrderAndRemovesIt) {
  for (const char* job : {"3", "1", "2"}) write(job);
  bool were_there = false;
  journal_.on_write = [&] { were_there = files() == 3; };
  ASSERT_TRUE(collect());
  EXPECT_TRUE(were_there) << "a record was removed before the journal had it";
  EXPECT_EQ(journal_.jobs(), (std::vector<std::string>{"3", "1", "2"}));
  EXPECT_EQ(files(), 0U);
  EXPECT_EQ(status()["records"], 3);
  EXPECT_TRUE(log_.messages().empty());
}

TEST_F(RecordsSourceTest, KeepsARecordThatTheJournalDidNotTake) {
  write("1");
  journal_.is_full = true;
  EXPECT_FALSE(collect());
  EXPECT_EQ(files(), 1U);
  journal_.is_full = false;
  ASSERT_TRUE(collect());
  EXPECT_EQ(journal_.jobs(), std::vector<std::string>{"1"});
  EXPECT_EQ(files(), 0U);
}

TEST_F(RecordsSourceTest, GivesARecordTheSameIdAfterACrashBeforeItsRemoval) {
  write("1");
  std::string name;
  for (const auto& entry : std::filesystem::directory_iterator(path()))
    name = entry.path().filename();
  const std::string text = folder_.read("records/" + name);
  ASSERT_TRUE(collect());
  put(name, text);
  RecordsSource again({path(), user_path()}, context_);
  ASSERT_TRUE(again.run(journal_, {}, true));
  ASSERT_EQ(journal_.ids().size(), 2U);
  EXPECT_EQ(journal_.ids()[0], journal_.ids()[1]);
}

TEST_F(RecordsSourceTest, RemovesAndCountsWhatIsNotARecordAndTakesTheRest) {
  write("1");
  put("0-broken.json", R"({"format": 1)");
  put("0-empty.json", "");
  put("0-huge.json", std::string(std::size_t{1} << 20, ' '));
  const std::string victim = folder_.write("victim", "safe");
  ASSERT_EQ(::symlink(victim.c_str(), (path() + "/0-link").c_str()), 0);
  ASSERT_EQ(::link(victim.c_str(), (path() + "/0-hard-link").c_str()), 0);
  ASSERT_EQ(::mkfifo((path() + "/0-fifo").c_str(), 0600), 0);
  folder_.make_directory("records/0-directory");
  write("2");
  put(".new", "being written");
  ASSERT_TRUE(collect());
  EXPECT_EQ(journal_.jobs(), (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(status()["refused"], 7);
  EXPECT_EQ(log_.count("CHECKPOINT_RECORD_REFUSED"), 7U);
  EXPECT_EQ(files(), 1U);
  EXPECT_EQ(folder_.read("records/.new"), "being written");
  EXPECT_EQ(folder_.read("victim"), "safe");
}

TEST_F(RecordsSourceTest, BelievesOnlyTheFoldersOwner) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  write("1");
  write("2");
  for (const auto& entry : std::filesystem::directory_iterator(path())) {
    ASSERT_EQ(::chown(entry.path().c_str(), 1, static_cast<gid_t>(-1)), 0);
    break;
  }
  ASSERT_TRUE(collect());
  EXPECT_EQ(journal_.jobs().size(), 1U);
  EXPECT_EQ(log_.last("CHECKPOINT_RECORD_REFUSED")->field("reason"),
            "it does not belong to the folder's owner");
  EXPECT_EQ(files(), 0U);
}

TEST_F(RecordsSourceTest, TakesWhatCannotBeRemovedOnce) {
  folder_.write("records/0-directory/inside", "");
  ASSERT_TRUE(collect());
  ASSERT_TRUE(collect());
  EXPECT_EQ(status()["refused"], 1);
  EXPECT_EQ(status()["not_removed"], 1);
  EXPECT_EQ(log_.count("CHECKPOINT_RECORDS_UNREADABLE"), 1U);
  ASSERT_EQ(::unlink((path() + "/0-directory/inside").c_str()), 0);
  ASSERT_TRUE(collect());
  EXPECT_EQ(status()["not_removed"], 0);
  EXPECT_EQ(files(), 0U);
}

TEST_F(RecordsSourceTest, WaitsForAFolderThatIsNotThere) {
  std::filesystem::remove_all(path());
  ASSERT_TRUE(collect());
  ASSERT_TRUE(collect());
  EXPECT_EQ(log_.count("CHECKPOINT_RECORDS_UNREADABLE"), 1U);
  open_folder();
  write("1");
  ASSERT_TRUE(collect());
  EXPECT_EQ(journal_.jobs(), std::vector<std::string>{"1"});
}

TEST_F(RecordsSourceTest, TakesThousandsOfRecords) {
  for (int i = 0; i < 600; ++i) write(std::to_string(i));
  ASSERT_TRUE(collect());
  EXPECT_EQ(journal_.jobs().size(), 600U);
  EXPECT_EQ(files(), 0U);
}

TEST_F(RecordsSourceTest, TakesARecordWhenItIsWrittenAndStopsWhenAsked) {
  // So rarely that only a notification lets it find the second one.
  RecordsSource watching({path(), user_path()}, context_, std::chrono::hours(24));
  write("1");
  std::optional<Result<void>> ended;
  {
    const std::jthread thread(
        [&](const std::stop_token& stop) { ended = watching.run(journal_, stop, false); });
    ASSERT_TRUE(journal_.wait_for(1));
    write("2");
    ASSERT_TRUE(journal_.wait_for(2));
    // Of a program, in the second folder.
    checkpoint::Record record;
    record.time = {1};
    record.scheduler = "slurm";
    record.job = "3";
    record.action = "made";
    ASSERT_TRUE(checkpoint::write_user_record(user_path(), record));
    ASSERT_TRUE(journal_.wait_for(3));
  }
  EXPECT_EQ(Json::parse(watching.status_json())["of_users"]["records"], 1);
  EXPECT_TRUE(ended.value());
}

}  // namespace
}  // namespace scriptorium::checkpoint_records
