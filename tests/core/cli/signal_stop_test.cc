#include "core/cli/signal_stop.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <semaphore>

namespace scriptorium::cli {
namespace {

TEST(SignalStopTest, ASignalRequestsAStop) {
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &before);
  {
    const SignalStop stop(true);
    std::binary_semaphore requested(0);
    const std::stop_callback callback(stop.token(), [&] { requested.release(); });
    ASSERT_EQ(::kill(::getpid(), SIGTERM), 0);
    requested.acquire();
    EXPECT_TRUE(stop.token().stop_requested());
  }
  // Nobody has taken it from the process.
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  int signal = 0;
  EXPECT_EQ(::sigwait(&set, &signal), 0);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(SignalStopTest, EndsWithoutASignal) {
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &before);
  {
    const SignalStop stop(true);
  }
  const SignalStop inactive(false);
  EXPECT_FALSE(inactive.token().stop_requested());
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace
}  // namespace scriptorium::cli
