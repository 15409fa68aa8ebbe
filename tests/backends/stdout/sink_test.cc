#include "backends/stdout/sink.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <thread>

#include "backends/stdout/outcome.h"
#include "tests/support/event_factory.h"
#include "tests/support/scripted_sink.h"

namespace scriptorium::stdout_sink {
namespace {

using test::make_event;
using ::testing::HasSubstr;

class StdoutSinkTest : public ::testing::Test {
 protected:
  StdoutSinkTest() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reader_.reset(ends[0]);
    writer_.reset(ends[1]);
  }
  // All that is in the pipe now.
  std::string drain() {
    ::fcntl(reader_.get(), F_SETFL, O_NONBLOCK);
    std::string result;
    std::array<char, 65536> buffer{};
    for (ssize_t n = 0; (n = ::read(reader_.get(), buffer.data(), buffer.size())) > 0;)
      result.append(buffer.data(), static_cast<std::size_t>(n));
    return result;
  }

  UniqueFd reader_;
  UniqueFd writer_;
  test::Outbox outbox_;
};

TEST_F(StdoutSinkTest, WritesOneLineForEachEvent) {
  StdoutSink sink({}, writer_.get());
  sink.deliver(outbox_.batch({make_event("1", "a\nb\n"), make_event("2")}));
  const std::string text = drain();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_THAT(text, HasSubstr("\"text\":\"a\\nb\\n\""));
  EXPECT_THAT(text, HasSubstr("\"HOME\":\"/home/alice\""));
  EXPECT_EQ(outbox_.outcome("2"), Outcome::kAcknowledged);
}

TEST_F(StdoutSinkTest, WritesAnEventThatHasLostItsBytes) {
  StdoutSink sink({}, writer_.get());
  const Event owned = test::make_owned_event(test::make_unverified_event("1"));
  sink.deliver(outbox_.batch({std::make_shared<const Event>(test::without_bytes(owned))}));
  const std::string text = drain();
  EXPECT_THAT(text, HasSubstr("\"replaces\":\"" + *owned.replaces + "\""));
  EXPECT_THAT(text, HasSubstr("\"sha256\":\"" + owned.files.front().sha256 + "\""));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("\"text\"")));
  EXPECT_EQ(outbox_.outcome("1"), Outcome::kAcknowledged);
}

TEST_F(StdoutSinkTest, LeavesTextsOutWhenToldSo) {
  StdoutSink sink({.script_text = false, .environment = false}, writer_.get());
  sink.deliver(outbox_.batch({make_event("1")}));
  const std::string text = drain();
  EXPECT_EQ(text.find("srun hostname"), std::string::npos);
  EXPECT_EQ(text.find("/home/alice\"}"), std::string::npos);
  EXPECT_THAT(text, HasSubstr("\"sha256\""));
}

TEST_F(StdoutSinkTest, WithoutAReaderItAsksForRetryAndTheProcessLives) {
  StdoutSink sink({}, writer_.get());
  reader_.reset();
  sink.deliver(outbox_.batch({make_event("1"), make_event("2")}));
  EXPECT_EQ(outbox_.outcome("1"), Outcome::kRetry);
  EXPECT_EQ(outbox_.reason("2"), "nobody reads standard output any more");
}

TEST_F(StdoutSinkTest, AfterAFullPipeTheLineIsEndedBeforeTheNextBegins) {
  StdoutSink sink({}, writer_.get(), std::chrono::milliseconds(20));
  // More than a pipe holds.
  const auto big = make_event("1", std::string(300'000, 'x'));
  sink.deliver(outbox_.batch({big, make_event("2")}));
  EXPECT_EQ(outbox_.outcome("1"), Outcome::kRetry);
  EXPECT_EQ(outbox_.reason("1"), "standard output is full");
  EXPECT_EQ(outbox_.outcome("2"), Outcome::kRetry);
  std::string text = drain();
  EXPECT_EQ(text.find('\n'), std::string::npos);
  // The reader comes back while the same events are tried again.
  {
    std::jthread reader([&] {
      ::fcntl(reader_.get(), F_SETFL, 0);
      std::array<char, 65536> buffer{};
      for (ssize_t n = 0; (n = ::read(reader_.get(), buffer.data(), buffer.size())) > 0;)
        text.append(buffer.data(), static_cast<std::size_t>(n));
    });
    test::Outbox again;
    // Each attempt that ends in retry leaves its rest for the next.
    for (int attempt = 0; attempt < 100 && again.outcome("2") != Outcome::kAcknowledged;
         ++attempt) {
      if (again.outcome("1") != Outcome::kAcknowledged) {
        sink.deliver(again.batch({big, make_event("2")}));
      } else {
        sink.deliver(again.batch({make_event("2")}));
      }
    }
    EXPECT_EQ(again.outcome("1"), Outcome::kAcknowledged);
    EXPECT_EQ(again.outcome("2"), Outcome::kAcknowledged);
    writer_.reset();
  }
  // Every line is whole.
  ASSERT_TRUE(text.ends_with('\n'));
  std::size_t at = 0;
  for (std::size_t end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    EXPECT_TRUE(text.substr(at, end - at).starts_with("{\"schema\"")) << text.substr(at, 40);
    EXPECT_EQ(text[end - 1], '}');
  }
}

TEST_F(StdoutSinkTest, StopEndsTheWaitForAReader) {
  StdoutSink sink({}, writer_.get(), std::chrono::hours(1));
  std::jthread delivering(
      [&] { sink.deliver(outbox_.batch({make_event("1", std::string(300'000, 'x'))})); });
  sink.stop(std::chrono::steady_clock::now());
  delivering.join();
  EXPECT_EQ(outbox_.outcome("1"), Outcome::kRetry);
}

TEST_F(StdoutSinkTest, CheckSaysThatItIsClosedOrForReadingOnly) {
  const auto closed = StdoutSink({}, -1).check();
  ASSERT_FALSE(closed);
  EXPECT_THAT(closed.error().message(), HasSubstr("closed"));
  const auto reading = StdoutSink({}, reader_.get()).check();
  ASSERT_FALSE(reading);
  EXPECT_EQ(reading.error().kind(), ErrorKind::kInvalidConfig);
}

TEST(StdoutOutcomeTest, NoAnswerIsPermanent) {
  for (const int code : {EPIPE, EAGAIN, EBADF, ENOSPC, EIO, EDQUOT, EINVAL})
    EXPECT_NE(write_error(code).kind(), ErrorKind::kPermanent);
}

}  // namespace
}  // namespace scriptorium::stdout_sink
