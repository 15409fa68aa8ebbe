#include "core/daemon/metrics_server.h"

#include "core/base/thrown.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>  // before Boost.Beast 1.74, which forgets it in C++20

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/field.hpp>
#include <boost/beast/http/parser.hpp>

namespace scriptorium {
namespace {

namespace http = boost::beast::http;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kPatience{2};
constexpr seconds kTextfileInterval{15};
constexpr std::size_t kLongestHead = 16U << 10;

Result<UniqueFd> listening(int family, const sockaddr* address, socklen_t size,
                           const std::string& what) {
  UniqueFd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return system_error("socket", errno);
  const int on = 1;
  if (family != AF_UNIX) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.get(), address, size) != 0 || ::listen(socket.get(), 16) != 0) {
    const int code = errno;
    return Error{ErrorKind::kInvalidConfig,
                 system_error(what, code).message() +
                     (code == EADDRINUSE ? "; another program listens there" : "")};
  }
  return socket;
}

Result<UniqueFd> listen_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Error{ErrorKind::kInvalidConfig,
                 "metrics_socket: " + path + " is too long for a socket's name: " +
                     std::to_string(sizeof address.sun_path - 1) + " bytes are possible"};
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  // Only a socket of an earlier run is in the way; anything else is somebody's file.
  struct stat st{};
  if (::lstat(path.c_str(), &st) == 0 && S_ISSOCK(st.st_mode)) ::unlink(path.c_str());
  auto socket = listening(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), sizeof address,
                          "metrics_socket: " + path);
  if (socket && ::chmod(path.c_str(), 0660) != 0)
    return system_error("metrics_socket: " + path, errno);
  return socket;
}

Result<UniqueFd> listen_loopback(LoopbackAddress wanted) {
  const std::string what = "metrics_listen: port " + std::to_string(wanted.port);
  if (wanted.v6) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_loopback;
    address.sin6_port = htons(wanted.port);
    return listening(AF_INET6, reinterpret_cast<const sockaddr*>(&address), sizeof address, what);
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(wanted.port);
  return listening(AF_INET, reinterpret_cast<const sockaddr*>(&address), sizeof address, what);
}

std::string answer(int code, const char* type, const std::string& body, bool with_body) {
  return "HTTP/1.1 " + std::to_string(code) + ' ' +
         std::string(http::obsolete_reason(static_cast<http::status>(code))) +
         "\r\nContent-Type: " + type + "\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\nConnection: close\r\nX-Content-Type-Options: nosniff\r\n\r\n" +
         (with_body ? body : "");
}

}  // namespace

std::string MetricsServer::respond(std::string_view request, const StatusJson& status) {
  constexpr const char* kPlain = "text/plain; charset=utf-8";
  http::request_parser<http::empty_body> parser;
  boost::system::error_code error;
  parser.put(boost::asio::buffer(request.data(), request.size()), error);
  if (error || !parser.is_header_done()) return answer(400, kPlain, "not an HTTP request\n", true);
  const auto& head = parser.get();
  const bool with_body = head.method() != http::verb::head;
  if (head.method() != http::verb::get && head.method() != http::verb::head)
    return answer(405, kPlain, "only GET and HEAD\n", with_body);
  const std::string_view target(head.target().data(), head.target().size());
  const std::string_view path = target.substr(0, target.find('?'));
  if (path == "/") return answer(200, kPlain, "Scriptorium. Its metrics: /metrics\n", with_body);
  if (path != "/metrics") return answer(404, kPlain, "only /metrics is here\n", with_body);
  const auto accept = head[http::field::accept];
  const bool open =
      std::string_view(accept.data(), accept.size()).find("application/openmetrics-text") !=
      std::string_view::npos;
  const MetricsFormat format = open ? MetricsFormat::kOpenMetrics : MetricsFormat::kPrometheus;
  return answer(200, content_type(format), render_metrics(status(), format), with_body);
}

