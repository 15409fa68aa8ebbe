// What a client of the page sends, and what a job's text may hold: a request is answered or refused
// as HTTP, and a text becomes HTML that has no other tags than ours.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "core/page/request.h"
#include "core/page/server.h"
#include "core/page/shown.h"

namespace {

using namespace scriptorium;

class SilentLogger final : public Logger {
 public:
  void log(LogLevel, std::string_view, std::string_view, const Fields&) noexcept override {}
};

const std::string& socket_path() {
  static const std::string kPath = "/tmp/scr-page-fuzz-" + std::to_string(::getpid());
  return kPath;
}

sockaddr_un address() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket_path().c_str(), socket_path().size() + 1);
  return address;
}

// It lives as long as the process.
void start_server() {
  static SilentLogger log;
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ::unlink(socket_path().c_str());
  const sockaddr_un at = address();
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
      ::listen(socket.get(), 64) != 0)
    std::abort();
  auto* server =
      new page::Server(std::move(socket),
                       {.gate = std::make_unique<page::ProxyGate>(std::vector<uid_t>{::getuid()}),
                        .answer =
                            [](const page::Request& request, const std::stop_token&, SteadyTime) {
                              if (request.login.empty()) std::abort();
                              return page::Response{.body = request.target};
                            }},
                       log);
  kServer->start();
  std::atexit([] { ::unlink(socket_path().c_str()); });
}

// All that the server sends until it has closed the connection.
std::string exchange(std::string_view bytes) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un at = address();
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) return {};
  static_cast<void>(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  ::shutdown(socket.get(), SHUT_WR);
  std::string all;
  std::array<char, 4096> buffer{};
  for (ssize_t count = 0; (count = ::recv(socket.get(), buffer.data(), buffer.size(), 0)) > 0;)
    all.append(buffer.data(), static_cast<std::size_t>(count));
  return all;
}

void check_text(std::string_view text, page::Kind kind) {
  const page::Shown shown = page::shown_lines(text, "L", kind);
  const std::string& html = shown.html.text;
  for (std::size_t at = 0; (at = html.find('<', at)) != std::string::npos; ++at) {
    const std::string_view tag = std::string_view(html).substr(at);
    const bool is_ours = tag.starts_with("<span class=") || tag.starts_with("</span>") ||
                         tag.starts_with("<a href=\"#L") || tag.starts_with("</a>") ||
                         tag.starts_with("<mark>") || tag.starts_with("</mark>");
    if (!is_ours) std::abort();
  }
  if (html.find('\0') != std::string::npos || shown.left_out > text.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  start_server();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  for (const page::Kind kind : {page::Kind::kText, page::Kind::kScript, page::Kind::kVariables})
    check_text(input, kind);
  if (const auto target = page::parse_target(input)) {
    for (const std::string& part : target->path) {
      const auto again = page::parse_target("/" + page::percent_encoded(part));
      if (!again || again->path != std::vector<std::string>{part}) std::abort();
    }
  }
  const std::string answer = exchange(input);
  if (!answer.empty() && !answer.starts_with("HTTP/1.1 ")) std::abort();
  return 0;
}
