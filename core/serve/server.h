#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/api/logger.h"
#include "core/base/file.h"
#include "core/base/result.h"
#include "core/query/stores.h"
#include "core/serve/caller.h"

namespace scriptorium::serve {

// Answers questions about jobs on a Unix socket (core/serve/protocol.h). Each caller sees the jobs
// that `find_caller` allows, and nothing of any other.
//
// A client can do no harm: connections are limited, in all and for each user; one that asks nothing
// or reads nothing is closed after a while, or earlier if there is no room for another; a client
// that is gone stops its query, and so does the longest time that a query may take. Questions wait
// without a thread until it is their turn, and one user never has all threads. An answer waits for
// its reader in at most kMostQueuedBytes; a longer one keeps its thread, and ends with the
// connection if its reader does not take half of that in `patience`.
//
// Owns:    the listening socket, the connections, one thread for all of them ("serve") and
//          `queries` threads that ask the stores. Borrows the stores and the logger.
// Threads: create, start and destroy in one thread. The destructor ends all connections and waits
//          for the stores.
class Server {
 public:
  struct Limits {
    std::size_t connections = 512;
    std::size_t connections_of_user = 8;
    std::size_t queries = 4;                 // at the same time
    std::size_t queries_of_user = 2;         // of them
    std::chrono::milliseconds idle{60'000};  // between an answer and the next question
    // For a question to arrive, a frame to be read, and room for the rest of a long answer.
    std::chrono::milliseconds patience{10'000};
    std::chrono::milliseconds query{60'000};  // from its turn until the answer is handed over
  };
  struct Service {
    std::function<Result<Caller>(uid_t)> find_caller;
    // Keeps what was asked and found, before the answer is sent. If it fails, there is no answer.
    std::function<Result<void>(const Logger::Fields&)> record;
    std::vector<query::Store> stores;
    Limits limits;
    // The peer of a connected socket; null: as the kernel says. For tests.
    std::function<uid_t(int socket)> peer;
  };
  static constexpr std::size_t kMostQueuedBytes = std::size_t{4} << 20;  // of a connection

  // Takes a socket that already listens. Clients that connect before start() wait. Both this and
  // start() throw std::system_error if no thread can be had.
  Server(UniqueFd listening, Service service, Logger& log);
  void start();  // call at most once
  ~Server();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace scriptorium::serve
