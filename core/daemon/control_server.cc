#include "core/daemon/control_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/base/thread_name.h"
#include "core/base/thrown.h"

namespace scriptorium {
namespace {

constexpr std::size_t kLongestRequest = 64U << 10;
constexpr timeval kPatience{.tv_sec = 5, .tv_usec = 0};

}  // namespace

Result<std::string> control_socket_path(const std::string& state_dir) {
  std::string path = state_dir + "/control.sock";
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return Error{ErrorKind::kInvalidConfig, "state_dir: too long for the control socket: " + path +
                                                " has " + std::to_string(path.size()) + " bytes, " +
                                                std::to_string(sizeof(sockaddr_un::sun_path) - 1) +
                                                " are possible"};
  }
  return path;
}

Result<std::unique_ptr<ControlServer>> ControlServer::start(const std::string& state_dir,
                                                            Answer answer, Logger& log) {
  auto path = control_socket_path(state_dir);
  if (!path) return path.error();
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return system_error("socket", errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path->c_str(), path->size() + 1);
  ::unlink(path->c_str());  // state_dir is locked: whoever left it is gone
  // Of a process's umask only the main thread may change it, and only before others make files: the
  // daemon sets 0077.
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return system_error("bind " + *path, errno);
  if (::chmod(path->c_str(), 0600) != 0) return system_error("chmod " + *path, errno);
  if (::listen(socket.get(), 16) != 0) return system_error("listen " + *path, errno);
  UniqueFd wake(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake) return system_error("eventfd", errno);
  return std::unique_ptr<ControlServer>(
      new ControlServer(std::move(socket), std::move(wake), *path, std::move(answer), log));
}

ControlServer::ControlServer(UniqueFd socket, UniqueFd wake, std::string file, Answer answer,
                             Logger& log)
    : socket_(std::move(socket)),
      wake_(std::move(wake)),
      file_(std::move(file)),
      answer_(std::move(answer)),
      log_(log),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

ControlServer::~ControlServer() {
  thread_.request_stop();
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_.get(), &one, sizeof one);
  thread_.join();
  ::unlink(file_.c_str());
}

void ControlServer::run(const std::stop_token& stop) noexcept {
  name_thread("control");
  while (!stop.stop_requested()) {
    std::array<pollfd, 2> fds{{{socket_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}}};
    if (::poll(fds.data(), fds.size(), -1) < 0 || (fds[0].revents & POLLIN) == 0) continue;
    const UniqueFd client(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!client) continue;
    try {
      serve(client.get());
    } catch (...) {
      log_.warning("CONTROL_FAILED", "a command could not be answered",
                   {{"reason", thrown_text()}});
    }
  }
}

void ControlServer::serve(int client) {
  ::setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  ::setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
  std::string request;
  std::array<char, 4096> buffer{};
  while (request.find('\n') == std::string::npos) {
    const ssize_t n = ::recv(client, buffer.data(), buffer.size(), 0);
    if (n <= 0 || request.size() > kLongestRequest) return;
    request.append(buffer.data(), static_cast<std::size_t>(n));
  }
  const std::string answer = answer_(request.substr(0, request.find('\n'))) + "\n";
  for (std::size_t sent = 0; sent < answer.size();) {
    const ssize_t n = ::send(client, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return;
    sent += static_cast<std::size_t>(n);
  }
}

}  // namespace scriptorium
