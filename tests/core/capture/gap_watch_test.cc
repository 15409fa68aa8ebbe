#include "core/capture/gap_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium {
namespace {

using std::chrono::seconds;
using Kind = NumberUse::Kind;

// A scheduler whose answer a test may change at any time.
class FakeScheduler final : public NumberResolver {
 public:
  struct State {
    Result<std::vector<NumberUse>> answer = std::vector<NumberUse>{};
    int questions = 0;
    std::vector<std::uint64_t> asked_about;
  };
  explicit FakeScheduler(std::shared_ptr<Guarded<State>> state) : state_(std::move(state)) {}
  Result<std::optional<std::vector<NumberUse>>> numbers(const Question& question, std::stop_token,
                                                        SteadyTime) override {
    return state_->with_notify([&](State& s) -> Result<std::optional<std::vector<NumberUse>>> {
      ++s.questions;
      s.asked_about = question.numbers;
      if (!s.answer) return s.answer.error();
      return std::optional(*s.answer);
    });
  }

 private:
  std::shared_ptr<Guarded<State>> state_;
};

class GapWatchTest : public testing::Test {
 protected:
  void SetUp() override {
    auto journal = Journal::open({.directory = directory_.path()}, log_, system_clock());
    ASSERT_TRUE(journal) << journal.error().message();
    journal_ = *std::move(journal);
  }
  void TearDown() override {
    watch_.reset();
    journal_.reset();
  }
  void open(bool asks = true) {
    watch_ = std::make_unique<GapWatch>(
        "toy", seconds{1}, asks ? std::make_unique<FakeScheduler>(scheduler_) : nullptr, *journal_,
        log_, system_clock());
    watch_->start();
  }

  void seen(std::uint64_t number) { watch_->seen({&number, 1}); }

  test::RecordingLogger log_;
  test::TempDir directory_;
  std::unique_ptr<Journal> journal_;
  std::shared_ptr<Guarded<FakeScheduler::State>> scheduler_ =
      std::make_shared<Guarded<FakeScheduler::State>>();
  std::unique_ptr<GapWatch> watch_;
};

TEST_F(GapWatchTest, AFewNumbersAreAskedForByName) {
  open();
  watch_->scanned();
  seen(10);
  seen(13);
  ASSERT_TRUE(scheduler_->wait_until({}, std::chrono::steady_clock::now() + seconds{60},
                                     [](const auto& s) { return s.questions > 0; }));
  EXPECT_THAT(scheduler_->with([](const auto& s) { return s.asked_about; }),
              testing::ElementsAre(11, 12));
}

TEST_F(GapWatchTest, ABatchOfNumbersThatNeverCameIsLoggedOnce) {
  scheduler_->with([](auto& s) {
    s.answer = std::vector<NumberUse>{{11, Kind::kWithoutScript}, {12, Kind::kOwnEntry}};
  });
  open();
  watch_->scanned();
  seen(10);
  seen(20);
  ASSERT_TRUE(log_.wait_for("JOB_NUMBERS_SKIPPED", 1, seconds{60})) << log_.text();
  ASSERT_TRUE(log_.wait_for("JOB_SCRIPT_NEVER_SEEN", 1, seconds{60})) << log_.text();
  EXPECT_EQ(log_.last("JOB_SCRIPT_NEVER_SEEN")->field("numbers"), "12");
  EXPECT_EQ(log_.last("JOB_NUMBERS_SKIPPED")->field("count"), "7");
  const GapStatus status = watch_->status();
  EXPECT_EQ(status.suspected, 7U);
  EXPECT_EQ(status.confirmed, 1U);
  EXPECT_EQ(status.without_script, 1U);
  EXPECT_GE(status.queries, 1U);
  EXPECT_EQ(log_.count("JOB_NUMBERS_SKIPPED"), 1U);
}

TEST_F(GapWatchTest, WhatWasKnownIsKnownAfterARestart) {
  open(false);
  watch_->scanned();
  seen(10);
  seen(12);
  watch_.reset();
  open(false);
  seen(14);  // at the next start's scan: 13 came and went in between
  watch_->scanned();
  EXPECT_EQ(watch_->status().highest, 14U);
  EXPECT_EQ(watch_->status().waiting + watch_->status().suspected, 2U);
}

TEST_F(GapWatchTest, ASchedulerThatDoesNotAnswerIsSaidAndNothingIsSuspectedYet) {
  scheduler_->with([](auto& s) { s.answer = Error{ErrorKind::kTransient, "nobody is at home"}; });
  open();
  watch_->scanned();
  seen(10);
  seen(12);
  ASSERT_TRUE(scheduler_->wait_until({}, std::chrono::steady_clock::now() + seconds{60},
                                     [](const auto& s) { return s.questions > 0; }));
  Guarded<int> nothing;
  while (!watch_->status().last_error)
    nothing.wait_until({}, std::chrono::steady_clock::now() + std::chrono::milliseconds{5},
                       [](int) { return false; });
  EXPECT_EQ(watch_->status().last_error, "nobody is at home");
  EXPECT_EQ(watch_->status().suspected, 0U);
  EXPECT_EQ(watch_->status().waiting, 1U);
}

TEST_F(GapWatchTest, ASchedulerThatDoesNotCountIsNeverAsked) {
  open();
  watch_->scanned();
  watch_.reset();
  EXPECT_EQ(scheduler_->with([](const auto& s) { return s.questions; }), 0);
  EXPECT_EQ(journal_->position("toy#numbers"), std::nullopt);
}

}  // namespace
}  // namespace scriptorium
