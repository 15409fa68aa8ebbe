#include "core/api/kit/inbox.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace scriptorium {
namespace {

using namespace std::chrono_literals;

const SteadyTime kNever = SteadyTime{} + std::chrono::hours{24 * 365};

TEST(InboxTest, TakesNothingWhileItIsClosed) {
  Inbox<int> inbox;
  std::vector<int> items{1, 2};
  EXPECT_FALSE(inbox.put(items));
  EXPECT_EQ(items.size(), 2U);
  inbox.open();
  EXPECT_TRUE(inbox.put(items));
  EXPECT_TRUE(items.empty());
  EXPECT_EQ(inbox.size(), 2U);
}

TEST(InboxTest, WhatWasPutBeforeTheEndIsStillThere) {
  Inbox<std::unique_ptr<int>> inbox;
  inbox.open();
  std::vector<std::unique_ptr<int>> items;
  items.push_back(std::make_unique<int>(7));
  EXPECT_TRUE(inbox.put(items));
  inbox.close(kNever);
  const auto content = inbox.take();
  ASSERT_EQ(content.items.size(), 1U);
  EXPECT_EQ(*content.items[0], 7);
  EXPECT_EQ(content.stop_at, kNever);
}

TEST(InboxTest, OfTwoDeadlinesTheEarlierCounts) {
  Inbox<int> inbox;
  inbox.open();
  inbox.close(kNever);
  inbox.close(kNever - 1h);
  inbox.close(kNever);
  EXPECT_EQ(inbox.take().stop_at, kNever - 1h);
  inbox.open();
  EXPECT_FALSE(inbox.take().stop_at);
}

TEST(InboxTest, AWaitEndsWithAnItemWithTheEndAndWithItsTime) {
  Inbox<int> inbox;
  inbox.open();
  inbox.wait_until(std::chrono::steady_clock::now() + 1ms);
  {
    const std::jthread other([&] {
      std::vector<int> items{1};
      static_cast<void>(inbox.put(items));
    });
    inbox.wait_until(kNever + std::chrono::steady_clock::now().time_since_epoch());
  }
  EXPECT_EQ(inbox.take().items.size(), 1U);
  const std::jthread other([&] { inbox.close(kNever); });
  inbox.wait_until(kNever + std::chrono::steady_clock::now().time_since_epoch());
  EXPECT_EQ(inbox.take().stop_at, kNever);
}

}  // namespace
}  // namespace scriptorium
