#include "schedulers/usage/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "schedulers/usage/state.h"
#include "tests/schedulers/usage/cgroup_lab.h"
#include "tests/support/recording_logger.h"

namespace scriptorium::usage {
namespace {

using namespace std::chrono_literals;
using nlohmann::literals::operator""_json_pointer;
using scriptorium::test::RecordingLogger;
using test::CgroupLab;
using test::V1Job;
using ::testing::HasSubstr;

// A journal that can be full: write() then waits, as core's does.
class Journal final : public EventWriter {
 public:
  Result<void> write(std::vector<Event> events, std::optional<std::string> /*position*/) override {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !full_ || closed_; });
    --waiting_;
    if (full_) return Error{ErrorKind::kTransient, "the journal is full, and the daemon ends"};
    for (Event& event : events) events_.push_back(std::move(event));
    changed_.notify_all();
    return {};
  }
  std::optional<std::string> position() const override { return std::nullopt; }

  void set_full(bool full) {
    std::lock_guard lock(mutex_);
    full_ = full;
    changed_.notify_all();
  }
  void close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  std::vector<Event> events(const std::string& kind) const {
    std::lock_guard lock(mutex_);
    std::vector<Event> found;
    for (const Event& event : events_) {
      if (event.kind == kind) found.push_back(event);
    }
    return found;
  }
  template <typename Ready>
  bool wait(Ready ready) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 120s, [&] { return ready(events_, waiting_); });
  }
  bool wait_for(const std::string& kind, std::size_t count) const {
    return wait([&](const std::vector<Event>& all, int /*waiting*/) {
      return static_cast<std::size_t>(std::count_if(
                 all.begin(), all.end(), [&](const Event& e) { return e.kind == kind; })) >= count;
    });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<Event> events_;
  bool full_ = false, closed_ = false;
  int waiting_ = 0;
};

class UsageSourceTest : public ::testing::Test {
 protected:
  UsageSourceTest() {
    lab_.dir().write("proc/meminfo", "MemTotal: 1000 kB\n");
    lab_.dir().write("proc/sys/kernel/random/boot_id", "boot-1\n");
    lab_.write("memory/slurm/uid_1001/cgroup.procs", "");
    config_.root = lab_.root();
    config_.proc = lab_.proc();
    config_.node = "n1";
    config_.interval_seconds = 1;
    config_.state_file = lab_.path("state/usage.state");
    config_.gpus = false;
    config_.process_io = false;
    config_.jobs.resolve = Resolve::kNone;
  }
  ~UsageSourceTest() override { stop(); }

  CgroupLab lab_;
  RecordingLogger log_;
  Journal journal_;
  UsageConfig config_;
  std::unique_ptr<UsageSource> source_;
  std::jthread thread_;

  void start() {
    source_ =
        std::make_unique<UsageSource>(config_, PluginContext{"usage", "lab", log_, system_clock()});
    thread_ = std::jthread([this](const std::stop_token& stop) {
      EXPECT_TRUE(source_->run(journal_, stop, false).has_value());
    });
  }
  void stop() {
    if (!thread_.joinable()) return;
    thread_.request_stop();
    journal_.close();
    thread_.join();
  }
  // Until a condition that no event tells is true; false after a long time.
  template <typename Condition>
  static bool until(Condition condition) {
    const auto limit = std::chrono::steady_clock::now() + 120s;
    std::mutex mutex;
    std::condition_variable nothing;
    std::unique_lock lock(mutex);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > limit) return false;
      nothing.wait_for(lock, 5ms);
    }
    return true;
  }
  nlohmann::json status() const { return nlohmann::json::parse(source_->status_json()); }
  std::string state() const {
    return lab_.dir().exists("state/usage.state") ? lab_.dir().read("state/usage.state") : "";
  }
  // Until the source has read all that stands there now: one sweep may be under way, the next one
  // begins after this call.
  bool swept() {
    const auto before = status()["sweeps"].get<int>();
    return until([&] { return status()["sweeps"].get<int>() > before + 1; });
  }
  // A job as of now: its start is then what the machine's clock says. A source that runs has read
  // all of it before the test goes on; it was not there at the first look, which takes what has no
  // process for a left-over.
  std::unique_ptr<V1Job> job(const std::string& id) {
    const bool runs = thread_.joinable();
    EXPECT_TRUE(!runs || until([&] { return status()["sweeps"].get<int>() > 0; }));
    auto made = std::make_unique<V1Job>(lab_, id, "elsewhere", "1001", system_clock().now());
    made->appear();
    EXPECT_TRUE(!runs || swept());
    return made;
  }
  bool sees(const std::string& id) {
    return until([&] { return state().find("\"id\":\"" + id + "\"") != std::string::npos; });
  }
};

