#include "core/base/worker_thread.h"

#include <gtest/gtest.h>

#include <atomic>

#include "core/base/pause.h"

namespace scriptorium {
namespace {

using namespace std::chrono_literals;

SteadyTime soon() { return std::chrono::steady_clock::now() + 20ms; }
SteadyTime late() { return std::chrono::steady_clock::now() + 60s; }

TEST(PauseTest, AStopEndsIt) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(pause_for(stop.get_token(), 1h));
}

TEST(PauseTest, ItEndsAtItsDeadline) { EXPECT_TRUE(pause_for(std::stop_token{}, 1ms)); }

TEST(WorkerThreadTest, EndsWhenItIsStopped) {
  std::atomic<int> runs{0};
  WorkerThread thread;
  for (int i = 0; i < 2; ++i) {  // it may start again
    thread.start([&](const std::stop_token& stop) {
      ++runs;
      while (pause_for(stop, 1h)) {
      }
    });
    EXPECT_TRUE(thread.stop(late()));
  }
  EXPECT_EQ(runs, 2);
}

TEST(WorkerThreadTest, SaysWhenItDoesNotEndInTime) {
  Guarded<bool> released;
  WorkerThread thread;
  thread.start(
      [&](const std::stop_token&) { released.wait(std::stop_token{}, [](bool r) { return r; }); });
  EXPECT_FALSE(thread.stop(soon()));
  released.with_notify([](bool& r) { r = true; });
  EXPECT_TRUE(thread.stop(late()));
}

TEST(WorkerThreadTest, OneThatNeverRanHasEnded) { EXPECT_TRUE(WorkerThread{}.stop(soon())); }

}  // namespace
}  // namespace scriptorium
