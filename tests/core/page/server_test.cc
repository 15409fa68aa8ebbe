#include "core/page/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/base/guarded.h"
#include "core/daemon/listener.h"
#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::page {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A connection of the site's web server, or of somebody who would like to be it.
class Connection {
 public:
  explicit Connection(const std::string& path)
      : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  // What fits, if the server has closed the connection meanwhile.
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
  }
  void get(const std::string& target, const std::string& more = "X-Remote-User: alice\r\n") {
    send("GET " + target + " HTTP/1.1\r\nHost: jobs\r\n" + more + "\r\n");
  }
  // One answer, head and body; "" once the server has closed the connection.
  std::string receive(bool has_body = true) {
    while (true) {
      const auto end = received_.find("\r\n\r\n");
      if (end != std::string::npos) {
        const std::string key = "Content-Length: ";
        const auto at = received_.find(key);
        std::size_t size = end + 4;
        if (has_body && at < end) size += std::stoul(received_.substr(at + key.size()));
        if (received_.size() >= size) {
          const std::string answer = received_.substr(0, size);
          received_.erase(0, size);
          return answer;
        }
      }
      if (!read_more()) return "";
    }
  }
  bool is_closed() { return receive().empty() && received_.empty(); }
  // Waits, without reading, until the server has closed the connection.
  void wait_closed() {
    pollfd fd{socket_.get(), POLLRDHUP, 0};
    EXPECT_EQ(::poll(&fd, 1, -1), 1);
  }

 private:
  bool read_more() {
    std::array<char, 65536> buffer{};
    const ssize_t count = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (count > 0) received_.append(buffer.data(), static_cast<std::size_t>(count));
    return count > 0;
  }

  UniqueFd socket_;
  std::string received_;
};

class PageServer : public ::testing::Test {
 protected:
  void start(Server::Limits limits = {}) {
    limits.query = query_;
    server_ = std::make_unique<Server>(
        *listen_unix(path_, 0600, "page"),
        Server::Service{
            .gate = std::make_unique<ProxyGate>(std::vector<uid_t>{::getuid()}),
            .answer = [this](const Request& request, const std::stop_token& stop,
                             SteadyTime deadline) { return answer(request, stop, deadline); },
            .limits = limits},
        log_);
    server_->start();
  }
  Response answer(const Request& request, const std::stop_token& stop, SteadyTime deadline) {
    state_.with_notify([&](State& s) {
      ++s.begun;
      s.deadlines.push_back(deadline);
    });
    if (request.target == "/held") state_.wait(stop, [](const State& s) { return s.is_released; });
    if (request.target == "/throws") throw std::runtime_error("out of cheese");
    if (request.target == "/large") return {.type = "text/plain", .body = std::string(kLarge, 'x')};
    return {.type = "text/plain",
            .body = request.login + " from " + request.address + " at " + request.target,
            .headers = {{"Cache-Control", "max-age=1"}}};
  }
  void wait_begun(int count) {
    state_.wait(std::stop_token(), [&](const State& s) { return s.begun >= count; });
  }
  int begun() {
    return state_.with([](const State& s) { return s.begun; });
  }
  void release() {
    state_.with_notify([](State& s) { s.is_released = true; });
  }
  Connection connect() { return Connection(path_); }
  std::string ask(const std::string& request) {
    Connection connection = connect();
    connection.send(request);
    return connection.receive();
  }

  static constexpr std::size_t kLarge = std::size_t{8} << 20;
  struct State {
    int begun = 0;
    std::vector<SteadyTime> deadlines;
    bool is_released = false;
  };
  test::TempDir dir_;
  std::chrono::milliseconds query_ = std::chrono::hours(1);
  const std::string path_ = dir_.path() + "/page.sock";
  test::RecordingLogger log_;
  Guarded<State> state_;
  std::unique_ptr<Server> server_;
};

