#include "checkpoint/queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>

namespace scriptorium::checkpoint {
namespace {

using std::chrono::seconds;

Request request(uid_t uid, std::string job, Action action = Action::kCheckpoint) {
  return {.kept = {}, .action = action, .owner = {std::move(job), uid, {}}, .body = {}};
}

constexpr std::int64_t kMany = 10'000;

TEST(RequestQueueTest, ReturnsOnlySoManyOfAUserInAMinuteAndKeepsTheOthers) {
  RequestQueue queue(60, 1000);
  for (int i = 0; i < 100; ++i) queue.add(request(1000, std::to_string(i)), {});
  queue.add(request(1001, "other"), {});
  const SteadyTime begin{std::chrono::hours(1)};
  int returned = 0;
  std::string last;
  while (const auto next = queue.next({}, kMany, begin)) {
    ++returned;
    last = next->owner.job;
  }
  EXPECT_EQ(returned, 61);
  EXPECT_EQ(last, "other") << "another user does not wait for them";
  EXPECT_EQ(queue.next({}, kMany, begin + seconds(1))->owner.job, "60");
  EXPECT_FALSE(queue.next({}, kMany, begin + seconds(1)));
  returned = 0;
  while (queue.next({}, kMany, begin + seconds(100))) ++returned;
  EXPECT_EQ(returned, 39) << "none was lost";
  EXPECT_TRUE(queue.is_empty());
}

TEST(RequestQueueTest, CountsOnlyWhatIsServedAgainstTheRate) {
  RequestQueue queue(1, 10);
  queue.add(request(1000, "1"), {});
  queue.add(request(1000, "2"), {});
  const SteadyTime begin{std::chrono::hours(1)};
  for (int tries = 0; tries < 3; ++tries) {
    auto next = queue.next({}, kMany, begin);
    ASSERT_TRUE(next);
    EXPECT_EQ(next->owner.job, "1");
    queue.put_back(*std::move(next));
  }
  EXPECT_EQ(queue.next({}, kMany, begin)->owner.job, "1");
  EXPECT_FALSE(queue.next({}, kMany, begin));
}

TEST(RequestQueueTest, BoundsWhatWaitsOfEachUser) {
  RequestQueue queue(10'000, 3);
  for (const char* job : {"1", "2", "3"}) {
    EXPECT_FALSE(queue.is_full(1000));
    queue.add(request(1000, job), {});
  }
  EXPECT_TRUE(queue.is_full(1000));
  EXPECT_FALSE(queue.is_full(1001));
}

TEST(RequestQueueTest, ServesASignalThatComesTwiceOnce) {
  RequestQueue queue(60, 10);
  Request first = request(1000, "7");
  first.kept = "1.7.checkpoint";
  Request second = request(1000, "7");
  second.kept = "2.7.checkpoint";
  EXPECT_FALSE(queue.add(first, {}));
  EXPECT_EQ(queue.add(second, {})->kept, first.kept) << "the newer one says what is meant now";
  // Another user's request of that job is another one: it will be refused for what it is.
  EXPECT_FALSE(queue.add(request(1001, "7"), {}));
  EXPECT_FALSE(queue.add(request(1000, "7", Action::kResume), {}));
  EXPECT_EQ(queue.next({}, kMany, {})->kept, second.kept);
  EXPECT_EQ(queue.add(first, {&second})->kept, first.kept) << "it is being served";
}

TEST(RequestQueueTest, PrefersTheUserWithTheFewestBeingServed) {
  RequestQueue queue(60, 10);
  for (const char* job : {"1", "2", "3"}) queue.add(request(1000, job), {});
  queue.add(request(1001, "4"), {});
  const auto first = queue.next({}, 2, {});
  ASSERT_TRUE(first);
  EXPECT_EQ(first->owner.job, "1");
  EXPECT_EQ(queue.next({&*first}, 1, {})->owner.job, "4");
  EXPECT_FALSE(queue.next({&*first}, 1, {})) << "this user has one being served";
  EXPECT_EQ(queue.next({&*first}, 2, {})->owner.job, "2");
  EXPECT_EQ(queue.next({}, 1, {})->owner.job, "3");
  EXPECT_FALSE(queue.next({}, 1, {}));
}

}  // namespace
}  // namespace scriptorium::checkpoint
