#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/api/logger.h"
#include "core/base/result.h"
#include "core/daemon/listener.h"

namespace scriptorium {

// Answers commands on STATE_DIR/control.sock (core/daemon/control.h has the protocol).
// Owns:    the socket, its file and a Listener. A client that says nothing is cut off after 5 s.
// Threads: create and destroy in the main thread; `answer` runs in a thread of the listener's, one
//          request after the other.
class ControlServer {
 public:
  // `answer` gets a request (one line of JSON) and returns the whole answer object.
  using Answer = std::function<std::string(const std::string& request)>;
  static Result<std::unique_ptr<ControlServer>> start(const std::string& state_dir, Answer answer,
                                                      Logger& log);
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

 private:
  ControlServer(std::string file, std::unique_ptr<Listener> listener);

  const std::string file_;
  std::unique_ptr<Listener> listener_;
};

// The path of the socket. Longer than a socket's name may be (107 bytes): kInvalidConfig, said with
// the limit.
Result<std::string> control_socket_path(const std::string& state_dir);

}  // namespace scriptorium
