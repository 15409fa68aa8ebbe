#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "core/api/logger.h"
#include "core/base/file.h"
#include "core/base/result.h"

namespace scriptorium {

// Answers commands on STATE_DIR/control.sock (core/daemon/control.h has the protocol).
// Owns:    the socket and its file, one thread. A client that says nothing is cut off after 5 s.
// Threads: make and destroy in the main thread; `answer` runs in the server's.
class ControlServer {
 public:
  // `answer` gets a request (one line of JSON) and gives the whole answer object.
  using Answer = std::function<std::string(const std::string& request)>;
  static Result<std::unique_ptr<ControlServer>> start(const std::string& state_dir, Answer answer,
                                                      Logger& log);
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

 private:
  ControlServer(UniqueFd socket, UniqueFd wake, std::string file, Answer answer, Logger& log);
  void run(const std::stop_token& stop) noexcept;
  void serve(int client);

  const UniqueFd socket_;
  const UniqueFd wake_;
  const std::string file_;
  const Answer answer_;
  Logger& log_;
  std::jthread thread_;
};

// The path of the socket. Longer than a socket's name may be (107 bytes): kInvalidConfig, said with
// the limit.
Result<std::string> control_socket_path(const std::string& state_dir);

}  // namespace scriptorium