TEST_F(UsageSourceTest, TellsOfANodeAndOfItsJob) {
  start();
  const auto seven = job("7");
  ASSERT_TRUE(sees("7"));
  // The extern step's sleep outlives the tasks, so the job is none of those of which an empty
  // directory is left.
  lab_.write(seven->of("memory") + "/step_extern/task_special/cgroup.procs", "100\n");
  seven->cpu(2);
  seven->end_tasks();
  ASSERT_TRUE(swept()) << "the last reading is one of standing groups";
  seven->vanish();
  ASSERT_TRUE(journal_.wait_for("usage.node", 1));
  ASSERT_TRUE(journal_.wait_for("usage.job", 1));
  const Event node = journal_.events("usage.node").at(0);
  EXPECT_EQ(node.job.id, "7");
  EXPECT_EQ(node.scheduler, "slurm");
  EXPECT_EQ(node.host, "n1");
  EXPECT_EQ(node.capture, "cgroup1");
  EXPECT_TRUE(node.user.verified);
  EXPECT_EQ(node.user.id, "1001");
  EXPECT_EQ(node.id.size(), 64U);
  const auto extra = nlohmann::json::parse(node.extra_json);
  EXPECT_EQ(extra["usage"]["quality"]["last_read"], "removal");
  EXPECT_TRUE(extra["job"].contains("started_at"));
  EXPECT_TRUE(journal_.events("usage.sample").empty()) << "nobody asked for them";
  EXPECT_TRUE(until([&] { return state().find("\"id\":\"7\"") == std::string::npos; }))
      << "all that was to be told is told";
}

TEST_F(UsageSourceTest, AFullJournalDoesNotStopTheSampling) {
  config_.samples = true;
  start();
  const auto seven = job("7");
  const auto eight = job("8");
  ASSERT_TRUE(sees("8"));
  journal_.set_full(true);
  ASSERT_TRUE(journal_.wait([](const auto& /*events*/, int waiting) { return waiting > 0; }));
  const auto sweeps = status()["sweeps"].get<int>();
  seven->cpu(3);
  seven->end_tasks();
  seven->vanish();
  ASSERT_TRUE(until([&] { return status()["sweeps"].get<int>() > sweeps + 1; }));
  ASSERT_TRUE(until([&] { return state().find("ended {\"job\"") != std::string::npos; }))
      << "the summary waits in the state file";
  EXPECT_TRUE(journal_.events("usage.node").empty());
  journal_.set_full(false);
  ASSERT_TRUE(journal_.wait_for("usage.node", 1));
  EXPECT_EQ(journal_.events("usage.node").at(0).job.id, "7");
}

TEST_F(UsageSourceTest, WhatCouldNotBeToldIsToldAfterARestart) {
  start();
  const auto seven = job("7");
  ASSERT_TRUE(sees("7"));
  journal_.set_full(true);
  seven->cpu(3);
  seven->end_tasks();
  seven->vanish();
  ASSERT_TRUE(until([&] { return state().find("ended {\"job\"") != std::string::npos; }));
  stop();
  EXPECT_TRUE(journal_.events("usage.node").empty());
  journal_.set_full(false);
  start();
  ASSERT_TRUE(journal_.wait_for("usage.node", 1));
  ASSERT_TRUE(journal_.wait_for("usage.job", 1));
  stop();
  EXPECT_EQ(journal_.events("usage.node").size(), 1U);
  const std::string extra = journal_.events("usage.node").at(0).extra_json;
  const auto usage = nlohmann::json::parse(extra)["usage"];
  ASSERT_TRUE(usage.contains("/cpu/time_seconds"_json_pointer)) << extra;
  EXPECT_NEAR(usage["cpu"]["time_seconds"].get<double>(), 3, 1e-6);
}

