#include "backends/elasticsearch/http.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>
#include <utility>

#include "core/api/kit/secret_file.h"
#include "core/base/ascii.h"
#include "core/base/file.h"
#include "core/base/text.h"

namespace scriptorium::elasticsearch {
struct CloseEasy {
  void operator()(CURL* handle) const noexcept { curl_easy_cleanup(handle); }
};
struct FreeList {
  void operator()(curl_slist* list) const noexcept { curl_slist_free_all(list); }
};
using Easy = std::unique_ptr<CURL, CloseEasy>;
using Headers = std::unique_ptr<curl_slist, FreeList>;

// A request under way. Lives at one place: libcurl holds pointers to it.
struct Transfer {
  std::uint64_t tag = 0;
  HttpRequest request;
  HttpResponse response;
  Easy handle;
  Headers headers;
  std::array<char, CURL_ERROR_SIZE> words{};
  bool too_large = false;
};

namespace {

using Failure = HttpResponse::Failure;

void add_header(Headers& list, const std::string& line) {
  curl_slist* longer = curl_slist_append(list.get(), line.c_str());
  if (longer == nullptr) throw std::bad_alloc();
  if (list == nullptr) list.reset(longer);  // else it is the same, with one more at its end
}

std::size_t take_body(char* bytes, std::size_t size, std::size_t count, void* user) noexcept {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::size_t length = size * count;
  if (transfer.response.body.size() + length > transfer.request.response_max_bytes) {
    transfer.too_large = true;
    return 0;  // ends the transfer
  }
  transfer.response.body.append(bytes, length);
  return length;
}

// The value of "Name: value\r\n" if the name is this one, in any case of letters.
std::optional<std::string> header_value(std::string_view line, std::string_view name) {
  if (line.size() <= name.size() || line[name.size()] != ':') return std::nullopt;
  if (to_lower(line.substr(0, name.size())) != name) return std::nullopt;
  line.remove_prefix(name.size() + 1);
  return std::string(trim(line, " \t\r\n").substr(0, 256));
}

std::size_t take_header(char* bytes, std::size_t size, std::size_t count, void* user) noexcept {
  auto& response = static_cast<Transfer*>(user)->response;
  const std::string_view line(bytes, size * count);
  if (line.starts_with("HTTP/")) {
    // A new answer: what came before was "100 Continue".
    response.retry_after.clear();
  } else if (auto retry_after = header_value(line, "retry-after")) {
    response.retry_after = *std::move(retry_after);
  } else if (auto product = header_value(line, "x-elastic-product")) {
    response.product = *std::move(product);
  } else if (auto version = header_value(line, "x-opensearch-version")) {
    response.opensearch_version = *std::move(version);
  }
  return size * count;
}

Failure failure_of(CURLcode code, const Transfer& transfer) {
  const std::string_view words = transfer.words.data();
  switch (code) {
    case CURLE_OK: return Failure::kNone;
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT: return Failure::kConnect;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CRL_BADFILE:
    case CURLE_SSL_INVALIDCERTSTATUS: return Failure::kTls;
    case CURLE_OPERATION_TIMEDOUT: return Failure::kTimeout;
    case CURLE_GOT_NOTHING: return Failure::kNoAnswer;
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
      // Under TLS 1.3 a server refuses a client certificate only after the handshake.
      if (words.find("alert") != std::string_view::npos) return Failure::kTls;
      return code == CURLE_SEND_ERROR ? Failure::kSend : Failure::kReceive;
    case CURLE_WRITE_ERROR: return transfer.too_large ? Failure::kTooLarge : Failure::kReceive;
    case CURLE_PARTIAL_FILE:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_HTTP2:
    case CURLE_BAD_CONTENT_ENCODING: return Failure::kReceive;
    default: return Failure::kOther;
  }
}

HttpResponse finish(Transfer& transfer, CURLcode code) {
  HttpResponse response = std::move(transfer.response);
  response.failure = failure_of(code, transfer);
  CURL* handle = transfer.handle.get();
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &response.status);
  curl_off_t uploaded = 0;
  curl_easy_getinfo(handle, CURLINFO_SIZE_UPLOAD_T, &uploaded);
  response.uploaded = static_cast<std::uint64_t>(std::max<curl_off_t>(uploaded, 0));
  if (response.failure != Failure::kNone) {
    const std::string_view words = transfer.words.data();
    response.error = printable(words.empty() ? std::string_view(curl_easy_strerror(code)) : words);
  }
  return response;
}

void initialise_curl() {
  static std::once_flag once;
  // Never undone: another user of libcurl in this process may need it.
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

template <typename Value>
void set(CURL* handle, CURLoption option, Value value) {
  // Fails only for what this libcurl was built without, or without memory.
  if (const CURLcode code = curl_easy_setopt(handle, option, value); code == CURLE_OUT_OF_MEMORY)
    throw std::bad_alloc();
}

bool has_line_end(std::string_view text) noexcept {
  return text.find_first_of("\r\n") != std::string_view::npos;
}

}  // namespace

const char* to_string(Failure failure) noexcept {
  switch (failure) {
    case Failure::kNone: return "no failure";
    case Failure::kConnect: return "cannot connect";
    case Failure::kTls: return "TLS: the certificates do not fit";
    case Failure::kTimeout: return "no answer in time";
    case Failure::kSend: return "connection cut while sending";
    case Failure::kNoAnswer: return "connection closed without an answer";
    case Failure::kReceive: return "connection cut in the answer";
    case Failure::kTooLarge: return "the answer is too large";
    case Failure::kAborted: return "stopped";
    case Failure::kOther: return "request failed";
  }
  return "request failed";
}

std::string signature_of(const ElasticsearchConfig& config) {
  return version_of_files(std::array{config.password_file, config.api_key_file,
                                     config.bearer_token_file, config.key_password_file,
                                     config.ca_file, config.certificate_file, config.key_file});
}

Result<Credentials> read_credentials(const ElasticsearchConfig& config) {
  Credentials result;
  result.signature =
      signature_of(config);  // before the files are read: what changes meanwhile is read again
  const auto refuse = [](const std::string& file, const char* why) {
    return Error{ErrorKind::kInvalidConfig, "secret file " + printable(file) + ": " + why};
  };
  if (!config.password_file.empty()) {
    auto password = read_secret(config.password_file);
    if (!password) return password.error();
    result.authorization = Secret("Basic " + base64_encode(config.user + ":" + password->reveal()));
  } else if (!config.api_key_file.empty()) {
    auto key = read_secret(config.api_key_file);
    if (!key) return key.error();
    if (has_line_end(key->reveal()))
      return refuse(config.api_key_file, "has several lines; an API key is one");
    // As the server's JSON gives it: "id" and "api_key" to be joined, or "encoded", which is the
    // base64 of both.
    const bool plain = key->reveal().find(':') != std::string::npos;
    result.authorization =
        Secret("ApiKey " + (plain ? base64_encode(key->reveal()) : key->reveal()));
  } else if (!config.bearer_token_file.empty()) {
    auto token = read_secret(config.bearer_token_file);
    if (!token) return token.error();
    if (has_line_end(token->reveal()))
      return refuse(config.bearer_token_file, "has several lines; a token is one");
    result.authorization = Secret("Bearer " + token->reveal());
  }
  if (!config.key_password_file.empty()) {
    auto password = read_secret(config.key_password_file);
    if (!password) return password.error();
    result.key_password = *std::move(password);
  }
  return result;
}

Http::Http(const ElasticsearchConfig& config, Credentials credentials)
    : config_(config), credentials_(std::move(credentials)) {
  initialise_curl();
  multi_ = make_multi();
}

Http::~Http() { abort(); }

void Http::start(HttpRequest request, std::uint64_t tag) {
  auto transfer = std::make_unique<Transfer>();
  transfer->tag = tag;
  transfer->request = std::move(request);
  transfer->handle.reset(curl_easy_init());
  if (transfer->handle == nullptr) throw std::bad_alloc();
  prepare(*transfer);
  CURL* handle = transfer->handle.get();
  if (curl_multi_add_handle(multi_.get(), handle) != CURLM_OK) throw std::bad_alloc();
  transfers_[handle] = std::move(transfer);
  // So that it is on its way while the caller does something else.
  for (int i = 0; i < 8; ++i) perform();
}

std::vector<Http::Done> Http::wait(std::chrono::milliseconds limit) {
  perform();
  std::vector<Done> done = take();
  if (!done.empty()) return done;
  const auto ms = std::clamp<std::int64_t>(limit.count(), 0, 60'000);
  curl_multi_poll(multi_.get(), nullptr, 0, static_cast<int>(ms), nullptr);
  perform();
  return take();
}

HttpResponse Http::ask(HttpRequest request) {
  start(std::move(request), 0);
  for (;;) {
    for (Done& done : wait(std::chrono::seconds(1))) return std::move(done.response);
  }
}

void Http::wake() noexcept {
  const std::lock_guard lock(wake_mutex_);
  curl_multi_wakeup(multi_.get());
}

void Http::renew(Credentials credentials) {
  // Connections know who we are, by their client certificate; and libcurl keeps the authorities
  // that it has read.
  Multi fresh = make_multi();
  {
    const std::lock_guard lock(wake_mutex_);
    multi_.swap(fresh);
  }
  credentials_ = std::move(credentials);
}

void Http::abort() {
  for (auto& [handle, transfer] : transfers_) curl_multi_remove_handle(multi_.get(), handle);
  transfers_.clear();
}

std::size_t Http::in_flight() const noexcept { return transfers_.size(); }

Http::Multi Http::make_multi() const {
  Multi multi(curl_multi_init());
  if (multi == nullptr) throw std::bad_alloc();
  const auto connections = static_cast<long>(config_.hosts.size() +
                                             static_cast<std::size_t>(config_.requests_in_flight));
  curl_multi_setopt(multi.get(), CURLMOPT_MAXCONNECTS, connections);
  return multi;
}

void Http::perform() {
  int running = 0;
  curl_multi_perform(multi_.get(), &running);
}

std::vector<Http::Done> Http::take() {
  std::vector<Done> done;
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    CURL* handle = message->easy_handle;
    const CURLcode code = message->data.result;
    auto node = transfers_.extract(handle);
    if (node.empty()) continue;
    Transfer& transfer = *node.mapped();
    curl_multi_remove_handle(multi_.get(), handle);
    done.push_back({.tag = transfer.tag, .response = finish(transfer, code)});
  }
  return done;
}

void Http::prepare(Transfer& t) {
  CURL* handle = t.handle.get();
  const HttpRequest& request = t.request;
  set(handle, CURLOPT_URL, request.url.c_str());
  set(handle, CURLOPT_NOSIGNAL, 1L);
  set(handle, CURLOPT_ERRORBUFFER, t.words.data());
  set(handle, CURLOPT_PRIVATE, &t);
  set(handle, CURLOPT_WRITEFUNCTION, &take_body);
  set(handle, CURLOPT_WRITEDATA, &t);
  set(handle, CURLOPT_HEADERFUNCTION, &take_header);
  set(handle, CURLOPT_HEADERDATA, &t);
  set(handle, CURLOPT_FOLLOWLOCATION, 0L);
#if LIBCURL_VERSION_NUM >= 0x075500
  set(handle, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  set(handle, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
  set(handle, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
  set(handle, CURLOPT_PROXY, config_.proxy.c_str());  // "" = none, not even the environment's
  set(handle, CURLOPT_USERAGENT, "scriptorium");
  set(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(request.timeout.count()));
  set(handle, CURLOPT_CONNECTTIMEOUT_MS,
      static_cast<long>(std::min(config_.connect_timeout_ms, request.timeout.count())));
  set(handle, CURLOPT_EXPECT_100_TIMEOUT_MS, 300L);
  set(handle, CURLOPT_TCP_KEEPALIVE, 1L);
  // A cluster's name that leads elsewhere now (DNS, a failover address): curl's own 60 s would be
  // added to the outage.
  set(handle, CURLOPT_DNS_CACHE_TIMEOUT, 5L);
  set(handle, CURLOPT_UPLOAD_BUFFERSIZE, 512L * 1024);
#if LIBCURL_VERSION_NUM >= 0x075700
  set(handle, CURLOPT_QUICK_EXIT,
      1L);  // a name server that does not answer must not hold up the stop
#endif
  prepare_tls(handle);
  prepare_headers(t);
}

void Http::prepare_tls(CURL* handle) const {
  set(handle, CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2);
  set(handle, CURLOPT_SSL_VERIFYPEER, config_.verify_tls ? 1L : 0L);
  set(handle, CURLOPT_SSL_VERIFYHOST, config_.verify_tls ? 2L : 0L);
  if (!config_.ca_file.empty()) {
    set(handle, CURLOPT_CAINFO, config_.ca_file.c_str());
    set(handle, CURLOPT_CAPATH, nullptr);  // this authority and no other
  }
  if (!config_.certificate_file.empty()) {
    set(handle, CURLOPT_SSLCERT, config_.certificate_file.c_str());
    set(handle, CURLOPT_SSLKEY, config_.key_file.c_str());
    if (!credentials_.key_password.empty())
      set(handle, CURLOPT_KEYPASSWD, credentials_.key_password.reveal().c_str());
  }
}

void Http::prepare_headers(Transfer& t) const {
  CURL* handle = t.handle.get();
  const HttpRequest& request = t.request;
  if (!credentials_.authorization.empty())
    add_header(t.headers, "Authorization: " + credentials_.authorization.reveal());
  add_header(t.headers, "Accept: application/json");
  if (request.method == "HEAD") {
    set(handle, CURLOPT_NOBODY, 1L);
  } else if (!request.content_type.empty()) {
    set(handle, CURLOPT_POST, 1L);
    const char* bytes = request.body.data();  // not ended by NUL; the size is set below
    set(handle, CURLOPT_POSTFIELDS, bytes);
    set(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    add_header(t.headers, "Content-Type: " + request.content_type);
    if (request.gzipped) add_header(t.headers, "Content-Encoding: gzip");
    if (!request.expect) add_header(t.headers, "Expect:");
  }
  if (request.method != "HEAD" && request.method != "GET")
    set(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  set(handle, CURLOPT_HTTPHEADER, t.headers.get());
}

void block_sigpipe() noexcept {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
}

}  // namespace scriptorium::elasticsearch
