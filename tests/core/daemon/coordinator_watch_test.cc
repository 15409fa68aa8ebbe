#include "core/daemon/coordinator_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/fake_clock.h"
#include "tests/support/patience.h"
#include "tests/support/recording_logger.h"

namespace scriptorium {
namespace {

using test::kPatience;

class FakeScheduler final : public SpoolAdapter {
 public:
  struct State {
    int failures = 0;  // that come first
    bool knows_none = false;
    int asked = 0;
  };
  std::string scheduler() const override { return "toy"; }
  std::string spool_root() const override { return "/"; }
  SpoolPath classify(std::string_view /*path*/) const override { return {}; }
  Assessment assess(const SpoolEntry& /*entry*/) const override { return {}; }
  Result<ParsedJob> parse(const SpoolEntry& /*entry*/) const override { return ParsedJob{}; }
  Result<KnownCoordinators> coordinators(const std::stop_token& /*stop*/,
                                         SteadyTime /*deadline*/) const override {
    const int number = state.with_notify([](State& s) { return ++s.asked; });
    if (number == 1 && failures() > 0) throw std::runtime_error("a bug");
    if (number <= failures()) return Error{ErrorKind::kTransient, "does not answer"};
    if (state.with([](const State& s) { return s.knows_none; })) return KnownCoordinators{};
    return KnownCoordinators{{{"chem", {"alice", std::to_string(number)}}}};
  }
  int failures() const {
    return state.with([](const State& s) { return s.failures; });
  }
  mutable Guarded<State> state;
};

// A sink that may keep coordinators, and does not do anything else.
class Keeper final : public Sink, public Searchable {
 public:
  explicit Keeper(bool keeps) : keeps_(keeps) {}
  void deliver(std::vector<Delivery> /*batch*/) override {}
  Searchable* searchable() override { return this; }
  Speed speed() const noexcept override { return Speed::kScan; }
  Result<Answer> search(const Request& /*request*/) override { return Answer{}; }
  Result<std::vector<Record>> get(const Selector& /*selector*/, const Visibility& /*visibility*/,
                                  std::size_t /*limit*/) override {
    return std::vector<Record>{};
  }
  Result<std::vector<JobRow>> family(std::uint64_t /*family*/, const Visibility& /*visibility*/,
                                     std::optional<Timestamp> /*before*/,
                                     std::size_t /*limit*/) override {
    return std::vector<JobRow>{};
  }
  Result<std::vector<CoordinatorList>> coordinators() override {
    asked.with_notify([](int& count) { ++count; });
    if (!keeps_) return Searchable::coordinators();
    // One that cannot be read is replaced, too.
    return Error{ErrorKind::kCorrupt, "damaged"};
  }
  Result<void> keep_coordinators(const CoordinatorList& list) override {
    kept.with_notify([&](std::vector<CoordinatorList>& all) { all.push_back(list); });
    return {};
  }
  bool wait_for(std::size_t count) {
    return kept.wait_until({}, std::chrono::steady_clock::now() + kPatience,
                           [&](const auto& all) { return all.size() >= count; });
  }
  Guarded<std::vector<CoordinatorList>> kept;
  Guarded<int> asked;  // whether it keeps any

 private:
  const bool keeps_;
};

class CoordinatorWatchTest : public ::testing::Test {
 protected:
  FakeScheduler scheduler_;
  std::shared_ptr<Keeper> keeper_ = std::make_shared<Keeper>(true);
  std::shared_ptr<Keeper> other_ = std::make_shared<Keeper>(false);
  Guarded<std::vector<std::shared_ptr<Sink>>> sinks_{{other_, keeper_}};
  test::RecordingLogger log_;
  test::FakeClock clock_;
  CoordinatorWatch watch_{
      "slurm",    "lab",
      scheduler_, [this] { return sinks_.with([](const auto& all) { return all; }); },
      log_,       clock_};
};

TEST_F(CoordinatorWatchTest, BringsTheListToThoseThatKeepIt) {
  watch_.start();
  ASSERT_TRUE(keeper_->wait_for(1));
  watch_.ask_now();
  ASSERT_TRUE(keeper_->wait_for(2));
  EXPECT_TRUE(watch_.stop(std::chrono::steady_clock::now() + kPatience));
  const auto kept = keeper_->kept.with([](const auto& all) { return all; });
  EXPECT_EQ(kept[0].cluster, "lab");
  EXPECT_EQ(kept[0].asked_at, clock_.now());
  ASSERT_EQ(kept[1].accounts.size(), 1U);
  EXPECT_EQ(kept[1].accounts[0].account, "chem");
  EXPECT_THAT(kept[1].accounts[0].users, testing::ElementsAre("alice", "2"));
  EXPECT_TRUE(other_->kept.with([](const auto& all) { return all.empty(); }));
}

TEST_F(CoordinatorWatchTest, AsksAgainAfterAFailureAndKeepsNothingMeanwhile) {
  scheduler_.state.with([](auto& state) { state.failures = 2; });
  watch_.start();
  ASSERT_TRUE(keeper_->wait_for(1));
  EXPECT_TRUE(watch_.stop(std::chrono::steady_clock::now() + kPatience));
  const auto kept = keeper_->kept.with([](const auto& all) { return all; });
  EXPECT_THAT(kept[0].accounts.at(0).users, testing::ElementsAre("alice", "3"));
}

// As one of two sources of a cluster.
TEST_F(CoordinatorWatchTest, ASchedulerWithoutCoordinatorsReplacesNothing) {
  scheduler_.state.with([](auto& state) { state.knows_none = true; });
  watch_.start();
  for (const int rounds : {1, 2}) {
    ASSERT_TRUE(scheduler_.state.wait_until({}, std::chrono::steady_clock::now() + kPatience,
                                            [&](const auto& s) { return s.asked >= rounds; }));
    watch_.ask_now();
  }
  EXPECT_TRUE(watch_.stop(std::chrono::steady_clock::now() + kPatience));
  EXPECT_TRUE(keeper_->kept.with([](const auto& all) { return all.empty(); }));
}

TEST_F(CoordinatorWatchTest, ASchedulerIsNotAskedForNobody) {
  sinks_.with([&](auto& all) { all = {other_}; });
  watch_.start();
  for (const int rounds : {1, 2}) {
    ASSERT_TRUE(other_->asked.wait_until({}, std::chrono::steady_clock::now() + kPatience,
                                         [&](int count) { return count >= rounds; }));
    watch_.ask_now();
  }
  // The first round has ended.
  EXPECT_EQ(scheduler_.state.with([](const auto& state) { return state.asked; }), 0);
  // A sink that comes later, by a reload.
  sinks_.with([&](auto& all) { all.push_back(keeper_); });
  watch_.ask_now();
  ASSERT_TRUE(keeper_->wait_for(1));
  EXPECT_TRUE(watch_.stop(std::chrono::steady_clock::now() + kPatience));
}

}  // namespace
}  // namespace scriptorium
