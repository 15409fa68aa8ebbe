#include "backends/elasticsearch/server.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "backends/elasticsearch/json_text.h"
#include "backends/elasticsearch/outcome.h"
#include "core/base/text.h"

namespace scriptorium::elasticsearch {

ServerInfo server_info(const HttpResponse& response) {
  using Json = nlohmann::json;
  ServerInfo info;
  const Json json = response.status == 200 ? Json::parse(response.body, nullptr, false) : Json();
  const Json version = json.is_object() && json.contains("version") ? json["version"] : Json();
  const std::string tagline = text_of(json, "tagline");
  info.version = printable(text_of(version, "number"), 32);
  // One that pretends to be Elasticsearch 7.10.2, for old clients, still says so here.
  if (text_of(version, "distribution") == "opensearch" ||
      tagline.find("OpenSearch") != std::string::npos || !response.opensearch_version.empty()) {
    info.product = Product::kOpensearch;
    if (info.version.empty()) {
      const std::string& header = response.opensearch_version;  // "OpenSearch/3.8.0 (opensearch)"
      const std::size_t slash = header.find('/');
      info.version = printable(slash == std::string::npos
                                   ? header
                                   : header.substr(slash + 1, header.find(' ') - slash - 1),
                               32);
    }
  } else if (response.product == "Elasticsearch" || tagline == "You Know, for Search") {
    info.product = Product::kElasticsearch;
  }
  return info;
}

const char* to_string(Product product) noexcept {
  switch (product) {
    case Product::kAuto: return "unknown";
    case Product::kElasticsearch: return "elasticsearch";
    case Product::kOpensearch: return "opensearch";
  }
  return "unknown";
}

HttpRequest get(const std::string& host, std::string_view path) {
  HttpRequest request;
  request.url = host + std::string(path);
  return request;
}

HttpRequest send_json(const std::string& method, const std::string& host, std::string_view path,
                      std::string body) {
  HttpRequest request = get(host, path);
  request.method = method;
  request.content_type = "application/json";
  const auto owned = std::make_shared<const std::string>(std::move(body));
  request.body = *owned;
  request.keep = owned;
  return request;
}

std::string describe(const HttpResponse& response) {
  if (response.failure != HttpResponse::Failure::kNone) {
    const char* hint = response.failure == HttpResponse::Failure::kNoAnswer
                           ? "; a port that speaks HTTPS does that to http://"
                           : "";
    return std::string(to_string(response.failure)) + ": " + response.error + hint;
  }
  const ServerError error = parse_error(response.body);
  std::string words = short_reason(response.status, error.type);
  if (response.status == 401) words += ": the server does not know our credentials";
  const std::string reason = safe_reason(error.reason);
  if (!reason.empty()) {
    words += ": " + reason;
  } else if (error.type.empty() && response.status != 401 && response.status != 403) {
    words += std::string(": ") + kStranger;
  }
  return words;
}

bool says_no_template(const HttpResponse& response) {
  return response.status == 404 &&
         parse_error(response.body).type == "resource_not_found_exception";
}

Result<Answer> ask_any(Http& http, const std::vector<std::string>& hosts,
                       const std::function<HttpRequest(const std::string& host)>& make) {
  std::string words;
  for (const std::string& host : hosts) {
    HttpResponse response = http.ask(make(host));
    if (response.failure == HttpResponse::Failure::kNone &&
        judge_request(response.status, {}) != RequestAction::kNextHost) {
      return Answer{host, std::move(response)};
    }
    words += (words.empty() ? "" : "; ") + host + ": " + describe(response);
  }
  return Error{ErrorKind::kTransient, words};
}

}  // namespace scriptorium::elasticsearch
