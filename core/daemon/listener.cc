#include "core/daemon/listener.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>
#include <boost/system/system_error.hpp>
#include <cerrno>
#include <list>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

#include "core/base/thread_name.h"
#include "core/base/thrown.h"

namespace scriptorium {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Endpoint = asio::generic::stream_protocol::endpoint;
using Socket = asio::generic::stream_protocol::socket;

constexpr int kBacklog = 512;
constexpr std::size_t kMostConnections = 32;
// After accept() failed, for example because no descriptor was free.
constexpr std::chrono::milliseconds kAcceptPause{100};

Result<UniqueFd> listening(const Endpoint& endpoint, const std::string& what) {
  const int family = endpoint.protocol().family();
  UniqueFd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return system_error("socket", errno);
  const int on = 1;
  if (family != AF_UNIX) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    const int code = errno;
    const char* hint = code == EADDRINUSE ? "; another program listens there" : "";
    return Error{ErrorKind::kInvalidConfig, system_error(what, code).message() + hint};
  }
  return socket;
}

}  // namespace

Result<UniqueFd> listen_unix(const std::string& path, unsigned mode, const std::string& key) {
  constexpr std::size_t kMostBytes = sizeof(sockaddr_un::sun_path) - 1;
  if (path.size() > kMostBytes) {
    return Error{ErrorKind::kInvalidConfig, key + ": " + path +
                                                " is too long for a socket's name: it has " +
                                                std::to_string(path.size()) + " bytes, " +
                                                std::to_string(kMostBytes) + " are possible"};
  }
  struct stat st{};
  if (::lstat(path.c_str(), &st) == 0 && S_ISSOCK(st.st_mode)) ::unlink(path.c_str());
  const std::string what = key + ": " + path;
  // The mode follows bind(): the daemon's umask is 0077, so nobody else can connect in between.
  auto socket = listening(asio::local::stream_protocol::endpoint(path), what);
  if (socket && ::chmod(path.c_str(), mode) != 0) return system_error(what, errno);
  return socket;
}

Result<UniqueFd> listen_tcp(const std::string& address, std::uint16_t port,
                            const std::string& key) {
  return listening(asio::ip::tcp::endpoint(asio::ip::make_address(address), port),
                   key + ": port " + std::to_string(port));
}

// Everything but `answer` runs in `thread_`, so nothing here needs a lock.
class Listener::Impl {
 public:
  Impl(std::vector<UniqueFd> sockets, Service service, Logger& log)
      : service_(std::move(service)), log_(log) {
    for (UniqueFd& socket : sockets) doors_.emplace_back(io_, socket.release());
  }

  void start() {
    for (Door& door : doors_) accept_next(door);
    thread_ = std::jthread([this] {
      name_thread("listener");
      run();
    });
  }

  void stop() {
    if (!thread_.joinable()) return;
    asio::post(io_, [this] {
      for (Door& door : doors_) {
        door.socket.close();
        door.pause.cancel();
      }
      stopping_ = true;
      for (Client* client : clients_) {
        if (!client->has_request) client->end();
      }
    });
    thread_.join();
    worker_.join();
  }

 private:
  struct Door {
    Door(asio::io_context& io, int fd) : socket(io, fd), pause(io) {
      socklen_t size = sizeof address;
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
    }
    ~Door() {
      if (address.ss_family == AF_UNIX)
        ::unlink(reinterpret_cast<const sockaddr_un*>(&address)->sun_path);
    }
    Door(const Door&) = delete;
    Door& operator=(const Door&) = delete;

    sockaddr_storage address{};
    asio::posix::stream_descriptor socket;
    asio::steady_timer pause;
    bool waits_for_room = false;
  };

  // Each operation under way holds a reference; the connection is closed after the last one.
  struct Client : std::enable_shared_from_this<Client> {
    Client(Impl& owner, Socket connection)
        : impl(owner), socket(std::move(connection)), deadline(impl.io_) {
      impl.clients_.push_back(this);
    }
    ~Client() { impl.left(*this); }
    void end() {
      error_code ignored;
      deadline.cancel(ignored);
      std::ignore = socket.close(ignored);
    }

