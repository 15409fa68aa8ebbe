#include "core/serve/door.h"

#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <boost/system/error_code.hpp>
#include <cerrno>
#include <chrono>
#include <utility>

#include "core/base/thread_name.h"
#include "core/base/thrown.h"

namespace scriptorium::serve {
namespace {

using boost::system::error_code;

// After accept() failed, for example because no descriptor was free.
constexpr std::chrono::milliseconds kAcceptPause{100};

}  // namespace

Door::Door(UniqueFd listening, std::size_t workers, const Names& names, Logger& log)
    : names_(names), log_(log), workers_(workers), socket_(io_, listening.release()), pause_(io_) {}

void Door::start(std::function<void(UniqueFd)> take) {
  take_ = std::move(take);
  accept_next();
  thread_ = std::jthread([this] {
    name_thread(names_.thread);
    run();
  });
}

void Door::stop(const std::function<void()>& end_all) {
  if (!thread_.joinable()) return;
  boost::asio::post(io_, [this, &end_all] {
    stopping_ = true;
    socket_.close();
    pause_.cancel();
    end_all();
  });
  workers_.join();
  idle_.reset();
  thread_.join();
}

// Returns when everything is closed and no worker has anything to post.
void Door::run() noexcept {
  for (bool ended = false; !ended;) {
    try {
      io_.run();
      ended = true;
    } catch (...) {  // out of memory
      log_.warning(names_.failure_id, names_.failure, {{"reason", thrown_text()}});
    }
  }
}

void Door::accept_next() {
  if (stopping_) return;
  socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [this](const error_code& error) {
                       if (!error) accept();
                     });
}

void Door::accept() {
  UniqueFd fd(::accept4(socket_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
    pause_.expires_after(kAcceptPause);
    return pause_.async_wait([this](const error_code& error) {
      if (!error) accept_next();
    });
  }
  accept_next();
  if (fd) take_(std::move(fd));
}

}  // namespace scriptorium::serve