TEST_F(PageServer, AnswersAgainOnTheSameConnection) {
  start();
  Connection connection = connect();
  for (int i = 0; i < 3; ++i) {
    connection.get("/a?b", "X-Remote-User: alice\r\nX-Forwarded-For: 198.51.100.1, 192.0.2.7\r\n");
    EXPECT_THAT(connection.receive(),
                AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("\r\nDate: "),
                      HasSubstr("default-src 'none'"), HasSubstr("trusted-types 'none'"),
                      HasSubstr("X-Content-Type-Options: nosniff"),
                      HasSubstr("Cache-Control: max-age=1\r\n"),
                      HasSubstr("\r\n\r\nalice from 192.0.2.7 at /a?b")));
  }
  connection.get("/", "X-Remote-User: alice\r\nConnection: close\r\n");
  EXPECT_THAT(connection.receive(), HasSubstr("alice"));
  EXPECT_TRUE(connection.is_closed());
}

TEST_F(PageServer, HeadIsGetWithoutItsBody) {
  start();
  Connection connection = connect();
  connection.send("HEAD / HTTP/1.1\r\nHost: jobs\r\nX-Remote-User: alice\r\n\r\n");
  EXPECT_THAT(connection.receive(false), HasSubstr("Content-Length: 16"));
  connection.get("/");
  EXPECT_THAT(connection.receive(), HasSubstr("alice from  at /"));
}

