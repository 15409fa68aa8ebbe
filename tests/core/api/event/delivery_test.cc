#include "core/api/delivery.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/event_factory.h"

namespace scriptorium {
namespace {

class Recorder final : public Settler {
 public:
  void settled(Settlement settlement) noexcept override { all.push_back(std::move(settlement)); }
  std::vector<Settlement> all;
};

class DeliveryTest : public testing::Test {
 protected:
  Delivery make(std::uint64_t token) { return {test::make_event("1"), 1, recorder_, token}; }

  std::shared_ptr<Recorder> recorder_ = std::make_shared<Recorder>();
};

TEST_F(DeliveryTest, OnlyTheFirstSettlementCounts) {
  Delivery delivery = make(7);
  delivery.acknowledge();
  delivery.reject("too late");
  delivery.retry("too late");
  ASSERT_EQ(recorder_->all.size(), 1U);
  EXPECT_EQ(recorder_->all[0].outcome, Outcome::kAcknowledged);
  EXPECT_EQ(recorder_->all[0].token, 7U);
  EXPECT_TRUE(delivery.settled());
}

TEST_F(DeliveryTest, DestroyedUnsettledIsARetryThatSaysSo) {
  {
    const Delivery delivery = make(7);
  }
  ASSERT_EQ(recorder_->all.size(), 1U);
  EXPECT_EQ(recorder_->all[0].outcome, Outcome::kRetry);
  EXPECT_TRUE(recorder_->all[0].by_destructor);
}

TEST_F(DeliveryTest, MovesDoNotSettleAndAssignmentSettlesWhatItReplaces) {
  Delivery first = make(1);
  Delivery moved(std::move(first));
  EXPECT_TRUE(recorder_->all.empty());
  moved = make(2);
  ASSERT_EQ(recorder_->all.size(), 1U);
  EXPECT_EQ(recorder_->all[0].token, 1U);
  EXPECT_TRUE(recorder_->all[0].by_destructor);
  moved.retry("429", std::chrono::seconds{5});
  EXPECT_EQ(recorder_->all[1].hint, std::chrono::milliseconds{5000});
}

}  // namespace
}  // namespace scriptorium