Result<std::unique_ptr<MetricsServer>> MetricsServer::open(Options options, StatusJson status,
                                                           Logger& log, const Clock& clock) {
  std::vector<UniqueFd> listeners;
  auto local = listen_unix(options.socket);
  if (!local) return local.error();
  listeners.push_back(*std::move(local));
  if (options.listen) {
    auto network = listen_loopback(*options.listen);
    if (!network) return network.error();
    listeners.push_back(*std::move(network));
  }
  UniqueFd wake(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake) return system_error("eventfd", errno);
  return std::unique_ptr<MetricsServer>(new MetricsServer(
      std::move(options), std::move(listeners), std::move(wake), std::move(status), log, clock));
}

MetricsServer::MetricsServer(Options options, std::vector<UniqueFd> listeners, UniqueFd wake,
                             StatusJson status, Logger& log, const Clock& clock)
    : options_(std::move(options)),
      listeners_(std::move(listeners)),
      wake_(std::move(wake)),
      status_(std::move(status)),
      log_(log),
      clock_(clock) {}

void MetricsServer::start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

MetricsServer::~MetricsServer() {
  thread_.request_stop();
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
  ::unlink(options_.socket.c_str());
  // Old figures are worse than none: node_exporter would go on to show them.
  if (!options_.textfile.empty()) ::unlink(options_.textfile.c_str());
}

void MetricsServer::run(const std::stop_token& stop) noexcept {
  SteadyTime next_textfile = clock_.steady();
  std::vector<pollfd> fds{{wake_.get(), POLLIN, 0}};
  for (const UniqueFd& listener : listeners_) fds.push_back({listener.get(), POLLIN, 0});
  while (!stop.stop_requested()) {
    try {
      int patience = -1;
      if (!options_.textfile.empty()) {
        if (clock_.steady() >= next_textfile) {
          write_textfile();
          next_textfile = clock_.steady() + kTextfileInterval;
        }
        patience = static_cast<int>(
            std::chrono::ceil<milliseconds>(next_textfile - clock_.steady()).count());
      }
      if (::poll(fds.data(), fds.size(), patience) <= 0) continue;
      for (std::size_t i = 1; i < fds.size() && !stop.stop_requested(); ++i) {
        if ((fds[i].revents & POLLIN) == 0) continue;
        const UniqueFd client(::accept4(fds[i].fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (client) serve(client.get());
      }
    } catch (...) {
      log_.warning("METRICS_FAILED", "metrics could not be given", {{"reason", thrown_text()}});
    }
  }
}

void MetricsServer::serve(int client) const {
  const SteadyTime deadline = clock_.steady() + kPatience;
  const auto ready = [&](short what) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - clock_.steady());
    std::array<pollfd, 2> fds{{{client, what, 0}, {wake_.get(), POLLIN, 0}}};
    return left.count() > 0 && ::poll(fds.data(), fds.size(), static_cast<int>(left.count())) > 0 &&
           fds[1].revents == 0;
  };
  std::string request;
  std::array<char, 4096> buffer{};
  while (request.find("\r\n\r\n") == std::string::npos) {
    if (!ready(POLLIN)) return;
    const ssize_t n = ::recv(client, buffer.data(), buffer.size(), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0 || request.size() > kLongestHead) return;
    request.append(buffer.data(), static_cast<std::size_t>(n));
  }
  const std::string text = respond(request, status_);
  for (std::string_view rest = text; !rest.empty();) {
    if (!ready(POLLOUT)) return;
    const ssize_t n = ::send(client, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return;
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
}

void MetricsServer::write_textfile() {
  const auto written =
      replace_file(options_.textfile, render_metrics(status_(), MetricsFormat::kPrometheus), 0644);
  if (written) {
    textfile_failed_ = false;
  } else if (!std::exchange(textfile_failed_, true)) {
    log_.warning("METRICS_TEXTFILE",
                 "the file with the metrics cannot be written; it is tried again every 15 s",
                 {{"file", options_.textfile}, {"reason", written.error().message()}});
  }
}

}  // namespace scriptorium
