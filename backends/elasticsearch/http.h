#pragma once

#include <curl/curl.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/elasticsearch/config.h"
#include "core/base/result.h"

namespace scriptorium::elasticsearch {

// The secrets of the configuration, read from their files.
struct Credentials {
  Secret authorization;  // the whole value of the header "Authorization"; empty = none
  Secret key_password;
  std::string signature;  // of the files that hold these and the certificates, see signature_of()
};
// Differs when a file of the configuration's secrets and certificates was replaced or written.
std::string signature_of(const ElasticsearchConfig& config);
// kInvalidConfig if a file cannot be read, is open to others, or does not hold what it should.
Result<Credentials> read_credentials(const ElasticsearchConfig& config);

struct HttpRequest {
  std::string method = "GET";
  std::string url;
  std::string content_type;          // "" = no body
  std::shared_ptr<const void> keep;  // what owns the body's bytes
  std::string_view body;
  bool gzipped = false;
  bool expect = true;  // false: no "Expect: 100-continue" before a large body
  std::chrono::milliseconds timeout{10'000};
  std::size_t response_max_bytes = std::size_t{16} << 20;
};

struct HttpResponse {
  enum class Failure {
    kNone,
    kConnect,   // nothing was sent
    kTls,       // a certificate, theirs or ours
    kTimeout,   // perhaps done
    kSend,      // cut while the body went out
    kNoAnswer,  // closed without a word
    kReceive,   // cut in the answer, or an answer that is not HTTP
    kTooLarge,  // more than response_max_bytes
    kAborted,   // by abort()
    kOther,
  };
  Failure failure = Failure::kNone;
  std::string error;  // what libcurl says of the failure; names hosts and files, never a body
  long status = 0;
  std::string body;
  std::string retry_after;
  std::string product;             // X-elastic-product
  std::string opensearch_version;  // X-OpenSearch-Version
  std::uint64_t uploaded = 0;
};

// "cannot connect": the same words each time, fit to be counted by.
const char* to_string(HttpResponse::Failure failure) noexcept;

struct Transfer;  // a request under way

// HTTP requests side by side over kept connections; no redirects, no proxy but the configured one,
// TLS verified unless the configuration says otherwise. Owns:    its connections. Threads: one, but
// for wake(). A thread that calls it must hold SIGPIPE back: OpenSSL writes to sockets by write().
class Http {
 public:
  Http(const ElasticsearchConfig& config, Credentials credentials);
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  struct Done {
    std::uint64_t tag = 0;
    HttpResponse response;
  };

  void start(HttpRequest request, std::uint64_t tag);
  // Waits for something to happen, at most `limit`, and takes what has ended.
  std::vector<Done> wait(std::chrono::milliseconds limit);
  // Makes wait() return, from any thread.
  void wake() noexcept;
  // Ends all that is under way without an answer.
  void abort();
  std::size_t in_flight() const noexcept;
  // From now on with these; connections that were made with others are closed. Only while nothing
  // is in flight.
  void renew(Credentials credentials);

  // One request and its answer, waited for; for use where nothing else is under way.
  HttpResponse ask(HttpRequest request);

 private:
  struct CloseMulti {
    void operator()(CURLM* handle) const noexcept { curl_multi_cleanup(handle); }
  };
  using Multi = std::unique_ptr<CURLM, CloseMulti>;

  Multi make_multi() const;
  void perform();
  std::vector<Done> take();
  void prepare(Transfer& t);
  void prepare_tls(CURL* handle) const;
  void prepare_headers(Transfer& t) const;

  const ElasticsearchConfig config_;
  Credentials credentials_;
  std::mutex wake_mutex_;  // held to wake and to replace `multi_`, which only the one thread does
  Multi multi_;
  std::map<CURL*, std::unique_ptr<Transfer>> transfers_;
};

// Holds SIGPIPE back in this thread for good.
void block_sigpipe() noexcept;

}  // namespace scriptorium::elasticsearch
