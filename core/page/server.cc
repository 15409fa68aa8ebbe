#include "core/page/server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>  // before Asio 1.74, which needs it

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/system/system_error.hpp>
#include <ctime>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <tuple>
#include <vector>

#include "core/base/text.h"
#include "core/base/thrown.h"
#include "core/page/templates.h"
#include "core/serve/door.h"

namespace scriptorium::page {
namespace {

namespace asio = boost::asio;
using serve::Door;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using Stream = beast::basic_stream<asio::generic::stream_protocol>;

// What browsers may do with the pages: show them, with our own style sheet and
// script, in no frame.
constexpr const char* kContentSecurity =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

int family_of(int socket) {
  int family = AF_UNSPEC;
  socklen_t size = sizeof family;
  ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &family, &size);
  return family;
}

std::optional<uid_t> peer_of(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  const bool is_known = family_of(socket) == AF_UNIX &&
                        ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  return is_known ? std::optional(peer.uid) : std::nullopt;
}

// Whether the other side has closed it. One that only sends no more still reads.
bool is_gone(int socket) {
  pollfd state{.fd = socket, .events = 0, .revents = 0};
  return ::poll(&state, 1, 0) == 1 && (state.revents & (POLLHUP | POLLERR)) != 0;
}

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::string text(64, '\0');
  text.resize(std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts));
  return text;
}

using Parser = http::request_parser<http::empty_body>;
using Fields = http::request<http::empty_body>;

std::vector<std::string_view> values_of(const Fields& request, std::string_view name) {
  std::vector<std::string_view> values;
  const auto [begin, end] = request.equal_range(beast::string_view(name.data(), name.size()));
  for (auto field = begin; field != end; ++field)
    values.emplace_back(field->value().data(), field->value().size());
  return values;
}

std::string last_of_list(const std::vector<std::string_view>& values) {
  if (values.empty()) return {};
  std::string_view text = values.back();
  text.remove_prefix(text.rfind(',') + 1);  // npos + 1 is 0
  while (text.starts_with(' ')) text.remove_prefix(1);
  return std::string(text);
}

std::string_view target_of(const Fields& request) {
  return {request.target().data(), request.target().size()};
}

// Why there is no answer to a request that could be read in two ways; nothing if it is as it should
// be.
std::optional<Response> refusal_of(const Parser& parser) {
  const Fields& request = parser.get();
  const std::string_view target = target_of(request);
  if (request.method() != http::verb::get && request.method() != http::verb::head) {
    Response refusal = plain_page(405, words("only_get"), target);
    refusal.headers.emplace_back("Allow", "GET, HEAD");
    return refusal;
  }
  if (request.version() != 11 && request.version() != 10)
    return plain_page(505, words("only_http"), target);
  if (request.count(http::field::transfer_encoding) > 0 ||
      parser.content_length().value_or(0) > 0 || request.count(http::field::content_length) > 1)
    return plain_page(413, words("no_body"), target);
  if (request.count(http::field::host) != 1) return plain_page(400, words("one_host"), target);
  return std::nullopt;
}

}  // namespace

// Everything but `answer` runs in the thread of `door_`.
class Server::Impl {
 public:
  Impl(UniqueFd listening, Service service, Logger& log)
      : service_(std::move(service)),
        log_(log),
        door_(std::move(listening), service_.limits.queries,
              {"page", "PAGE_FAILED", "a request was dropped"}, log) {}

  void start() {
    door_.start([this](UniqueFd fd) { take(std::move(fd)); });
  }

  void stop() {
    door_.stop([this] {
      for (const ClientRef& client : std::set<ClientRef>(clients_)) end(client);
      stop_.request_stop();  // after that, so that nobody gets a page that it cut short
    });
  }

 private:
  enum class Doing { kReading, kWaiting, kWriting };
  struct Client {
    Client(asio::io_context& io, UniqueFd fd) : stream(io.get_executor()), peer(peer_of(fd.get())) {
      const asio::generic::stream_protocol protocol(family_of(fd.get()), 0);
      stream.socket().assign(protocol, fd.release());
    }

    Stream stream;
    const std::optional<uid_t> peer;
    beast::flat_buffer buffer{2 * kMostHeadBytes};
    std::optional<Parser> parser;
    Doing doing = Doing::kReading;
    std::string login;  // of the request that is being answered; "" = none is
    SteadyTime since;   // it reads
    bool is_open = true;
  };
  using ClientRef = std::shared_ptr<Client>;
  struct Question {
    ClientRef client;
    Request request;
    bool is_head = false;
    bool keeps_open = false;
    SteadyTime deadline;
  };
  // What one login has under way.
  struct Person {
    std::size_t requests = 0;
    std::size_t running = 0;
    std::size_t bytes = 0;  // that wait for their reader

