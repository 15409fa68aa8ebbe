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

// Answers requests on listening stream sockets, Unix or TCP: one request for each connection, which
// is then closed. A client can do no harm: each has a deadline for its request and for taking the
// answer, the number of open connections is capped (others wait in the kernel's backlog), and a
// slow or silent client does not delay the others.
//
// Owns:    the listening sockets and the files of Unix sockets, the connections, one thread for all
//          of them ("listener") and one in which `answer` runs, one request after the other.
// Threads: create, start and destroy in one thread. The destructor stops accepting, drops clients
//          that have not sent a whole request yet, waits for the answer that is being made, and
//          removes the files.
class Listener {
 public:
  struct Service {
    // Whether `received` holds a whole request. Called after each read, so it must be cheap.
    std::function<bool(std::string_view received)> is_whole;
    // The bytes to send back. If it throws, that is logged, and the connection is closed without
    // an answer.
    std::function<std::string(const std::string& request)> answer;
    const char* failure_id = "";  // log id for an exception from `answer`
    const char* failure_text = "";
    std::size_t longest_request = std::size_t{64} << 10;  // bytes; a longer one is cut off
    std::chrono::milliseconds patience{5000};  // for the request, and again for taking the answer
  };

  // Takes sockets that already listen. Clients that connect before start() wait. Both this and
  // start() throw std::system_error if no thread can be had.
  Listener(std::vector<UniqueFd> sockets, Service service, Logger& log);
  void start();  // call at most once
  ~Listener();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// A Unix socket that listens at `path`, with these permissions. The text of an error begins with
// `key`. Replaces a socket that an earlier run left, but no other kind of file.
// kInvalidConfig: the path is too long (107 bytes) or taken.
Result<UniqueFd> listen_unix(const std::string& path, unsigned mode, const std::string& key);

// A TCP socket that listens on an address of this host, such as "127.0.0.1" or "::1"; port 0: any
// that is free. kInvalidConfig: another program listens there.
Result<UniqueFd> listen_tcp(const std::string& address, std::uint16_t port, const std::string& key);

}  // namespace scriptorium