TEST_F(UsageSourceTest, ARestartInTheMiddleOfAJobGivesOneEventWithTheSameId) {
  start();
  const auto seven = job("7");
  ASSERT_TRUE(sees("7"));
  stop();
  const auto before = parse_state(state());
  ASSERT_TRUE(before.has_value()) << before.error().message();
  ASSERT_EQ(before->lives.size(), 1U);
  start();
  const auto eight = job("8");
  ASSERT_TRUE(sees("8"));
  seven->cpu(5);
  seven->end_tasks();
  seven->vanish();
  ASSERT_TRUE(journal_.wait_for("usage.node", 1));
  stop();
  ASSERT_EQ(journal_.events("usage.node").size(), 1U);
  const Event node = journal_.events("usage.node").at(0);
  EXPECT_EQ(node.time, before->lives[0].job.started_at);
}

TEST_F(UsageSourceTest, OneRunReadsEveryJobAndEnds) {
  config_.samples = true;
  const auto seven = job("7");
  UsageSource source(config_, PluginContext{"usage", "lab", log_, system_clock()});
  ASSERT_TRUE(source.run(journal_, {}, true).has_value());
  EXPECT_EQ(journal_.events("usage.sample").size(), 1U);
  EXPECT_TRUE(journal_.events("usage.node").empty());
  seven->vanish();
  UsageSource again(config_, PluginContext{"usage", "lab", log_, system_clock()});
  ASSERT_TRUE(again.run(journal_, {}, true).has_value());
  ASSERT_EQ(journal_.events("usage.node").size(), 1U);
  EXPECT_FALSE(journal_.events("usage.node").at(0).complete);
  EXPECT_EQ(journal_.events("usage.job").size(), 1U);
}

TEST_F(UsageSourceTest, ADamagedStateFileIsSaidAndCostsNoMoreThanWhatItHeld) {
  lab_.dir().write("state/usage.state", "not ours\n");
  start();
  ASSERT_TRUE(log_.wait_for("USAGE_STATE_DAMAGED"));
  const auto seven = job("7");
  ASSERT_TRUE(sees("7"));
  EXPECT_TRUE(state().starts_with("scriptorium-usage-state 1 boot-1\n")) << state().substr(0, 60);
}

TEST_F(UsageSourceTest, AStateFileThatCannotBeWrittenIsSaidOnceAndJobsAreMeasuredAllTheSame) {
  lab_.dir().write("state", "a file where a folder should be");
  start();
  const auto seven = job("7");
  ASSERT_TRUE(log_.wait_for("USAGE_STATE_NOT_SAVED"));
  EXPECT_THAT(status()["state_file_error"].get<std::string>(), HasSubstr("state"));
  seven->vanish();
  ASSERT_TRUE(journal_.wait_for("usage.node", 1));
  EXPECT_EQ(log_.count("USAGE_STATE_NOT_SAVED"), 1U);
}

TEST_F(UsageSourceTest, TwoSourcesOnOneStateFileDoNotRunSideBySide) {
  start();
  const auto seven = job("7");
  ASSERT_TRUE(sees("7"));
  UsageSource second(config_, PluginContext{"second", "lab", log_, system_clock()});
  const auto refused = second.run(journal_, {}, true);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().kind(), ErrorKind::kTransient);
  EXPECT_THAT(refused.error().message(),
              HasSubstr("another usage source works on " + config_.state_file));
  stop();
  EXPECT_TRUE(second.run(journal_, {}, true).has_value()) << "the first one has ended";
}

TEST_F(UsageSourceTest, FilesOfProgramsThatCannotBeFoundAreSaidOnceAndNothingElseIsMissing) {
  config_.executables = true;
  start();
  ASSERT_TRUE(log_.wait_for("USAGE_NO_EXECUTABLES"));
  const auto seven = job("7");
  ASSERT_TRUE(sees("7"));
  EXPECT_EQ(log_.count("USAGE_NO_EXECUTABLES"), 1U);
}

TEST_F(UsageSourceTest, CheckSaysWhereControlGroupsAreMissing) {
  config_.root = lab_.path("nowhere");
  UsageSource source(config_, PluginContext{"usage", "lab", log_, system_clock()});
  const auto checked = source.check();
  ASSERT_FALSE(checked.has_value());
  EXPECT_EQ(checked.error().kind(), ErrorKind::kInvalidConfig);
  EXPECT_THAT(checked.error().message(), HasSubstr("findmnt"));
}

}  // namespace
}  // namespace scriptorium::usage