    bool is_idle() const { return requests == 0 && running == 0 && bytes == 0; }
  };
  struct Outgoing {
    std::string login;
    http::response<http::string_body> message;
    http::response_serializer<http::string_body> serializer{message};
    std::size_t bytes = 0;
  };

  // ---- connections

  void take(UniqueFd fd) {
    if (!make_room()) return;
    const auto client = std::make_shared<Client>(door_.io(), std::move(fd));
    clients_.insert(client);
    read(client);
  }

  // False if every connection has a page to wait for; else there is room now.
  bool make_room() {
    if (clients_.size() < service_.limits.connections) return true;
    ClientRef oldest;
    for (const ClientRef& client : clients_) {
      if (client->doing == Doing::kReading && (!oldest || client->since < oldest->since))
        oldest = client;
    }
    if (oldest) end(oldest);
    return oldest != nullptr;
  }

  void end(const ClientRef& client) {
    if (!std::exchange(client->is_open, false)) return;
    error_code ignored;
    std::ignore = client->stream.socket().shutdown(asio::socket_base::shutdown_send, ignored);
    client->stream.close();
    std::erase_if(waiting_, [&](const Question& q) { return q.client == client; });
    end_request(client);
    clients_.erase(client);
  }

  // ---- requests

  void read(const ClientRef& client) {
    client->doing = Doing::kReading;
    client->since = std::chrono::steady_clock::now();
    client->parser.emplace();
    client->parser->header_limit(kMostHeadBytes);
    client->parser->body_limit(0);
    client->stream.expires_after(service_.limits.patience);
    http::async_read_header(client->stream, client->buffer, *client->parser,
                            [this, client](const error_code& error, std::size_t) {
                              if (!client->is_open) return;
                              if (error) return unreadable(client, error);
                              take_request(client);
                            });
  }

  void unreadable(const ClientRef& client, const error_code& error) {
    const bool is_http =
        error.category() == http::make_error_code(http::error::header_limit).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message;
    if (!is_http) return end(client);
    const bool is_long =
        error == http::error::header_limit || error == http::error::buffer_overflow;
    const bool has_body = error == http::error::body_limit;
    send(client,
         is_long    ? plain_page(431, words("head_too_long"), "/")
         : has_body ? plain_page(413, words("no_body"), "/")
                    : plain_page(400, words("not_http"), "/"),
         false, false);
  }

  void take_request(const ClientRef& client) {
    if (auto refusal = refusal_of(*client->parser))
      return send(client, *std::move(refusal), false, false);
    const Fields& request = client->parser->get();
    const bool is_head = request.method() == http::verb::head;
    const std::string_view target = target_of(request);
    const auto forwarded = values_of(request, "X-Forwarded-For");
    const auto admitted = service_.gate->admit({.peer = client->peer,
                                                .target = target,
                                                .hosts = values_of(request, "Host"),
                                                .users = values_of(request, "X-Remote-User"),
                                                .cookies = values_of(request, "Cookie")});
    const bool keeps_open = request.keep_alive();
    if (admitted.answer) {
      if (!admitted.reason.empty())
        log_.warning("PAGE_REFUSED", "a request was refused", {{"reason", admitted.reason}});
      return send(client, *admitted.answer, is_head, keeps_open && !admitted.closes);
    }
    const auto known = persons_.find(admitted.login);
    if (known != persons_.end() && known->second.requests >= service_.limits.requests_of_user) {
      Response busy = plain_page(429, words("too_many"), target);
      busy.headers.emplace_back("Retry-After", "1");
      return send(client, std::move(busy), is_head, keeps_open);
    }
    ++persons_[admitted.login].requests;
    client->login = admitted.login;
    client->doing = Doing::kWaiting;
    client->stream.expires_never();
    waiting_.push_back({.client = client,
                        .request = {.login = admitted.login,
                                    .address = printable(last_of_list(forwarded)),
                                    .target = std::string(target)},
                        .is_head = is_head,
                        .keeps_open = keeps_open,
                        .deadline = std::chrono::steady_clock::now() + service_.limits.query});
    ask_next();
  }