// Each may be read in another way by a web server in front: the answer says no, and what follows on
// the connection is not read.
TEST_F(PageServer, ARequestThatCanBeReadInTwoWaysIsRefusedAndItsConnectionClosed) {
  start();
  const std::string hidden = "GET /hidden HTTP/1.1\r\nHost: jobs\r\nX-Remote-User: root\r\n\r\n";
  const std::string head = " / HTTP/1.1\r\nHost: jobs\r\nX-Remote-User: alice\r\n";
  const std::string size = std::to_string(hidden.size());
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"413", "GET" + head + "Content-Length: " + size + "\r\n\r\n"},
      {"400", "GET" + head + "Content-Length: 0\r\nContent-Length: " + size + "\r\n\r\n"},
      {"413", "GET" + head + "Content-Length: 0\r\nContent-Length: 0\r\n\r\n"},
      {"400", "GET" + head + "Content-Length: +5\r\n\r\n"},
      {"400", "GET" + head + "Content-Length: 0, 5\r\n\r\n"},
      {"413", "GET" + head + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {"400", "GET" + head + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"},
      {"400", "GET" + head + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"},
      {"413", "GET" + head + "Transfer-Encoding: xchunked\r\n\r\n"},
      {"413", "GET" + head + "Transfer-Encoding: identity\r\n\r\n"},
      {"400", "GET / HTTP/1.1\nHost: jobs\nX-Remote-User: alice\n\n"},
      {"400", "GET / HTTP/1.1\r\nHost: jobs\r\nX-Remote-User : alice\r\n\r\n"},
      {"400",
       "GET / HTTP/1.1\r\nHost: jobs\r\nX-Remote-User: al" + std::string(1, '\0') + "ice\r\n\r\n"},
      {"403", "GET / HTTP/1.1\r\nHost: jobs\r\n\r\n"},
      {"403", "GET / HTTP/1.1\r\nHost: jobs\r\nX-Remote-User:\r\n\r\n"},
      {"403", "GET" + head + "x-remote-user: root\r\n\r\n"},
      {"403", "GET / HTTP/1.1\r\nHost: jobs\r\nX_Remote_User: alice\r\n\r\n"},
      {"400", "GET / HTTP/1.1\r\nX-Remote-User: alice\r\n\r\n"},
      {"400", "GET" + head + "Host: other\r\n\r\n"},
      {"405", "POST" + head + "\r\n"},
      {"405", "CONNECT" + head + "\r\n"},
      {"405", "get" + head + "\r\n"},
      {"400", "GET / HTTP/2.0\r\nHost: jobs\r\nX-Remote-User: alice\r\n\r\n"},
      {"400", "\x16\x03\x01\x02"},
  };
  for (const auto& [status, request] : cases) {
    Connection connection = connect();
    connection.send(request + hidden);
    EXPECT_THAT(connection.receive(), StartsWith("HTTP/1.1 " + status)) << request;
    EXPECT_TRUE(connection.is_closed()) << request;
  }
  EXPECT_EQ(begun(), 0);
}

TEST_F(PageServer, AHeadHasAMostSize) {
  start();
  EXPECT_THAT(ask("GET / HTTP/1.1\r\nHost: jobs\r\nX-Remote-User: alice\r\nA: " +
                  std::string(Server::kMostHeadBytes - 200, 'a') + "\r\n\r\n"),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask("GET / HTTP/1.1\r\nA: " + std::string(Server::kMostHeadBytes + 200, 'a')),
              StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(ask("GET /" + std::string(64 << 10, 'a')), StartsWith("HTTP/1.1 431"));
  std::string lines = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 100'000; ++i) lines += "a:b\r\n";
  EXPECT_THAT(ask(lines), StartsWith("HTTP/1.1 431"));
}

TEST_F(PageServer, AForeignProcessIsRefusedAndThatIsLogged) {
  Server server(
      *listen_unix(path_, 0600, "page"),
      {.gate = std::make_unique<ProxyGate>(std::vector<uid_t>{::getuid() + 1}),
       .answer = [](const Request&, const std::stop_token&, SteadyTime) { return Response{}; }},
      log_);
  server.start();
  Connection connection = connect();
  connection.get("/");
  EXPECT_THAT(connection.receive(), StartsWith("HTTP/1.1 403"));
  EXPECT_TRUE(connection.is_closed());
  EXPECT_EQ(log_.count("PAGE_REFUSED"), 1U);
}

TEST_F(PageServer, OnePersonNeverHasAllThreads) {
  start({.queries = 2, .queries_of_user = 1});
  std::deque<Connection> held;
  for (int i = 0; i < 5; ++i) held.emplace_back(path_).get("/held");
  wait_begun(1);
  Connection bob = connect();
  bob.get("/", "X-Remote-User: bob\r\n");
  EXPECT_THAT(bob.receive(), HasSubstr("bob from"));
  EXPECT_EQ(begun(), 2);
  release();
  for (Connection& connection : held) EXPECT_THAT(connection.receive(), HasSubstr("alice"));
}

TEST_F(PageServer, OnePersonsRequestsAreLimitedAndOthersAreAnswered) {
  start({.connections = 8, .queries = 1, .queries_of_user = 1, .requests_of_user = 3});
  std::deque<Connection> held;
  for (int i = 0; i < 3; ++i) held.emplace_back(path_).get("/held");
  wait_begun(1);
  Connection more = connect();
  for (int i = 0; i < 2; ++i) {
    more.get("/");
    EXPECT_THAT(more.receive(), AllOf(StartsWith("HTTP/1.1 429"), HasSubstr("Retry-After")));
  }
  Connection bob = connect();
  bob.get("/", "X-Remote-User: bob\r\n");
  release();
  for (Connection& connection : held) EXPECT_THAT(connection.receive(), HasSubstr("alice"));
  EXPECT_THAT(bob.receive(), HasSubstr("bob from"));
  std::string answer;
  do {  // the server may not know yet that the others have theirs
    more.get("/");
    answer = more.receive();
  } while (answer.starts_with("HTTP/1.1 429"));
  EXPECT_THAT(answer, HasSubstr("alice from"));
}

TEST_F(PageServer, APagesTimeBeginsWhenItsRequestComes) {
  start({.queries = 1});
  Connection held = connect();
  held.get("/held");
  wait_begun(1);
  Connection waiting = connect();
  waiting.get("/");
  Connection third = connect();
  // By the second answer the server has seen what was sent before the first.
  for (int i = 0; i < 2; ++i) {
    third.send("PUT / HTTP/1.1\r\nHost: jobs\r\nX-Remote-User: bob\r\n\r\n");
    EXPECT_THAT(third.receive(), StartsWith("HTTP/1.1 405"));
    third = connect();
  }
  const SteadyTime released = std::chrono::steady_clock::now();
  release();
  EXPECT_THAT(waiting.receive(), HasSubstr("alice from"));
  EXPECT_LT(state_.with([](const State& s) { return s.deadlines.at(1); }), released + query_);
}

TEST_F(PageServer, APageWhoseTimeIsOverIsNotMade) {
  query_ = std::chrono::milliseconds(0);
  start();
  Connection connection = connect();
  for (int i = 0; i < 2; ++i) {
    connection.get("/");
    EXPECT_THAT(connection.receive(), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("Retry-After")));
  }
  EXPECT_EQ(begun(), 0);
}

TEST_F(PageServer, APageWhoseReaderHasLeftIsNotMade) {
  start({.queries = 1});
  Connection held = connect();
  held.get("/held");
  wait_begun(1);
  for (int i = 0; i < 3; ++i) connect().get("/");
  Connection patient = connect();
  patient.get("/");
  release();
  EXPECT_THAT(patient.receive(), HasSubstr("alice from"));
  EXPECT_EQ(begun(), 2);
}

TEST_F(PageServer, OneSlowReaderHoldsUpNobodyElse) {
  start({.patience = std::chrono::hours(1)});
  std::deque<Connection> readers;
  for (int i = 0; i < 10; ++i) readers.emplace_back(path_).get("/large");
  wait_begun(2);
  Connection bob = connect();
  for (int i = 0; i < 5; ++i) {
    bob.get("/large", "X-Remote-User: bob\r\n");
    EXPECT_GT(bob.receive().size(), kLarge);
  }
  // Two that wait, and two that were being made when these were finished.
  EXPECT_LE(begun(), 5 + 4);
}

TEST_F(PageServer, IdleAndSlowClientsMakeRoom) {
  constexpr int kMost = 1'000;
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  start({.connections = 64});
  std::deque<Connection> slow;
  for (int i = 0; i < kMost; ++i) {
    if (i % 2 == 0) {
      slow.emplace_back(path_);
    } else {
      slow.emplace_back(path_).send("GET / HT");
    }
  }
  for (int i = 0; i < 10; ++i) {
    Connection alice = connect();
    alice.get("/");
    EXPECT_THAT(alice.receive(), HasSubstr("alice from"));
  }
}

TEST_F(PageServer, AConnectionThatWaitsForItsPageIsNotClosedForAnother) {
  start({.connections = 1});
  Connection first = connect();
  first.get("/held");
  wait_begun(1);
  Connection second = connect();
  EXPECT_TRUE(second.is_closed());
  release();
  EXPECT_THAT(first.receive(), HasSubstr("alice"));
}

TEST_F(PageServer, AClientThatSendsNothingOrReadsNothingIsClosed) {
  start({.patience = std::chrono::milliseconds(50)});
  Connection silent = connect();
  EXPECT_TRUE(silent.is_closed());
  Connection slow = connect();
  slow.send("GET / HTTP/1.1\r\nHost: j");
  EXPECT_TRUE(slow.is_closed());
  Connection deaf = connect();
  deaf.get("/large");
  deaf.wait_closed();
  EXPECT_EQ(deaf.receive(), "");
}

TEST_F(PageServer, ALargePageArrivesWhole) {
  start();
  Connection connection = connect();
  connection.get("/large");
  const std::string page = connection.receive();
  EXPECT_EQ(page.size() - page.find("\r\n\r\n") - 4, kLarge);
  connection.get("/");
  EXPECT_THAT(connection.receive(), HasSubstr("alice"));
}

TEST_F(PageServer, PagesThatWaitedForTheirReadersAllArrive) {
  start({.queries = 2,
         .queries_of_user = 2,
         .requests_of_user = 20,
         .patience = std::chrono::hours(1)});
  std::deque<Connection> readers;
  constexpr int kReaders = 20;  // of 8 MiB each, with room for 16 of one person
  for (int i = 0; i < kReaders; ++i) readers.emplace_back(path_).get("/large");
  wait_begun(2);
  for (Connection& reader : readers) EXPECT_GT(reader.receive().size(), kLarge);
  EXPECT_EQ(begun(), kReaders);
}

TEST_F(PageServer, APageThatThrowsEndsItsConnectionOnly) {
  start();
  Connection other = connect();
  Connection connection = connect();
  connection.get("/throws");
  EXPECT_TRUE(connection.is_closed());
  EXPECT_EQ(log_.count("PAGE_FAILED"), 1U);
  other.get("/");
  EXPECT_THAT(other.receive(), HasSubstr("alice"));
}

TEST_F(PageServer, StopEndsPagesThatAreBeingMade) {
  start();
  std::deque<Connection> held;
  for (int i = 0; i < 5; ++i) held.emplace_back(path_).get("/held");
  wait_begun(2);
  server_.reset();
  for (Connection& connection : held) EXPECT_TRUE(connection.is_closed());
}

}  // namespace
}  // namespace scriptorium::page