    Impl& impl;
    Socket socket;
    asio::steady_timer deadline;
    std::string request;
    std::string answer;
    bool has_request = false;
    std::array<char, 4096> buffer{};
  };
  using ClientRef = std::shared_ptr<Client>;

  // Returns when all doors and clients are closed.
  void run() noexcept {
    for (bool ended = false; !ended;) {
      try {
        io_.run();
        ended = true;
      } catch (...) {  // out of memory; only this client's request fails
        log_.warning(service_.failure_id, service_.failure_text, {{"reason", thrown_text()}});
      }
    }
  }

  void accept_next(Door& door) {
    if (stopping_) return;
    door.waits_for_room = clients_.size() >= kMostConnections;
    if (door.waits_for_room) return;
    door.socket.async_wait(asio::posix::stream_descriptor::wait_read,
                           [this, &door](const error_code& error) {
                             if (!error) accept(door);
                           });
  }

  void accept(Door& door) {
    UniqueFd fd(
        ::accept4(door.socket.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      Socket socket(io_);
      socket.assign(asio::generic::stream_protocol(door.address.ss_family, 0), fd.release());
      const auto client = std::make_shared<Client>(*this, std::move(socket));
      limit(client);
      read(client);
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      door.pause.expires_after(kAcceptPause);
      door.pause.async_wait([this, &door](const error_code& error) {
        if (!error) accept_next(door);
      });
      return;
    }
    accept_next(door);
  }

  void limit(const ClientRef& client) {
    client->deadline.expires_after(service_.patience);
    client->deadline.async_wait([client](const error_code& error) {
      if (!error) client->end();
    });
  }

  void read(const ClientRef& client) {
    client->socket.async_read_some(asio::buffer(client->buffer),
                                   [this, client](const error_code& error, std::size_t count) {
                                     if (error) return client->end();
                                     client->request.append(client->buffer.data(), count);
                                     if (client->request.size() > service_.longest_request)
                                       return client->end();
                                     if (service_.is_whole(client->request))
                                       return make_answer(client);
                                     read(client);
                                   });
  }

  void make_answer(const ClientRef& client) {
    client->has_request = true;
    client->deadline.cancel();
    // The guard keeps the I/O thread running until the answer is written, even during a stop.
    asio::post(worker_, [this, client = client, work = asio::make_work_guard(io_)]() mutable {
      bool made = false;
      try {
        client->answer = service_.answer(client->request);
        made = true;
      } catch (...) {
        log_.warning(service_.failure_id, service_.failure_text, {{"reason", thrown_text()}});
      }
      asio::post(io_, [this, client = std::move(client), made] {
        if (!made) return client->end();
        write(client);
      });
    });
  }

  void write(const ClientRef& client) {
    limit(client);
    asio::async_write(client->socket, asio::buffer(client->answer),
                      [client](const error_code&, std::size_t) { client->end(); });
  }

  void left(const Client& client) {
    clients_.remove(const_cast<Client*>(&client));
    for (Door& door : doors_) {
      if (door.waits_for_room) accept_next(door);
    }
  }

  const Service service_;
  Logger& log_;
  asio::io_context io_{1};
  asio::thread_pool worker_{1};
  std::list<Door> doors_;
  std::list<Client*> clients_;
  bool stopping_ = false;
  std::jthread thread_;
};

Listener::Listener(std::vector<UniqueFd> sockets, Service service, Logger& log) try
    : impl_(std::make_unique<Impl>(std::move(sockets), std::move(service), log)) {
} catch (const boost::system::system_error& e) {
  // asio's own, if it gets no thread.
  throw std::system_error(e.code());
}
Listener::~Listener() { impl_->stop(); }
void Listener::start() { impl_->start(); }

}  // namespace scriptorium