  // Starts what may run now, in the order of arrival.
  void ask_next() {
    for (auto next = waiting_.begin(); next != waiting_.end() &&
                                       running_ < service_.limits.queries &&
                                       waiting_bytes_ < kMostWaitingBytes;) {
      Person& person = persons_[next->request.login];
      if (person.running >= service_.limits.queries_of_user ||
          person.bytes >= kMostWaitingBytesOfUser) {
        ++next;
        continue;
      }
      Question question = std::move(*next);
      waiting_.erase(next);
      if (is_gone(question.client->stream.socket().native_handle())) {
        end(question.client);
      } else if (std::chrono::steady_clock::now() >= question.deadline) {
        Response late = plain_page(503, words("too_busy"), question.request.target);
        late.headers.emplace_back("Retry-After", "1");
        send(question.client, std::move(late), question.is_head, question.keeps_open);
      } else {
        ++person.running;
        ++running_;
        make_page(std::move(question));
      }
      next = waiting_.begin();
    }
  }

  void make_page(Question question) {
    asio::post(door_.workers(), [this, question = std::move(question)]() mutable {
      std::optional<Response> response;
      try {
        response = service_.answer(question.request, stop_.get_token(), question.deadline);
      } catch (...) {
        log_.warning("PAGE_FAILED", "a page could not be made; its reader is disconnected",
                     {{"reason", thrown_text()}});
      }
      asio::post(door_.io(),
                 [this, question = std::move(question), response = std::move(response)]() mutable {
                   answered(question, std::move(response));
                 });
    });
  }

  void answered(const Question& question, std::optional<Response> response) {
    --running_;
    change(question.request.login, [](Person& person) { --person.running; });
    if (!response) {
      end(question.client);
    } else if (question.client->is_open) {
      send(question.client, *std::move(response), question.is_head, question.keeps_open);
    }
    ask_next();
  }

  template <typename Change>
  void change(const std::string& login, Change with) {
    const auto person = persons_.find(login);
    if (person == persons_.end()) return;  // an empty answer was under way when the client ended
    with(person->second);
    if (person->second.is_idle()) persons_.erase(person);
  }

  void end_request(const ClientRef& client) {
    const std::string login = std::exchange(client->login, {});
    if (!login.empty()) change(login, [](Person& person) { --person.requests; });
  }

  // ---- answers

  void send(const ClientRef& client, Response response, bool is_head, bool keeps_open) {
    client->doing = Doing::kWriting;
    const auto out = std::make_shared<Outgoing>();
    auto& message = out->message;
    message.result(response.status);
    message.version(11);
    message.set(http::field::date, http_date());
    message.set(http::field::content_type, response.type);
    message.set(http::field::cache_control, "private, no-cache");
    message.set("Content-Security-Policy", kContentSecurity);
    message.set("X-Content-Type-Options", "nosniff");
    message.set("Referrer-Policy", "same-origin");
    message.set("Cross-Origin-Opener-Policy", "same-origin");
    for (const auto& [name, value] : response.headers) message.set(name, value);
    message.keep_alive(keeps_open);
    message.content_length(response.body.size());
    // HEAD has the length of what GET would have.
    if (!is_head) message.body() = std::move(response.body);
    out->bytes = message.body().size();
    out->login = client->login;
    waiting_bytes_ += out->bytes;
    if (!out->login.empty()) persons_[out->login].bytes += out->bytes;
    write(client, out);
  }

  void sent(const Outgoing& out) {
    waiting_bytes_ -= out.bytes;
    if (!out.login.empty()) change(out.login, [&](Person& person) { person.bytes -= out.bytes; });
  }

  // A part at a time, so that a slow reader has time for each.
  void write(const ClientRef& client, const std::shared_ptr<Outgoing>& out) {
    client->stream.expires_after(service_.limits.patience);
    http::async_write_some(client->stream, out->serializer,
                           [this, client, out](const error_code& error, std::size_t) {
                             if (!error && client->is_open && !out->serializer.is_done())
                               return write(client, out);
                             sent(*out);
                             if (!client->is_open) return;
                             end_request(client);
                             if (error || !out->message.keep_alive()) {
                               end(client);
                             } else {
                               read(client);
                             }
                             ask_next();
                           });
  }

  Service service_;
  Logger& log_;
  Door door_;
  std::stop_source stop_;
  std::set<ClientRef> clients_;
  std::deque<Question> waiting_;
  std::size_t running_ = 0;
  std::map<std::string, Person> persons_;
  std::size_t waiting_bytes_ = 0;
};

Server::Server(UniqueFd listening, Service service, Logger& log) try
    : impl_(std::make_unique<Impl>(std::move(listening), std::move(service), log)) {
} catch (const boost::system::system_error& e) {
  // asio's own, if it gets no thread.
  throw std::system_error(e.code());
}
Server::~Server() { impl_->stop(); }
void Server::start() { impl_->start(); }

}  // namespace scriptorium::page
