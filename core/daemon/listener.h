#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/logger.h"
#include "core/base/file.h"
#include "core/base/result.h"

namespace scriptorium {

// Answers requests on listening stream sockets, Unix or TCP: one request a connection, then it is
// closed. Clients cannot hurt: each has a deadline for its request and for taking the answer, the
// number of open connections is capped (others wait in the kernel's backlog), and a client that is
// slow or silent delays no other.
//
// Owns:    the listening sockets, the connections, one thread for all of them ("listener") and one
//          in which `answer` runs, one request after the other.
// Threads: create and destroy in one thread. The destructor stops accepting, drops who has not sent
//          a whole request yet, and waits for the answer that is being made.
class Listener {
 public:
  struct Service {
    // Whether `received` holds a whole request. Called after each read; cheap.
    std::function<bool(std::string_view received)> is_whole;
    // The bytes to send back. What it throws is logged, and the connection closed without an
    // answer.
    std::function<std::string(const std::string& request)> answer;
    const char* failure_id = "";  // log id for what `answer` threw
    const char* failure_text = "";
    std::size_t longest_request = std::size_t{64} << 10;  // bytes; who sends more is cut off
    std::chrono::milliseconds patience{5000};  // for the request, and again for taking the answer
  };

  // Takes sockets that listen already; who connected before is answered now.
  static std::unique_ptr<Listener> start(std::vector<UniqueFd> sockets, Service service,
                                         Logger& log);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

 private:
  class Impl;
  explicit Listener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A Unix socket that listens at `path`, with these permissions. `key` begins the text of an error.
// A socket that an earlier run left is replaced; another kind of file is not.
// kInvalidConfig: the path is too long (107 bytes) or taken.
Result<UniqueFd> listen_unix(const std::string& path, unsigned mode, const std::string& key);

// A TCP socket that listens on 127.0.0.1 or ::1. kInvalidConfig: another program listens there.
Result<UniqueFd> listen_loopback(std::uint16_t port, bool v6, const std::string& key);

}  // namespace scriptorium
