#include "core/daemon/listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <stdexcept>

#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class ListenerTest : public ::testing::Test {
 protected:
  // Lines; "throw" throws, "wait" waits until let_go().
  Listener::Service service() {
    return {.is_whole = [](std::string_view s) { return s.ends_with('\n'); },
            .answer = [this](const std::string& request) { return answer(request); },
            .failure_id = "CONTROL_FAILED",
            .failure_text = "failed",
            .longest_request = 1000,
            .patience = 5min};
  }
  std::string answer(const std::string& request) {
    if (request == "throw\n") throw std::runtime_error("as asked");
    std::unique_lock lock(mutex);
    ++begun;
    changed.notify_all();
    if (request == "wait\n") changed.wait(lock, [this] { return free; });
    return "got " + request;
  }
  void let_go() {
    const std::lock_guard lock(mutex);
    free = true;
    changed.notify_all();
  }
  void wait_begun(int count) {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, 60s, [&] { return begun >= count; }));
  }

  std::unique_ptr<Listener> start(Listener::Service wanted) {
    auto socket = listen_unix(path, 0600, "socket");
    EXPECT_TRUE(socket) << socket.error().message();
    std::vector<UniqueFd> sockets;
    sockets.push_back(*std::move(socket));
    auto listener = std::make_unique<Listener>(std::move(sockets), std::move(wanted), log);
    listener->start();
    return listener;
  }
  UniqueFd connect() const {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  static void say(const UniqueFd& fd, const std::string& text) {
    EXPECT_EQ(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL), ssize_t(text.size()));
  }
  static std::string hear(const UniqueFd& fd) {
    std::string heard;
    std::array<char, 4096> buffer{};
    for (ssize_t n = 0; (n = ::recv(fd.get(), buffer.data(), buffer.size(), 0)) > 0;)
      heard.append(buffer.data(), static_cast<std::size_t>(n));
    return heard;
  }
  std::string ask(const std::string& text) const {
    const UniqueFd fd = connect();
    say(fd, text);
    return hear(fd);
  }

  TempDir directory;
  const std::string path = directory.path_to("s");
  RecordingLogger log;
  std::mutex mutex;
  std::condition_variable changed;
  int begun = 0;
  bool free = false;
};

TEST_F(ListenerTest, AnswersARequestThatComesInPieces) {
  const auto listener = start(service());
  const UniqueFd fd = connect();
  say(fd, "on");
  say(fd, "e\n");
  EXPECT_EQ(hear(fd), "got one\n");
}

TEST_F(ListenerTest, ASilentClientDelaysNoOther) {
  const auto listener = start(service());
  const UniqueFd silent = connect();
  say(silent, "half of a reque");
  EXPECT_EQ(ask("one\n"), "got one\n");
}

TEST_F(ListenerTest, CutsOffAClientThatIsSilentForTooLong) {
  Listener::Service impatient = service();
  impatient.patience = 1ms;
  const auto listener = start(std::move(impatient));
  EXPECT_EQ(hear(connect()), "");
}

TEST_F(ListenerTest, CutsOffARequestThatIsTooLong) {
  const auto listener = start(service());
  EXPECT_EQ(ask(std::string(5000, 'x')), "");
}

TEST_F(ListenerTest, AnAnswerThatThrowsIsLoggedAndTheNextClientIsServed) {
  const auto listener = start(service());
  EXPECT_EQ(ask("throw\n"), "");
  const auto message = log.last("CONTROL_FAILED");
  ASSERT_TRUE(message);
  EXPECT_EQ(message->field("reason"), "as asked");
  EXPECT_EQ(ask("one\n"), "got one\n");
}

TEST_F(ListenerTest, ClientsBeyondTheCapWaitUntilAnotherHasLeft) {
  Listener::Service counting = service();
  std::vector<std::string> seen;  // what the listener has read, guarded by `mutex`
  counting.is_whole = [&](std::string_view received) {
    const std::lock_guard lock(mutex);
    seen.emplace_back(received);
    changed.notify_all();
    return received.ends_with('\n');
  };
  const auto wait_seen = [&](std::size_t count) {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, 60s, [&] { return seen.size() >= count; }));
  };
  const auto listener = start(std::move(counting));
  std::vector<UniqueFd> talking;
  for (std::size_t i = 0; i < 32; ++i) {
    talking.push_back(connect());
    say(talking.back(), "x");
    wait_seen(i + 1);
  }
  const UniqueFd late = connect();
  say(late, "late\n");
  // Each of these comes back only after the listener has looked at every socket that was ready.
  for (std::size_t i = 0; i < 10; ++i) {
    say(talking[0], "x");
    wait_seen(33 + i);
  }
  {
    const std::lock_guard lock(mutex);
    EXPECT_THAT(seen, testing::Not(testing::Contains("late\n")));
  }
  talking.pop_back();
  EXPECT_EQ(hear(late), "got late\n");
}

TEST_F(ListenerTest, AnAnswerThatIsLargerThanTheSocketsBufferArrivesWhole) {
  Listener::Service large = service();
  large.answer = [](const std::string&) { return std::string(std::size_t{8} << 20, 'x'); };
  const auto listener = start(std::move(large));
  EXPECT_EQ(ask("one\n").size(), std::size_t{8} << 20);
}

TEST_F(ListenerTest, TheEndWaitsForTheAnswerUnderWayAndDropsTheSilent) {
  auto listener = start(service());
  const UniqueFd silent = connect();
  const UniqueFd busy = connect();
  say(busy, "wait\n");
  wait_begun(1);
  auto ended = std::async(std::launch::async, [&] { listener.reset(); });
  EXPECT_EQ(hear(silent), "") << "dropped while the other answer is still being made";
  let_go();
  EXPECT_EQ(hear(busy), "got wait\n");
  ended.get();
}

TEST_F(ListenerTest, AFileInTheWayIsRefusedAndLeftAlone) {
  directory.write("s", "somebody's file");
  const auto socket = listen_unix(path, 0600, "control socket");
  ASSERT_FALSE(socket);
  EXPECT_EQ(socket.error().kind(), ErrorKind::kInvalidConfig);
  EXPECT_THAT(socket.error().message(), HasSubstr("control socket: " + path));
}

TEST_F(ListenerTest, APathThatIsTooLongIsSaidWithTheLimit) {
  const auto socket = listen_unix("/" + std::string(200, 'x'), 0600, "metrics_socket");
  ASSERT_FALSE(socket);
  EXPECT_THAT(socket.error().message(), HasSubstr("201 bytes, 107 are possible"));
}

}  // namespace
}  // namespace scriptorium::test
