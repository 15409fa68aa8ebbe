#include "core/serve/server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/system/system_error.hpp>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <stop_token>
#include <system_error>
#include <tuple>
#include <utility>

#include "core/base/guarded.h"
#include "core/base/thrown.h"
#include "core/serve/answer.h"
#include "core/serve/door.h"
#include "core/serve/protocol.h"

namespace scriptorium::serve {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Socket = asio::local::stream_protocol::socket;

uid_t peer_of(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return uid_t(-1);
  return peer.uid;
}

}  // namespace

// Everything but find_caller, record and the stores runs in the thread of `door_`, so that only a
// client's queue needs a lock.
class Server::Impl {
 public:
  Impl(UniqueFd listening, Service service, Logger& log)
      : service_(std::move(service)),
        log_(log),
        door_(std::move(listening), service_.limits.queries,
              {"serve", "SERVE_FAILED", "a question was dropped"}, log) {
    if (!service_.peer) service_.peer = peer_of;
  }

  void start() {
    door_.start([this](UniqueFd fd) { welcome(std::move(fd)); });
  }

  void stop() {
    door_.stop([this] {
      for (const ClientRef& client : std::set<ClientRef>(clients_)) end(client);
    });
  }

 private:
  // What waits for its reader.
  struct Queue {
    std::deque<std::string> frames;
    std::size_t bytes = 0;
    bool is_closed = false;
  };
  // A connection. Operations under way hold references; it is closed by end().
  struct Client {
    Client(asio::io_context& io, int fd, uid_t of)
        : socket(io, asio::local::stream_protocol(), fd), timer(io), query_end(io), uid(of) {}

    Socket socket;
    asio::steady_timer timer;      // for the peer
    asio::steady_timer query_end;  // for the store
    const uid_t uid;
    bool is_open = true;
    bool is_writing = false;
    bool has_question = false;  // that waits, is being answered, or whose answer waits for the peer
    bool is_answered = false;   // nothing more will be queued for it
    bool closes = false;        // once the peer has what is queued
    FrameReader received{kMostAskBytes};
    std::array<char, 4096> buffer{};
    std::stop_source stop;
    Guarded<Queue> queue;
  };
  using ClientRef = std::shared_ptr<Client>;
  struct Question {
    ClientRef client;
    std::string bytes;
  };

  // ---- connections

  // False if every connection is in use; else there is room now.
  bool make_room() {
    if (clients_.size() < service_.limits.connections) return true;
    ClientRef idle;
    for (const ClientRef& client : clients_) {
      if (client->has_question || client->is_writing) continue;
      if (!idle || client->timer.expiry() < idle->timer.expiry()) idle = client;
    }
    if (idle) end(idle);
    return idle != nullptr;
  }

