#include "tests/backends/elasticsearch/fake_elasticsearch.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <thread>

namespace scriptorium::test {
namespace {

using Json = nlohmann::json;
using Fault = FakeElasticsearch::Fault;

template <typename T, void (*free)(T*)>
struct Free {
  void operator()(T* object) const noexcept { free(object); }
};
using Context = std::unique_ptr<SSL_CTX, Free<SSL_CTX, SSL_CTX_free>>;
using Session = std::unique_ptr<SSL, Free<SSL, SSL_free>>;

std::string gunzip(const std::string& bytes) {
  z_stream stream{};
  if (inflateInit2(&stream, 16 + 15) != Z_OK) throw std::runtime_error("inflateInit2");
  std::string result;
  std::string chunk(1U << 16, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  int code = Z_OK;
  while (code == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    code = inflate(&stream, Z_NO_FLUSH);
    result.append(chunk, 0, chunk.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  if (code != Z_STREAM_END) throw std::runtime_error("not gzip");
  return result;
}

// A connection, plain or TLS. Ends by shut(), from any thread.
class Wire {
 public:
  Wire(int fd, SSL_CTX* context) : fd_(fd) {
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (context != nullptr) ssl_.reset(SSL_new(context));
  }
  ~Wire() {
    ssl_.reset();
    ::close(fd_);
  }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  bool greet() {
    return ssl_ == nullptr || (SSL_set_fd(ssl_.get(), fd_) == 1 && SSL_accept(ssl_.get()) == 1);
  }
  bool fill(std::string& into) {
    std::array<char, 1U << 16> chunk{};
    const auto n = ssl_ ? SSL_read(ssl_.get(), chunk.data(), static_cast<int>(chunk.size()))
                        : ::recv(fd_, chunk.data(), chunk.size(), 0);
    if (n <= 0) return false;
    into.append(chunk.data(), static_cast<std::size_t>(n));
    return true;
  }
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto n = ssl_ ? SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()))
                          : ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  void shut() noexcept { ::shutdown(fd_, SHUT_RDWR); }
  // Closes so that the other side gets a reset.
  void reset_on_close() noexcept {
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }

 private:
  int fd_;
  Session ssl_;
};

std::string phrase(int status) { return status == 200 ? "OK" : "Status"; }

}  // namespace

class FakeElasticsearch::Impl {
 public:
  Impl(FakeElasticsearch& self, const std::optional<Tls>& tls) : self_(self) {
    if (tls) {
      context_.reset(SSL_CTX_new(TLS_server_method()));
      if (SSL_CTX_use_certificate_file(context_.get(), tls->certificate.c_str(),
                                       SSL_FILETYPE_PEM) != 1 ||
          SSL_CTX_use_PrivateKey_file(context_.get(), tls->key.c_str(), SSL_FILETYPE_PEM) != 1) {
        throw std::runtime_error("the fake server's certificate");
      }
      if (!tls->client_authorities.empty()) {
        SSL_CTX_load_verify_locations(context_.get(), tls->client_authorities.c_str(), nullptr);
        SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                           nullptr);
      }
    }
    listen();
  }
  ~Impl() { go_down(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::string url() const {
    return (context_ ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(port_);
  }

  void listen() {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port_);
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listener_, 64) != 0) {
      throw std::runtime_error("the fake server cannot listen");
    }
    socklen_t size = sizeof address;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    accepter_ = std::jthread([this](const std::stop_token& stop) { accept(stop); });
  }

  void go_down() {
    if (listener_ < 0) return;
    accepter_.request_stop();
    ::shutdown(listener_, SHUT_RDWR);
    accepter_.join();
    ::close(listener_);
    listener_ = -1;
    std::list<std::jthread> threads;
    {
      const std::lock_guard lock(mutex_);
      down_ = true;
      for (Wire* wire : wires_) wire->shut();
      threads.swap(threads_);
      changed_.notify_all();
    }
    threads.clear();
    const std::lock_guard lock(mutex_);
    down_ = false;
  }

  void come_back() { listen(); }

  void accept(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      const std::lock_guard lock(mutex_);
      if (stop.stop_requested() || down_) {
        ::close(fd);
        continue;
      }
      const std::uint64_t number = ++connections_;
      auto wire = std::make_shared<Wire>(fd, context_.get());
      wires_.insert(wire.get());
      threads_.emplace_back([this, wire, number] { serve(wire, number); });
    }
  }

  void serve(std::shared_ptr<Wire> wire, std::uint64_t number) {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    if (wire->greet()) {
      std::string buffer;
      while (serve_one(*wire, number, buffer)) {
      }
    }
    const std::lock_guard lock(mutex_);
    wires_.erase(wire.get());
    wire.reset();
  }

