#include "core/serve/remote_store.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <stop_token>
#include <utility>

#include "core/base/file.h"
#include "core/base/stop_signal.h"
#include "core/serve/protocol.h"

namespace scriptorium::serve {
namespace {

// Longer than the service needs for a query that had to wait for others.
constexpr int kPatienceMs = 180'000;
// For the greeting, which waits for no query.
constexpr int kGreetingMs = 30'000;

Error broken(const std::string& what) {
  return {ErrorKind::kTransient, "the query service " + what};
}

// One connection.
class Conversation {
 public:
  // Returns after the service's greeting.
  static Result<Conversation> begin(const std::string& path, std::stop_token stop) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
      return Error{ErrorKind::kInvalidConfig, path + " is too long for a socket's name"};
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    Conversation made(UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)), std::move(stop));
    if (!made.socket_) return system_error("socket", errno);
    if (::connect(made.socket_.get(), reinterpret_cast<const sockaddr*>(&address),
                  sizeof address) != 0) {
      if (errno == ECONNREFUSED) return broken("does not run (" + path + ")");
      return system_error("the query service's socket " + path, errno);
    }
    const auto hello = made.receive(kGreetingMs);
    if (!hello) return hello.error();
    if (hello->kind != Reply::Kind::kHello || hello->protocol != kProtocol) {
      return broken("speaks version " + std::to_string(hello->protocol) +
                    " of the protocol, this command speaks version " + std::to_string(kProtocol) +
                    "; install the same version of both");
    }
    return made;
  }

  Result<void> send(const Ask& ask) {
    const std::string message = encode(ask);
    if (message.size() > kMostAskBytes)
      return Error{ErrorKind::kInvalidConfig, "the query is too long for the query service"};
    for (const std::string& frame : frames_of(message)) {
      const auto sent = ::send(socket_.get(), frame.data(), frame.size(), MSG_NOSIGNAL);
      if (sent != static_cast<ssize_t>(frame.size())) return broken("ended the connection");
    }
    return {};
  }

  // The next message; an error that the service sent is returned as such.
  Result<Reply> receive(int patience_ms = kPatienceMs) {
    const StopSignal stop(stop_);
    while (true) {
      auto message = reader_.next();
      if (!message) return not_understood();
      if (*message) return reply_of(**message);
      std::array<pollfd, 2> fds{{{socket_.get(), POLLIN, 0}, {stop.fd(), POLLIN, 0}}};
      const int ready = ::poll(fds.data(), fds.size(), patience_ms);
      if (stop_.stop_requested()) return Error{ErrorKind::kTransient, "stopped"};
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) return broken("does not answer");
      const ssize_t count = ::recv(socket_.get(), buffer_.data(), buffer_.size(), 0);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return broken("ended the connection without an answer");
      reader_.add({buffer_.data(), static_cast<std::size_t>(count)});
    }
  }

 private:
  Conversation(UniqueFd socket, std::stop_token stop)
      : socket_(std::move(socket)), stop_(std::move(stop)) {}

  static Error not_understood() {
    return broken("gives an answer that is not understood; install the same version of both");
  }
  static Result<Reply> reply_of(const std::string& message) {
    auto reply = decode_reply(message);
    if (!reply) return not_understood();
    if (reply->kind == Reply::Kind::kError) return Error{reply->error, reply->message};
    return reply;
  }

  UniqueFd socket_;
  std::stop_token stop_;
  FrameReader reader_{kMostMessageBytes};
  std::array<char, 65536> buffer_{};
};

// Asks, and calls use() with each message of items. The last message.
Result<Reply> ask_service(const std::string& socket, const Ask& ask, const std::stop_token& stop,
                          const std::function<void(Reply&)>& use) {
  auto talk = Conversation::begin(socket, stop);
  if (!talk) return talk.error();
  if (auto sent = talk->send(ask); !sent) return sent.error();
  while (true) {
    auto reply = talk->receive();
    if (!reply || reply->kind == Reply::Kind::kEnd) return reply;
    use(*reply);
  }
}

std::optional<double> seconds_until(SteadyTime deadline) {
  if (deadline == SteadyTime::max()) return std::nullopt;
  const std::chrono::duration<double> left = deadline - std::chrono::steady_clock::now();
  return std::max(0.0, left.count());
}

template <typename Item>
void append(std::vector<Item>& to, std::vector<Item>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

Result<void> RemoteStore::probe(const std::string& socket) {
  const auto talk = Conversation::begin(socket, {});
  if (!talk) return talk.error();
  return {};
}

Result<Searchable::Answer> RemoteStore::search(const Request& request) {
  const Ask ask{.call = Ask::Call::kSearch,
                .store = store_,
                .search = request,
                .seconds = seconds_until(request.deadline)};
  std::vector<Hit> hits;
  auto reply =
      ask_service(socket_, ask, request.stop, [&](Reply& items) { append(hits, items.hits); });
  if (request.stop.stop_requested()) return Answer{.next = request.after, .finished = false};
  if (!reply) return reply.error();
  reply->answer.hits = std::move(hits);
  return std::move(reply->answer);
}

Result<std::vector<Searchable::Record>> RemoteStore::get(const Selector& selector,
                                                         const Visibility& /*visibility*/,
                                                         std::size_t limit) {
  std::vector<Record> records;
  const Ask ask{.call = Ask::Call::kGet, .store = store_, .selector = selector, .limit = limit};
  const auto reply =
      ask_service(socket_, ask, {}, [&](Reply& items) { append(records, items.records); });
  if (!reply) return reply.error();
  return records;
}

Result<std::vector<JobRow>> RemoteStore::family(std::uint64_t family,
                                                const Visibility& /*visibility*/,
                                                std::optional<Timestamp> before,
                                                std::size_t limit) {
  std::vector<JobRow> rows;
  Ask ask{.call = Ask::Call::kFamily, .store = store_, .family = family, .before = before};
  while (rows.size() < limit) {
    ask.limit = std::min(limit - rows.size(), kMostRows);
    const std::size_t had = rows.size();
    const auto reply =
        ask_service(socket_, ask, {}, [&](Reply& items) { append(rows, items.rows); });
    if (!reply) return reply.error();
    if (rows.size() - had < ask.limit) break;
    ask.before = rows.back().time;
  }
  return rows;
}

Result<Searchable::RunAnswer> RemoteStore::runs(const RunRequest& request,
                                                const std::function<void(const JobRun&)>& use) {
  if (request.with_event && request.most_wasteful == 0)
    return Error{ErrorKind::kInvalidConfig, "the query service does not give the events of runs"};
  const Ask ask{.call = Ask::Call::kRuns,
                .store = store_,
                .seconds = seconds_until(request.deadline),
                .runs = request};
  auto reply = ask_service(socket_, ask, request.stop, [&](Reply& items) {
    for (JobRun& run : items.runs) {
      if (request.with_event && !request.with_event(run)) run.event = nullptr;
      use(run);
    }
  });
  if (request.stop.stop_requested()) return RunAnswer{.finished = false};
  if (!reply) return reply.error();
  return RunAnswer{.finished = reply->answer.finished, .problems = std::move(reply->problems)};
}

}  // namespace scriptorium::serve
