#include "core/base/result.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

#include <thread>

#include "core/base/guarded.h"

namespace scriptorium {
namespace {

Result<std::unique_ptr<int>> make(bool good) {
  if (!good) return Error{ErrorKind::kTransient, "not now"};
  return std::make_unique<int>(7);
}

TEST(ResultTest, HoldsAValueOrTheReason) {
  EXPECT_EQ(**make(true), 7);
  const auto failed = make(false);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().with_context("spool").message(), "spool: not now");
  EXPECT_EQ(failed.error().with_context("spool").kind(), ErrorKind::kTransient);
}

TEST(ErrorTest, SystemErrorsSayInWordsWhatTheCallerDoes) {
  EXPECT_EQ(system_error("open /x", ENOENT).message(), "open /x: no such file or directory");
  EXPECT_EQ(system_error("open", ENOENT).kind(), ErrorKind::kVanished);
  EXPECT_EQ(system_error("write", ENOSPC).kind(), ErrorKind::kExhausted);
  EXPECT_EQ(system_error("write", EIO).kind(), ErrorKind::kTransient);
}

TEST(GuardedTest, WaitEndsWhenTheValueIsReadyAndWhenAStopComes) {
  Guarded<int> value;
  std::stop_source stop;
  std::jthread setter([&] { value.with_notify([](int& v) { v = 1; }); });
  EXPECT_TRUE(value.wait(stop.get_token(), [](int v) { return v == 1; }));
  std::jthread stopper([&] { stop.request_stop(); });
  EXPECT_FALSE(value.wait(stop.get_token(), [](int v) { return v == 2; }));
}

}  // namespace
}  // namespace scriptorium
