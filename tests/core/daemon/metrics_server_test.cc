#include "core/daemon/metrics_server.h"

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <string>

#include "tests/support/recording_logger.h"
#include "tests/support/temp_dir.h"

namespace scriptorium::test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string status() { return R"({"version":"9.9","uptime_seconds":1})"; }

TEST(ParseLoopbackAddressTest, TakesOnlyWhatThisMachineAloneReaches) {
  ASSERT_TRUE(parse_loopback_address("127.0.0.1:9417"));
  EXPECT_EQ(parse_loopback_address("127.0.0.1:9417")->port, 9417);
  ASSERT_TRUE(parse_loopback_address("[::1]:1"));
  EXPECT_TRUE(parse_loopback_address("[::1]:1")->v6);
  for (const char* bad : {"", "9417", ":9417", "0.0.0.0:9417", "localhost:9417", "127.0.0.1",
                          "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:94x",
                          "127.0.0.1:-1", "[::]:9417"}) {
    EXPECT_FALSE(parse_loopback_address(bad)) << bad;
  }
}

TEST(RespondTest, GivesTheFormatThatIsAskedFor) {
  const std::string plain =
      MetricsServer::respond("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", status);
  EXPECT_THAT(plain, StartsWith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"));
  EXPECT_THAT(plain, HasSubstr("scriptorium_build_info{version=\"9.9\"} 1\n"));
  const std::string open = MetricsServer::respond(
      "GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\nAccept: "
      "application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n\r\n",
      status);
  EXPECT_THAT(open, HasSubstr("Content-Type: application/openmetrics-text; version=1.0.0"));
  EXPECT_THAT(open, EndsWith("# EOF\n"));
}

TEST(RespondTest, SaysNoInHttpsWords) {
  EXPECT_THAT(MetricsServer::respond("GET /other HTTP/1.1\r\nHost: x\r\n\r\n", status),
              StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(MetricsServer::respond(
                  "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", status),
              StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(MetricsServer::respond("nonsense\r\n\r\n", status), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(MetricsServer::respond(std::string("\0\xff\r\n\r\n", 6), status),
              StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(MetricsServer::respond("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", status),
              EndsWith("\r\n\r\n"));
}

class MetricsServerTest : public ::testing::Test {
 protected:
  MetricsServer::Options options() const {
    return {.socket = directory.path_to("m.sock"), .listen = {}, .textfile = {}};
  }
  auto open(MetricsServer::Options o) { return MetricsServer::open(std::move(o), status, log); }
  Result<std::unique_ptr<MetricsServer>> start(MetricsServer::Options o) {
    auto server = open(std::move(o));
    if (server) (*server)->start();
    return server;
  }

  UniqueFd connect_unix() const {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path,
                directory.path_to("m.sock").c_str());  // NOLINT(clang-analyzer-security*)
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return fd;
  }

  // Sends the pieces one after the other and returns all that comes until the other side closes.
  static std::string ask(const UniqueFd& fd, const std::vector<std::string>& pieces) {
    for (const std::string& piece : pieces)
      EXPECT_EQ(::send(fd.get(), piece.data(), piece.size(), 0), ssize_t(piece.size()));
    std::string answer;
    std::array<char, 4096> buffer{};
    for (ssize_t n = 0; (n = ::recv(fd.get(), buffer.data(), buffer.size(), 0)) > 0;)
      answer.append(buffer.data(), static_cast<std::size_t>(n));
    return answer;
  }

  TempDir directory;
  RecordingLogger log;
};

TEST_F(MetricsServerTest, AnswersOnItsSocketARequestThatComesInPieces) {
  auto server = start(options());
  ASSERT_TRUE(server) << server.error().message();
  EXPECT_THAT(ask(connect_unix(), {"GET /met", "rics HTTP/1.1\r\nHo", "st: x\r\n\r\n"}),
              HasSubstr("scriptorium_uptime_seconds 1\n"));
  struct stat st{};
  ASSERT_EQ(::stat(directory.path_to("m.sock").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777U, 0660U);
}

// The daemon opens it before its sources run, as a port that is taken must refuse the start, and
// starts it after them.
TEST_F(MetricsServerTest, GivesNothingAwayBeforeItIsStarted) {
  MetricsServer::Options wanted = options();
  wanted.textfile = directory.path_to("x.prom");
  std::atomic<int> asked = 0;
  auto counted = MetricsServer::open(
      wanted,
      [&asked] {
        ++asked;
        return status();
      },
      log);
  ASSERT_TRUE(counted) << counted.error().message();
  const UniqueFd early = connect_unix();
  EXPECT_EQ(asked, 0);
  EXPECT_FALSE(directory.exists("x.prom"));
  (*counted)->start();
  EXPECT_THAT(ask(early, {"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"}),
              HasSubstr("scriptorium_uptime_seconds 1\n"))
      << "who came early is answered then";
  EXPECT_TRUE(directory.exists("x.prom")) << "written before the first answer";
}

TEST_F(MetricsServerTest, OneThatWasNeverStartedEnds) { EXPECT_TRUE(open(options())); }

TEST_F(MetricsServerTest, OneWhoSaysNothingIsCutOffAndOthersAreServed) {
  auto server = start(options());
  ASSERT_TRUE(server);
  const UniqueFd silent = connect_unix();
  EXPECT_THAT(ask(connect_unix(), {"GET / HTTP/1.1\r\nHost: x\r\n\r\n"}), HasSubstr("/metrics"));
  EXPECT_EQ(ask(silent, {}), "");
}

TEST_F(MetricsServerTest, AHeadWithoutEndIsCutOff) {
  auto server = start(options());
  ASSERT_TRUE(server);
  EXPECT_EQ(ask(connect_unix(), {std::string(20000, 'x')}), "");
}

TEST_F(MetricsServerTest, TakesOverTheSocketOfARunThatDiedAndNothingElse) {
  {
    ASSERT_TRUE(start(options()));
  }
  EXPECT_FALSE(std::filesystem::exists(directory.path_to("m.sock")));
  directory.write("m.sock", "somebody's file");
  auto refused = start(options());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("metrics_socket"));
  EXPECT_EQ(directory.read("m.sock"), "somebody's file");
}

TEST_F(MetricsServerTest, ATakenPortRefusesTheStartWithWords) {
  const UniqueFd holder(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(holder.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(holder.get(), 1), 0);
  ASSERT_EQ(::getsockname(holder.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  auto o = options();
  o.listen = LoopbackAddress{.v6 = false, .port = ntohs(address.sin_port)};
  auto refused = start(std::move(o));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind(), ErrorKind::kInvalidConfig);
  EXPECT_THAT(refused.error().message(), HasSubstr("another program listens there"));
}

TEST_F(MetricsServerTest, TheTextfileComesAtOnceAndGoesWithTheDaemon) {
  auto o = options();
  o.textfile = directory.path_to("scriptorium.prom");
  {
    auto server = start(std::move(o));
    ASSERT_TRUE(server);
    // The file is written before the first request is served.
    ask(connect_unix(), {"GET / HTTP/1.1\r\nHost: x\r\n\r\n"});
    EXPECT_THAT(directory.read("scriptorium.prom"), HasSubstr("scriptorium_build_info"));
  }
  EXPECT_FALSE(std::filesystem::exists(directory.path_to("scriptorium.prom")));
}

TEST_F(MetricsServerTest, ATextfileThatCannotBeWrittenIsSaidOnce) {
  auto o = options();
  o.textfile = directory.path_to("missing/scriptorium.prom");
  auto server = start(std::move(o));
  ASSERT_TRUE(server);
  ask(connect_unix(), {"GET / HTTP/1.1\r\nHost: x\r\n\r\n"});
  EXPECT_EQ(log.count("METRICS_TEXTFILE"), 1U);
}

}  // namespace
}  // namespace scriptorium::test
