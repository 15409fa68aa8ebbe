#include "core/base/stop_signal.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

namespace scriptorium {
namespace {

bool readable(const StopSignal& signal, int timeout_ms) {
  pollfd fd{signal.fd(), POLLIN, 0};
  return ::poll(&fd, 1, timeout_ms) == 1 && (fd.revents & POLLIN) != 0;
}

TEST(StopSignalTest, IsReadableFromTheStopOnAndNotBefore) {
  std::stop_source source;
  const StopSignal signal(source.get_token());
  EXPECT_FALSE(readable(signal, 0));
  source.request_stop();
  EXPECT_TRUE(readable(signal, 0));
  EXPECT_TRUE(readable(signal, 0)) << "it stays so";
}

TEST(StopSignalTest, IsReadableAtOnceWhenTheStopWasBefore) {
  std::stop_source source;
  source.request_stop();
  EXPECT_TRUE(readable(StopSignal(source.get_token()), 0));
}

TEST(StopSignalTest, WakesAThreadThatWaits) {
  bool woken = false;
  {
    const std::jthread thread([&](const std::stop_token& stop) {
      const StopSignal signal(stop);
      woken = readable(signal, 60'000);
    });
  }  // asks it to stop, and joins
  EXPECT_TRUE(woken);
}

TEST(StopSignalTest, WithoutAnybodyWhoCouldStopItStaysSilent) {
  EXPECT_FALSE(readable(StopSignal(std::stop_token()), 0));
}

}  // namespace
}  // namespace scriptorium