  // False: the connection ends.
  bool serve_one(Wire& wire, std::uint64_t number, std::string& buffer) {
    std::size_t end = 0;
    while ((end = buffer.find("\r\n\r\n")) == std::string::npos) {
      if (!wire.fill(buffer)) return false;
    }
    Request request = parse_head(buffer.substr(0, end));
    request.connection = number;
    buffer.erase(0, end + 4);
    const std::string length = request.header("content-length");
    request.body_bytes = length.empty() ? 0 : std::stoul(length);
    std::size_t most = 0;
    bool silent = false;
    {
      const std::lock_guard lock(mutex_);
      most = most_bytes_;
      silent = silent_;
    }
    const bool refused = request.body_bytes > most;
    if (refused) {
      note(std::move(request));
      if (silent) {
        wire.reset_on_close();
      } else {
        wire.send(
            "HTTP/1.1 413 Request Entity Too Large\r\ncontent-length: 0\r\nconnection: "
            "close\r\n\r\n");
        // Until the client has seen it: closing at once would lose it by a reset.
        std::string rest;
        while (wire.fill(rest)) rest.clear();
      }
      return false;
    }
    if (request.header("expect") == "100-continue" && buffer.size() < request.body_bytes)
      wire.send("HTTP/1.1 100 Continue\r\n\r\n");
    while (buffer.size() < request.body_bytes) {
      if (!wire.fill(buffer)) return false;
    }
    request.body = buffer.substr(0, request.body_bytes);
    buffer.erase(0, request.body_bytes);
    if (request.header("content-encoding") == "gzip") request.body = gunzip(request.body);
    note(request);
    return reply(wire, handle(request));
  }

  static Request parse_head(const std::string& head) {
    Request request;
    std::size_t at = head.find("\r\n");
    const std::string line = head.substr(0, at);
    const std::size_t blank = line.find(' ');
    request.method = line.substr(0, blank);
    request.target = line.substr(blank + 1, line.rfind(' ') - blank - 1);
    while (at != std::string::npos && at < head.size()) {
      const std::size_t next = head.find("\r\n", at + 2);
      const std::string field =
          head.substr(at + 2, next == std::string::npos ? next : next - at - 2);
      const std::size_t colon = field.find(':');
      if (colon != std::string::npos) {
        std::string name = field.substr(0, colon);
        std::ranges::transform(name, name.begin(),
                               [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        request.headers[name] = field.substr(std::min(field.size(), colon + 2));
      }
      at = next;
    }
    return request;
  }

  bool reply(Wire& wire, const Reply& reply) {
    if (reply.fault == Fault::kHang) {
      std::unique_lock lock(mutex_);
      ++hanging_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return down_; });
      --hanging_;
      return false;
    }
    if (reply.fault == Fault::kClose) return false;
    std::string text =
        "HTTP/1.1 " + std::to_string(reply.status) + " " + phrase(reply.status) + "\r\n";
    text += "content-type: " + reply.content_type +
            "\r\ncontent-length: " + std::to_string(reply.body.size()) + "\r\n";
    for (const std::string& header : reply.headers) text += header + "\r\n";
    text += "\r\n" + reply.body;
    if (reply.fault == Fault::kHalfAnswer) {
      wire.send(std::string_view(text).substr(0, text.size() - (reply.body.size() / 2)));
      return false;
    }
    wire.send(text);
    return true;
  }

  void note(Request request) {
    const std::lock_guard lock(mutex_);
    requests_.push_back(std::move(request));
    changed_.notify_all();
  }

  Reply handle(const Request& request) {
    Handler handler;
    {
      const std::lock_guard lock(mutex_);
      const Reply* fixed = nullptr;
      for (const auto& [prefix, reply] : answers_) {
        if (request.path().starts_with(prefix))
          fixed = &reply;  // in order of names: the longest comes last
      }
      if (fixed != nullptr) return *fixed;
      if (request.path() == "/_bulk") {
        if (!next_.empty()) {
          handler = std::move(next_.front());
          next_.pop_front();
        } else {
          handler = every_;
        }
      }
    }
    if (handler) return handler(self_, request);
    if (request.path() == "/_bulk") return apply(request);
    if (request.path() == "/") {
      return {.body = R"({"version":{"number":"8.19.0"},"tagline":"You Know, for Search"})",
              .headers = {"X-elastic-product: Elasticsearch"}};
    }
    if (request.path().ends_with("/_search")) return search(request);
    if (request.path().starts_with("/_index_template/") || request.method == "PUT")
      return {.body = R"({"acknowledged":true})"};
    return {.status = 400, .body = R"({"error":"no handler found for uri","status":400})"};
  }

