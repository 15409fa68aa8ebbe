#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <stop_token>

#include "core/api/logger.h"
#include "core/base/file.h"
#include "core/base/time.h"
#include "core/page/request.h"

namespace scriptorium::page {

// Answers GET and HEAD over HTTP/1.1 (RFC 9112), on a Unix or TCP socket. A name that comes in a
// header makes a request that two programs read in two ways an impersonation, so a request with a
// body, or with anything that could be one, is refused, and its connection is closed.
//
// A client can do no harm: connections are limited, the slowest makes room for the next; heads of
// requests have a most size and a time to arrive; requests wait without a thread until it is their
// turn, and one person never has all threads; pages that wait for their readers are limited.
//
// Owns:    the listening socket, the connections, one thread for all of them ("page") and `queries`
//          threads that make pages. Borrows the logger.
// Threads: create, start and destroy in one thread. The destructor ends all connections and waits
//          for the pages that are being made.
class Server {
 public:
  struct Limits {
    std::size_t connections = 512;
    std::size_t queries = 4;          // at the same time
    std::size_t queries_of_user = 2;  // of them
    // Whose answers are not yet sent; more are refused with 429.
    std::size_t requests_of_user = 16;
    // For the head of a request to arrive, and for a reader to take a part of the answer.
    std::chrono::milliseconds patience{10'000};
    // For a page to be made, from when its request came. One that had to wait so long is not made.
    std::chrono::milliseconds query{10'000};
  };
  struct Service {
    std::unique_ptr<Gate> gate;
    // Makes the page. It ends soon after `stop` or the deadline.
    std::function<Response(const Request&, std::stop_token stop, SteadyTime deadline)> answer;
    Limits limits = {};
  };
  static constexpr std::size_t kMostHeadBytes = std::size_t{8} << 10;
  // Of pages that wait for their readers, of all and of one person; then no further one is made.
  static constexpr std::size_t kMostWaitingBytes = std::size_t{64} << 20;
  static constexpr std::size_t kMostWaitingBytesOfUser = std::size_t{16} << 20;

  // Takes a socket that already listens. Clients that connect before start() wait. Both this and
  // start() throw std::system_error if no thread can be had.
  Server(UniqueFd listening, Service service, Logger& log);
  void start();  // call at most once
  ~Server();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace scriptorium::page