  void welcome(UniqueFd fd) {
    const uid_t uid = service_.peer(fd.get());
    const auto known = connections_of_.find(uid);
    const bool has_too_many =
        known != connections_of_.end() && known->second >= service_.limits.connections_of_user;
    if (has_too_many || !make_room()) {
      const Error error{ErrorKind::kTransient,
                        has_too_many ? "too many connections of this user to the query service"
                                     : "the query service is busy; try again later"};
      // A new socket has room for so little.
      for (const std::string& frame : frames_of(encode(refusal(error))))
        ::send(fd.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      return;
    }
    ++connections_of_[uid];
    const auto client = std::make_shared<Client>(door_.io(), fd.release(), uid);
    clients_.insert(client);
    push(*client, frames_of(encode(Reply{.kind = Reply::Kind::kHello})).front());
    write(client);
    read(client);
  }

  void end(const ClientRef& client) {
    if (!std::exchange(client->is_open, false)) return;
    error_code ignored;
    std::ignore = client->socket.close(ignored);
    client->timer.cancel();
    client->query_end.cancel();
    client->stop.request_stop();
    client->queue.with_notify([](Queue& queue) { queue.is_closed = true; });
    if (--connections_of_[client->uid] == 0) connections_of_.erase(client->uid);
    std::erase_if(waiting_, [&](const Question& q) { return q.client == client; });
    clients_.erase(client);
  }

  // Limits what the peer is now waited for.
  void set_timer(const ClientRef& client) {
    if (client->has_question && !client->is_writing) {
      client->timer.cancel();
      return;
    }
    const bool is_busy = client->is_writing || !client->received.is_empty();
    client->timer.expires_after(is_busy ? service_.limits.patience : service_.limits.idle);
    client->timer.async_wait([this, client](const error_code& error) {
      // A wait that ended just before the next began has no error.
      const bool is_over = client->timer.expiry() <= std::chrono::steady_clock::now();
      if (!error && is_over) end(client);
    });
  }

  // ---- questions

  void read(const ClientRef& client) {
    client->socket.async_read_some(
        asio::buffer(client->buffer), [this, client](const error_code& error, std::size_t count) {
          if (error || !client->is_open) return end(client);
          const bool is_first = client->received.is_empty();
          client->received.add({client->buffer.data(), count});
          // The peer may send the next question before it has the answer, but no more than that.
          if (client->received.size() > kMostAskBytes + 2 * client->buffer.size())
            return end(client);
          if (is_first) set_timer(client);
          if (!client->has_question) take_question(client);
          if (client->is_open) read(client);
        });
  }

  void take_question(const ClientRef& client) {
    auto question = client->received.next();
    if (question && !*question) return;
    client->has_question = true;
    client->is_answered = !question;
    client->closes = !question;
    if (question) {
      waiting_.push_back({client, **std::move(question)});
      set_timer(client);
      return ask_next();
    }
    push(*client, frames_of(encode(refusal(question.error()))).front());
    write(client);
  }

  // Starts what may run now, in the order of arrival.
  void ask_next() {
    for (auto next = waiting_.begin();
         next != waiting_.end() && running_ < service_.limits.queries;) {
      std::size_t& of_user = running_of_[next->client->uid];
      if (of_user >= service_.limits.queries_of_user) {
        ++next;
        continue;
      }
      ++of_user;
      ++running_;
      start_query(std::move(*next));
      next = waiting_.erase(next);
    }
  }

  void start_query(Question question) {
    const ClientRef client = question.client;
    const SteadyTime deadline = std::chrono::steady_clock::now() + service_.limits.query;
    client->stop = std::stop_source();
    client->query_end.expires_at(deadline);
    client->query_end.async_wait([stop = client->stop](const error_code& error) mutable {
      if (!error) stop.request_stop();
    });
    asio::post(door_.workers(), [this, question = std::move(question), deadline,
                                 stop = client->stop.get_token()]() mutable {
      const ClientRef of = question.client;
      bool done = false;
      try {
        const Reply last = ask(of, question.bytes, stop, deadline);
        done = hand_over(of, encode(last), deadline).has_value();
      } catch (...) {
        log_.warning("SERVE_FAILED", "a question could not be answered; its client is disconnected",
                     {{"reason", thrown_text()}});
      }
      asio::post(door_.io(), [this, of, done] {
        if (!done) end(of);
        answered(of);
      });
    });
  }

  void answered(const ClientRef& client) {
    --running_;
    if (--running_of_[client->uid] == 0) running_of_.erase(client->uid);
    client->query_end.cancel();
    client->is_answered = true;
    if (client->is_open && !client->is_writing) finish(client);
    ask_next();
  }

  // The peer has the whole answer.
  void finish(const ClientRef& client) {
    if (client->closes) return end(client);
    client->has_question = false;
    set_timer(client);
    take_question(client);
  }

  // ---- in a worker

  Reply ask(const ClientRef& client, const std::string& bytes, const std::stop_token& stop,
            SteadyTime deadline) {
    const auto ask = decode_ask(bytes);
    if (!ask) return refusal(ask.error());
    const auto caller = service_.find_caller(client->uid);
    if (!caller) return refusal(caller.error());
    std::size_t sent = 0;
    const auto send = [&](const Reply& reply) -> Result<void> {
      const std::string message = encode(reply);
      sent += message.size();
      if (message.size() > kMostMessageBytes ||
          (ask->call != Ask::Call::kRuns && sent > kMostAnswerBytes))
        return Error{ErrorKind::kPermanent, "the answer is too large for the query service"};
      return hand_over(client, message, deadline);
    };
    return answer(*ask, {.stores = service_.stores,
                         .caller = *caller,
                         .record = service_.record,
                         .send = send,
                         .stop = stop,
                         .deadline = deadline});
  }

  // Where too much is queued, waits until the peer has taken half of it, and not longer for a peer
  // that reads slowly than for one that does not read.
  Result<void> hand_over(const ClientRef& client, const std::string& message, SteadyTime deadline) {
    for (std::string& frame : frames_of(message)) {
      const SteadyTime until =
          std::min(deadline, std::chrono::steady_clock::now()) + service_.limits.patience;
      const bool is_taken =
          client->queue.with(has_room) ||
          client->queue.wait_until(std::stop_token(), until, [](const Queue& queue) {
            return queue.is_closed || queue.bytes <= kMostQueuedBytes / 2;
          });
      if (!is_taken || !push(*client, std::move(frame)))
        return Error{ErrorKind::kTransient, "the client does not take its answer"};
      asio::post(door_.io(), [this, client] { write(client); });
    }
    return {};
  }

  // ---- answers

  static bool has_room(const Queue& queue) {
    return queue.is_closed || queue.bytes < kMostQueuedBytes;
  }
  static bool push(Client& client, std::string frame) {
    return client.queue.with([&](Queue& queue) {
      if (queue.is_closed || !has_room(queue)) return false;
      queue.bytes += frame.size();
      queue.frames.push_back(std::move(frame));
      return true;
    });
  }

  void write(const ClientRef& client) {
    if (client->is_writing || !client->is_open) return;
    const std::string* frame = client->queue.with(
        [](Queue& queue) { return queue.frames.empty() ? nullptr : &queue.frames.front(); });
    if (frame == nullptr) {
      if (client->has_question && client->is_answered) finish(client);
      return;
    }
    client->is_writing = true;
    set_timer(client);
    asio::async_write(client->socket, asio::buffer(*frame),
                      [this, client](const error_code& error, std::size_t) {
                        client->is_writing = false;
                        if (error) return end(client);
                        client->queue.with_notify([](Queue& queue) {
                          queue.bytes -= queue.frames.front().size();
                          queue.frames.pop_front();
                        });
                        set_timer(client);
                        write(client);
                      });
  }

  Service service_;
  Logger& log_;
  Door door_;
  std::set<ClientRef> clients_;
  std::map<uid_t, std::size_t> connections_of_;
  std::deque<Question> waiting_;
  std::size_t running_ = 0;
  std::map<uid_t, std::size_t> running_of_;
};

Server::Server(UniqueFd listening, Service service, Logger& log) try
    : impl_(std::make_unique<Impl>(std::move(listening), std::move(service), log)) {
} catch (const boost::system::system_error& e) {
  // asio's own, if it gets no thread.
  throw std::system_error(e.code());
}
Server::~Server() { impl_->stop(); }
void Server::start() { impl_->start(); }

}  // namespace scriptorium::serve
