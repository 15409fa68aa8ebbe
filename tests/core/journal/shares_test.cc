#include "core/journal/shares.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/support/event_factory.h"

namespace scriptorium::journal {
namespace {

constexpr std::uint64_t kMost = 4U << 20;

class SharesTest : public testing::Test {
 protected:
  Admission decide(const std::string& job) {
    event_.job.id = job;
    event_.id = event_id({job});
    const CaptureMark mark{.entry = "job." + job, .event_id = event_.id};
    return shares_.decide(held_, "slurm", event_, mark, true, now_);
  }
  void answer(const std::string& job, const std::string& uid) {
    User user;
    user.id = uid;
    user.verified = true;
    shares_.answer("slurm", event_id({job}), user);
  }

  Shares shares_{kMost, 25};
  // One user holds a full share.
  const std::map<std::string, std::uint64_t> charges_{{"1001", kMost / 4}};
  const Shares::Held held_{
      .used = kMost / 4, .unclaimed = 0, .largest = kMost / 4, .charges = charges_};
  Event event_ = [] {
    Event event = test::make_event_value("1");
    event.user = {};
    return event;
  }();
  SteadyTime now_{std::chrono::hours(1)};
};

TEST_F(SharesTest, HoweverManyEntriesOfOneUserWaitTheOthersAreAskedForAndTaken) {
  constexpr int kWaiting = 51'000;
  for (int job = 0; job < kWaiting; ++job) {
    ASSERT_EQ(decide(std::to_string(job)), Admission::kOverShare) << job;
    answer(std::to_string(job), "1001");
    ASSERT_EQ(decide(std::to_string(job)), Admission::kOverShare) << job;
  }
  ASSERT_EQ(decide("b"), Admission::kOverShare) << "the scheduler is to be asked";
  ASSERT_EQ(shares_.questions("slurm", 10, now_).size(), 1U);
  answer("b", "1002");
  EXPECT_EQ(decide("b"), Admission::kTaken);
  // The first ones stay known, so that they are not offered and asked for in turn.
  const CaptureMark first{.entry = "job.0", .event_id = event_id({"0"})};
  EXPECT_TRUE(shares_.refuses(held_, "slurm", first, now_));
}

TEST_F(SharesTest, WhatNobodyHasAnsweredForIsNotForgotten) {
  for (int job = 0; job < 50'000; ++job)
    ASSERT_EQ(decide(std::to_string(job)), Admission::kOverShare) << job;
  EXPECT_EQ(decide("b"), Admission::kFull);
  answer("7", "1001");
  EXPECT_EQ(decide("b"), Admission::kOverShare);
  EXPECT_EQ(shares_.question_count("slurm"), 50'000U);
}

}  // namespace
}  // namespace scriptorium::journal
