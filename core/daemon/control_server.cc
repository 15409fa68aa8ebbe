#include "core/daemon/control_server.h"

#include <sys/un.h>
#include <unistd.h>

#include <string_view>
#include <utility>
#include <vector>

namespace scriptorium {

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
  auto socket = listen_unix(*path, 0600, "control socket");
  if (!socket) return socket.error();
  Listener::Service service{
      .is_whole = [](std::string_view received) { return received.find('\n') != received.npos; },
      .answer =
          [answer = std::move(answer)](const std::string& request) {
            return answer(request.substr(0, request.find('\n'))) + "\n";
          },
      .failure_id = "CONTROL_FAILED",
      .failure_text = "a command could not be answered"};
  std::vector<UniqueFd> sockets;
  sockets.push_back(*std::move(socket));
  return std::unique_ptr<ControlServer>(new ControlServer(
      *std::move(path), Listener::start(std::move(sockets), std::move(service), log)));
}

ControlServer::ControlServer(std::string file, std::unique_ptr<Listener> listener)
    : file_(std::move(file)), listener_(std::move(listener)) {}

ControlServer::~ControlServer() {
  listener_.reset();
  ::unlink(file_.c_str());
}

}  // namespace scriptorium