  Reply apply(const Request& bulk) {
    if (!bulk.body.ends_with('\n')) {
      return {
          .status = 400,
          .body =
              R"({"error":{"type":"illegal_argument_exception","reason":"The bulk request must be terminated by a newline [\\n]"}})"};
    }
    std::function<std::optional<ItemReply>(const Document&)> judge;
    {
      const std::lock_guard lock(mutex_);
      judge = judge_;
    }
    const bool alias = bulk.target.find("require_alias=true") != std::string::npos;
    Json items = Json::array();
    bool errors = false;
    for (std::size_t at = 0; at < bulk.body.size();) {
      const std::size_t first = bulk.body.find('\n', at);
      const std::size_t second = bulk.body.find('\n', first + 1);
      const Json line = Json::parse(bulk.body.substr(at, first - at));
      const std::string verb = line.begin().key();
      const Json& action = line.begin().value();
      Document document{action.at("_index"), action.at("_id"),
                        bulk.body.substr(first + 1, second - first - 1), verb};
      at = second + 1;
      if (!Json::accept(document.source))
        throw std::runtime_error("a document that is not JSON: " + document.source);
      ItemReply reply;
      if (alias) {
        reply = {
            404, "index_not_found_exception",
            "no such index [" + document.index + "] and [require_alias] request flag is [true]"};
      } else if (const auto judged = judge ? judge(document) : std::nullopt) {
        reply = *judged;
      } else if (verb == "create" ? !create(document) : overwrite(document)) {
        reply.status = 200;
        if (verb == "create") {
          reply = {409, "version_conflict_engine_exception",
                   "[" + document.id + "]: version conflict, document already exists"};
        }
      }
      Json item{{"_id", document.id}, {"status", reply.status}};
      if (!reply.type.empty()) item["error"] = {{"type", reply.type}, {"reason", reply.reason}};
      if (!reply.more.empty()) item.update(Json::parse("{" + reply.more + "}"));
      errors = errors || reply.status >= 300;
      items.push_back({{verb, std::move(item)}});
    }
    return {.body = Json{{"took", 1}, {"errors", errors}, {"items", std::move(items)}}.dump(
                -1, ' ', false, Json::error_handler_t::replace)};
  }

  bool create(const Document& document) {
    const std::lock_guard lock(mutex_);
    return documents_.try_emplace({document.index, document.id}, document.source).second;
  }

  // As `index` or `update` does; true if there was a document.
  bool overwrite(const Document& document) {
    const std::lock_guard lock(mutex_);
    const auto [place, fresh] = documents_.try_emplace({document.index, document.id});
    if (document.action == "index") {
      place->second = document.source;
      return !fresh;
    }
    const Json body = Json::parse(document.source);
    if (fresh) {
      place->second = body.at("upsert").dump();
      return false;
    }
    Json merged = Json::parse(place->second);
    merge(merged, body.at("doc"));
    place->second = merged.dump();
    return true;
  }

  // Objects are merged, all else is put in its place, null too.
  static void merge(Json& into, const Json& changes) {
    for (const auto& [name, value] : changes.items()) {
      if (value.is_object() && into.contains(name) && into[name].is_object()) {
        merge(into[name], value);
      } else {
        into[name] = value;
      }
    }
  }

