#pragma once

#include <sys/types.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"

// What a browser asks for, and what it gets.
namespace scriptorium::page {

// The part of an address that a page depends on, decoded.
struct Target {
  std::vector<std::string> path;                           // "/job/c/4711": "job", "c", "4711"
  std::vector<std::pair<std::string, std::string>> query;  // names and values

  std::string query_value(std::string_view name) const;  // the first; "" if there is none
  bool has_query(std::string_view name) const;
  std::vector<std::string> query_values(std::string_view name) const;
};
// Nothing for an address that begins with another than '/', has an empty, "." or ".." part before
// its last, or a '%' that is no escape. A '+' is a blank in the query only.
std::optional<Target> parse_target(std::string_view target);
// The way from there to the first page: "", "../../". Links are made of it, since only the web
// server in front knows below which path of its own the pages are.
std::string way_to_first_page(std::string_view target);
// For one part of a path or one value of a query.
std::string percent_encoded(std::string_view bytes);

struct Request {
  std::string login;
  std::string address;  // of the reader, for the log; "" = not known
  std::string target;   // as it was sent
};

struct Response {
  unsigned status = 200;
  std::string type = "text/html; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

// The head of a request, as far as it decides who asks. Views.
struct Head {
  std::optional<uid_t> peer;  // of a Unix socket
  std::string_view target;
  std::vector<std::string_view> hosts;  // each header of that name
  std::vector<std::string_view> users;  // X-Remote-User
  std::vector<std::string_view> cookies;
};

// Who asks: a login, or the answer to somebody who may not. Threads: the server's.
class Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  virtual ~Gate() = default;

  struct Admitted {
    std::string login;               // "" = nobody
    std::optional<Response> answer;  // for nobody
    std::string reason;              // for the log; "" = it is no fault
    bool closes = false;             // the connection is not to be used again
  };
  virtual Admitted admit(const Head& head) = 0;
};

// Believes the name that a web server sends after it has checked a password, if the web server runs
// as one of these users.
class ProxyGate final : public Gate {
 public:
  explicit ProxyGate(std::vector<uid_t> proxies) : proxies_(std::move(proxies)) {}
  Admitted admit(const Head& head) override;

 private:
  const std::vector<uid_t> proxies_;
};

// For one person at a browser on this host: the key gives a cookie, once, and a request with the
// cookie is of that person.
class KeyGate final : public Gate {
 public:
  // `host`: what the browser must call this server. Fails: no random bytes.
  static Result<std::unique_ptr<KeyGate>> create(std::string login, std::string host);
  // The address to open.
  std::string address() const { return "http://" + host_ + "/?key=" + key_; }
  Admitted admit(const Head& head) override;

 private:
  KeyGate(std::string login, std::string host, std::string key, std::string cookie)
      : login_(std::move(login)),
        host_(std::move(host)),
        key_(std::move(key)),
        cookie_(std::move(cookie)) {}

  const std::string login_;
  const std::string host_;
  std::string key_;  // "" = used
  const std::string cookie_;
};

// Below api/, where answers are JSON.
bool is_for_programs(std::string_view target);
Response json_response(const nlohmann::ordered_json& json, unsigned status = 200);

// A page with one sentence, at this address; JSON for programs.
Response plain_page(unsigned status, const std::string& sentence, std::string_view target);

}  // namespace scriptorium::page
