#include "checkpoint/queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>

namespace scriptorium::checkpoint {
namespace {

using std::chrono::seconds;
using Added = RequestQueue::Added;

Request request(uid_t uid, std::string job, Action action = Action::kCheckpoint) {
  return {.action = action, .owner = {std::move(job), uid, {}}, .body = {}};
}

TEST(RequestQueueTest, RefusesWhatAUserSendsFasterThanAllowed) {
  RequestQueue queue(60, 1000);
  const SteadyTime begin{};
  int accepted = 0;
  for (int i = 0; i < 500; ++i)
    accepted += queue.add(request(1000, std::to_string(i)), {}, begin) == Added::kYes ? 1 : 0;
  EXPECT_EQ(accepted, 60);
  EXPECT_EQ(queue.add(request(1001, "1"), {}, begin), Added::kYes) << "another user";
  EXPECT_EQ(queue.add(request(1000, "600"), {}, begin + seconds(1)), Added::kYes);
  EXPECT_EQ(queue.add(request(1000, "601"), {}, begin + seconds(1)), Added::kTooMany);
}

TEST(RequestQueueTest, BoundsWhatWaits) {
  RequestQueue queue(10'000, 3);
  for (const char* job : {"1", "2", "3"})
    EXPECT_EQ(queue.add(request(1000, job), {}, {}), Added::kYes);
  EXPECT_EQ(queue.add(request(1001, "4"), {}, {}), Added::kTooMany);
}

TEST(RequestQueueTest, ServesASignalThatComesTwiceOnce) {
  RequestQueue queue(60, 10);
  EXPECT_EQ(queue.add(request(1000, "7"), {}, {}), Added::kYes);
  EXPECT_EQ(queue.add(request(1000, "7"), {}, {}), Added::kIsRepeated);
  // Another user's request of that job is another one: it will be refused for what it is.
  EXPECT_EQ(queue.add(request(1001, "7"), {}, {}), Added::kYes);
  EXPECT_EQ(queue.add(request(1000, "7", Action::kResume), {}, {}), Added::kYes);
  const Request active = request(1000, "8");
  EXPECT_EQ(queue.add(request(1000, "8"), {&active}, {}), Added::kIsRepeated);
}

TEST(RequestQueueTest, PrefersTheUserWithTheFewestBeingServed) {
  RequestQueue queue(60, 10);
  for (const char* job : {"1", "2", "3"})
    ASSERT_EQ(queue.add(request(1000, job), {}, {}), Added::kYes);
  ASSERT_EQ(queue.add(request(1001, "4"), {}, {}), Added::kYes);
  const auto first = queue.next({}, 2);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->owner.job, "1");
  EXPECT_EQ(queue.next({&*first}, 1)->owner.job, "4");
  EXPECT_FALSE(queue.next({&*first}, 1)) << "this user has one being served";
  EXPECT_EQ(queue.next({&*first}, 2)->owner.job, "2");
  EXPECT_EQ(queue.next({}, 1)->owner.job, "3");
  EXPECT_FALSE(queue.next({}, 1));
}

}  // namespace
}  // namespace scriptorium::checkpoint