  Reply search(const Request& request) {
    const Json query = Json::parse(request.body);
    const std::string wanted = query.at("query").at("term").at("job.id").at("value");
    const std::string pattern = request.path().substr(1, request.path().find('*') - 1);
    Json hits = Json::array();
    const std::lock_guard lock(mutex_);
    for (const auto& [key, source] : documents_) {
      const Json json = Json::parse(source);
      if (key.first.starts_with(pattern) && json.at("job").at("id") == wanted) {
        hits.push_back({{"_index", key.first}, {"_id", key.second}, {"_source", json}});
      }
    }
    return {.body = Json{{"hits", {{"hits", hits}}}}.dump()};
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<Handler> next_;
  Handler every_;
  std::function<std::optional<ItemReply>(const Document&)> judge_;
  std::map<std::string, Reply> answers_;
  std::map<std::pair<std::string, std::string>, std::string> documents_;
  std::vector<Request> requests_;
  std::size_t most_bytes_ = std::size_t{100} << 20;
  bool silent_ = false;
  bool down_ = false;
  std::size_t hanging_ = 0;

 private:
  FakeElasticsearch& self_;
  Context context_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::uint64_t connections_ = 0;
  std::set<Wire*> wires_;
  std::list<std::jthread> threads_;
  std::jthread accepter_;
};

FakeElasticsearch::FakeElasticsearch() : impl_(std::make_unique<Impl>(*this, std::nullopt)) {}
FakeElasticsearch::FakeElasticsearch(const Tls& tls) : impl_(std::make_unique<Impl>(*this, tls)) {}
FakeElasticsearch::~FakeElasticsearch() = default;

std::string FakeElasticsearch::url() const { return impl_->url(); }

void FakeElasticsearch::next_bulk(Handler handler, int times) {
  const std::lock_guard lock(impl_->mutex_);
  for (int i = 0; i < times; ++i) impl_->next_.push_back(handler);
}
void FakeElasticsearch::next_bulk(Reply reply, int times) {
  next_bulk([reply = std::move(reply)](FakeElasticsearch&, const Request&) { return reply; },
            times);
}
void FakeElasticsearch::every_bulk(Handler handler) {
  const std::lock_guard lock(impl_->mutex_);
  impl_->every_ = std::move(handler);
}
FakeElasticsearch::Reply FakeElasticsearch::apply(const Request& bulk) {
  return impl_->apply(bulk);
}
void FakeElasticsearch::judge_documents(
    std::function<std::optional<ItemReply>(const Document&)> judge) {
  const std::lock_guard lock(impl_->mutex_);
  impl_->judge_ = std::move(judge);
}
void FakeElasticsearch::answer(const std::string& path_prefix, Reply reply) {
  const std::lock_guard lock(impl_->mutex_);
  impl_->answers_[path_prefix] = std::move(reply);
}
void FakeElasticsearch::refuse_bodies_above(std::size_t bytes, bool silent) {
  const std::lock_guard lock(impl_->mutex_);
  impl_->most_bytes_ = bytes;
  impl_->silent_ = silent;
}
void FakeElasticsearch::go_down() { impl_->go_down(); }
void FakeElasticsearch::come_back() { impl_->come_back(); }

std::vector<FakeElasticsearch::Document> FakeElasticsearch::documents() const {
  const std::lock_guard lock(impl_->mutex_);
  std::vector<Document> result;
  for (const auto& [key, source] : impl_->documents_)
    result.push_back({key.first, key.second, source});
  return result;
}
std::optional<FakeElasticsearch::Document> FakeElasticsearch::document(
    const std::string& id) const {
  for (Document& document : documents()) {
    if (document.id == id) return std::move(document);
  }
  return std::nullopt;
}
std::vector<FakeElasticsearch::Request> FakeElasticsearch::requests(
    const std::string& path_prefix) const {
  const std::lock_guard lock(impl_->mutex_);
  std::vector<Request> result;
  for (const Request& request : impl_->requests_) {
    if (request.path().starts_with(path_prefix)) result.push_back(request);
  }
  return result;
}
bool FakeElasticsearch::wait_for_requests(std::size_t count, const std::string& path_prefix) const {
  std::unique_lock lock(impl_->mutex_);
  return impl_->changed_.wait_for(lock, std::chrono::seconds(20), [&] {
    return static_cast<std::size_t>(std::ranges::count_if(impl_->requests_, [&](const Request& r) {
             return r.path().starts_with(path_prefix);
           })) >= count;
  });
}
bool FakeElasticsearch::wait_for_hanging(std::size_t count) const {
  std::unique_lock lock(impl_->mutex_);
  return impl_->changed_.wait_for(lock, std::chrono::seconds(20),
                                  [&] { return impl_->hanging_ >= count; });
}

Certificate make_certificate(bool expired, const std::string& address) {
  using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY, EVP_PKEY_free>>;
  using X509Pointer = std::unique_ptr<X509, Free<X509, X509_free>>;
  const Key key(EVP_EC_gen("P-256"));
  const X509Pointer certificate(X509_new());
  X509* x = certificate.get();
  X509_set_version(x, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
  X509_gmtime_adj(X509_getm_notBefore(x), -2L * 86'400);
  X509_gmtime_adj(X509_getm_notAfter(x), expired ? -86'400L : 86'400L);
  X509_set_pubkey(x, key.get());
  X509_NAME* name = X509_get_subject_name(x);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("fake"), -1, -1, 0);
  X509_set_issuer_name(x, name);
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, x, x, nullptr, nullptr, 0);
  for (const auto& [id, value] :
       {std::pair<int, std::string>{NID_subject_alt_name, "IP:" + address},
        {NID_basic_constraints, "critical,CA:TRUE"}}) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str());
    X509_add_ext(x, extension, -1);
    X509_EXTENSION_free(extension);
  }
  X509_sign(x, key.get(), EVP_sha256());
  const auto text = [](auto write) {
    const std::unique_ptr<BIO, Free<BIO, BIO_free_all>> memory(BIO_new(BIO_s_mem()));
    write(memory.get());
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(memory.get(), &bytes);
    return std::string(bytes, static_cast<std::size_t>(size));
  };
  return {text([&](BIO* out) { PEM_write_bio_X509(out, x); }), text([&](BIO* out) {
            PEM_write_bio_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
          })};
}

}  // namespace scriptorium::test
