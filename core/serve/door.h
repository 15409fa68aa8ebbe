#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstddef>
#include <functional>
#include <thread>

#include "core/api/logger.h"
#include "core/base/file.h"

namespace scriptorium::serve {

// What a server consists of beside its protocol: a listening socket, a thread in which all
// connections are served without waiting, and workers for what takes time.
//
// Owns:    the socket and the threads. Borrows the logger.
// Threads: create, start and stop in one thread.
class Door {
 public:
  struct Names {
    const char* thread;
    const char* failure_id;  // of the log's message when a call in the thread throws
    const char* failure;
  };
  // Takes a socket that already listens. Throws boost::system::system_error if it gets no thread.
  Door(UniqueFd listening, std::size_t workers, const Names& names, Logger& log);

  boost::asio::io_context& io() noexcept { return io_; }  // of the thread
  boost::asio::thread_pool& workers() noexcept { return workers_; }

  // Calls `take` in the thread for each connection. Call at most once.
  void start(std::function<void(UniqueFd)> take);
  // Takes no further connection, calls `end_all` in the thread, and returns when the workers have
  // ended and everything in the thread is closed. Without start() it does nothing.
  void stop(const std::function<void()>& end_all);

 private:
  void run() noexcept;
  void accept_next();
  void accept();

  const Names names_;
  Logger& log_;
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> idle_{
      io_.get_executor()};
  boost::asio::thread_pool workers_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer pause_;
  std::function<void(UniqueFd)> take_;
  bool stopping_ = false;
  std::jthread thread_;
};

}  // namespace scriptorium::serve
