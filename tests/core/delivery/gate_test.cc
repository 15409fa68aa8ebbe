#include "core/delivery/gate.h"

#include <gtest/gtest.h>

namespace scriptorium::delivery {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr Gate::Outcome kFreshRefusal{.fresh = true, .refused = true};
constexpr Gate::Outcome kProbeRefusal{.fresh = true, .probe = true, .refused = true};
constexpr Gate::Outcome kProbeAccepted{.fresh = true, .probe = true, .accepted = true};

class GateTest : public testing::Test {
 protected:
  // Closes the gate and lets the probe pass.
  void close_and_probe() {
    gate_.conclude(kFreshRefusal, now_);
    now_ = gate_.retry_at();
    ASSERT_TRUE(gate_.begin_probe(now_));
  }

  SteadyTime now_{seconds{1000}};
  Gate gate_{milliseconds{60'000}, 7};
};

TEST_F(GateTest, IsOpenAtFirstAndLetsNoProbePass) {
  EXPECT_FALSE(gate_.is_closed());
  EXPECT_FALSE(gate_.awaits_probe());
  EXPECT_FALSE(gate_.begin_probe(now_));
}

TEST_F(GateTest, ARefusedFreshBatchClosesItUntilTheBackOffIsOver) {
  EXPECT_EQ(gate_.conclude({.fresh = true, .refused = true, .hint = seconds{5}}, now_),
            Gate::Announcement::kDown);
  EXPECT_TRUE(gate_.is_closed());
  EXPECT_GE(gate_.retry_at(), now_ + seconds{5});
  EXPECT_FALSE(gate_.begin_probe(gate_.retry_at() - milliseconds{1}));
  EXPECT_TRUE(gate_.begin_probe(gate_.retry_at()));
}

TEST_F(GateTest, LetsOneProbePassAtATime) {
  close_and_probe();
  EXPECT_FALSE(gate_.awaits_probe());
  EXPECT_FALSE(gate_.begin_probe(now_ + minutes{5}));
  gate_.conclude(kProbeRefusal, now_);
  EXPECT_TRUE(gate_.awaits_probe());
}

TEST_F(GateTest, AnAcceptedProbeOpensIt) {
  close_and_probe();
  EXPECT_EQ(gate_.conclude(kProbeAccepted, now_), Gate::Announcement::kBack);
  EXPECT_FALSE(gate_.is_closed());
}

TEST_F(GateTest, ARefusalOfParkedEventsSaysNothingOfTheDestination) {
  EXPECT_EQ(gate_.conclude({.refused = true}, now_), Gate::Announcement::kNone);
  EXPECT_FALSE(gate_.is_closed());
}

TEST_F(GateTest, AnAcceptedParkedEventCountsButOpensNothing) {
  gate_.conclude(kFreshRefusal, now_);
  EXPECT_EQ(gate_.conclude({.accepted = true}, now_), Gate::Announcement::kNone);
  EXPECT_EQ(gate_.accepts(), 1U);
  EXPECT_TRUE(gate_.is_closed());
}

TEST_F(GateTest, AfterAProbeOnWhichThePluginThrewTheNextMayPassAtOnce) {
  close_and_probe();
  EXPECT_EQ(gate_.conclude({.fresh = true, .probe = true}, now_), Gate::Announcement::kNone);
  EXPECT_TRUE(gate_.is_closed());
  EXPECT_TRUE(gate_.begin_probe(now_));
}

TEST_F(GateTest, OfSeveralBatchesUnderWayOnlyTheFirstCountsAsAFailure) {
  gate_.conclude(kFreshRefusal, now_);
  const SteadyTime retry_at = gate_.retry_at();
  gate_.conclude(kFreshRefusal, now_);
  EXPECT_EQ(gate_.retry_at(), retry_at);
}

TEST_F(GateTest, AHintOfALaterBatchProlongsTheBackOffAndNeverShortensIt) {
  gate_.conclude({.fresh = true, .refused = true, .hint = seconds{50}}, now_);
  gate_.conclude({.fresh = true, .refused = true, .hint = seconds{5}}, now_);
  EXPECT_GE(gate_.retry_at(), now_ + seconds{50});
  gate_.conclude({.fresh = true, .refused = true, .hint = seconds{90}}, now_);
  EXPECT_GE(gate_.retry_at(), now_ + seconds{90});
}

TEST_F(GateTest, AnnouncesADownDestinationOnceAndAgainAfterTenMinutes) {
  close_and_probe();  // announced
  EXPECT_EQ(gate_.conclude(kProbeRefusal, now_), Gate::Announcement::kNone);
  now_ += minutes{10};
  ASSERT_TRUE(gate_.begin_probe(now_));
  EXPECT_EQ(gate_.conclude(kProbeRefusal, now_), Gate::Announcement::kDown);
}

TEST_F(GateTest, SaysThatADestinationIsBackOnlyIfItSaidThatItWasDown) {
  EXPECT_EQ(gate_.conclude({.fresh = true, .accepted = true}, now_), Gate::Announcement::kNone);
}

TEST_F(GateTest, ForgettingTheBackOffLetsAProbePassAtOnce) {
  gate_.conclude({.fresh = true, .refused = true, .hint = minutes{30}}, now_);
  gate_.forget_back_off(now_);
  EXPECT_TRUE(gate_.begin_probe(now_));
}

}  // namespace
}  // namespace scriptorium::delivery
