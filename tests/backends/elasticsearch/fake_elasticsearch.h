#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace scriptorium::test {

// A server that speaks as much of Elasticsearch as the sink asks for, in this process, on a free
// port of 127.0.0.1: it stores what bulk requests create, index or update, and does whatever wrong
// a test tells it to. Threads: any.
class FakeElasticsearch {
 public:
  struct Request {
    std::string method;
    std::string target;                          // path and query
    std::map<std::string, std::string> headers;  // names in lower case
    std::string body;                            // unpacked
    std::size_t body_bytes = 0;                  // as it came
    std::uint64_t connection = 0;                // counted from 1

    std::string path() const { return target.substr(0, target.find('?')); }
    std::string header(const std::string& name) const {
      const auto found = headers.find(name);
      return found == headers.end() ? std::string{} : found->second;
    }
  };

  enum class Fault {
    kNone,
    kClose,       // closes instead of answering
    kHalfAnswer,  // closes in the middle of the answer
    kHang,        // neither answers nor closes while the server lives
  };
  struct Reply {
    int status = 200;
    std::string body;
    std::string content_type = "application/json";
    std::vector<std::string> headers;  // "Retry-After: 7"
    Fault fault = Fault::kNone;
  };
  // A document's item in the answer instead of being stored.
  struct ItemReply {
    int status = 201;
    std::string type;
    std::string reason;
    std::string more = "";  // further members: ,"failure_store":"used"
  };
  struct Document {
    std::string index;
    std::string id;
    std::string source;             // as it came; with `update` {"doc": ..., "upsert": ...}
    std::string action = "create";  // "index", "update"
  };

  struct Tls {
    std::string certificate;  // PEM files
    std::string key;
    std::string client_authorities;  // "" = no client certificate is asked for
  };

  FakeElasticsearch();
  explicit FakeElasticsearch(const Tls& tls);
  ~FakeElasticsearch();
  FakeElasticsearch(const FakeElasticsearch&) = delete;
  FakeElasticsearch& operator=(const FakeElasticsearch&) = delete;

  std::string url() const;

  // What the next bulk requests get, one after the other; after that they are served as they should
  // be. apply() in one of these does what a good server would and gives its answer.
  using Handler = std::function<Reply(FakeElasticsearch&, const Request&)>;
  void next_bulk(Handler handler, int times = 1);
  void next_bulk(Reply reply, int times = 1);
  void every_bulk(Handler handler);  // after those above; null: as it should be
  Reply apply(const Request& bulk);
  // Asked for every document of a bulk request that is applied; nothing: it is stored.
  void judge_documents(std::function<std::optional<ItemReply>(const Document&)> judge);
  // Instead of what other paths get: the longest prefix of the path counts.
  void answer(const std::string& path_prefix, Reply reply);
  // Bodies larger than this are answered with 413 before they are read, and the connection closed;
  // or, if `silent`, just closed with what was sent unread.
  void refuse_bodies_above(std::size_t bytes, bool silent = false);
  // Stops listening and closes what is open; and listens again on the same port.
  void go_down();
  void come_back();

  std::vector<Document> documents() const;
  std::optional<Document> document(const std::string& id) const;
  std::vector<Request> requests(const std::string& path_prefix = "/_bulk") const;
  // Until so many requests to this path came; false after 20 s.
  bool wait_for_requests(std::size_t count, const std::string& path_prefix = "/_bulk") const;
  // Until so many are being held by Fault::kHang.
  bool wait_for_hanging(std::size_t count) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// A self-signed certificate for 127.0.0.1 and its key, as PEM.
struct Certificate {
  std::string certificate;
  std::string key;
};
Certificate make_certificate(bool expired = false, const std::string& address = "127.0.0.1");

}  // namespace scriptorium::test
