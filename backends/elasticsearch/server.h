#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/elasticsearch/http.h"
#include "core/base/result.h"

// Questions that are asked of a server beside the bulk requests.
namespace scriptorium::elasticsearch {

// The product that answers. For messages and for the form of the templates only: nobody is refused.
struct ServerInfo {
  Product product = Product::kAuto;  // kAuto: it does not say
  std::string version;               // "" likewise
};
ServerInfo server_info(const HttpResponse& response);
const char* to_string(Product product) noexcept;

// "https://es1:9200" and "/_bulk"
HttpRequest get(const std::string& host, std::string_view path);
HttpRequest send_json(const std::string& method, const std::string& host, std::string_view path,
                      std::string body);

// "401: the server refuses our credentials; look at api_key_file": what is wrong with an answer, in
// words.
std::string describe(const HttpResponse& response);

// Whether an answer to GET /_index_template/NAME says that there is none; a proxy's own 404 does
// not.
bool says_no_template(const HttpResponse& response);

// Asks one host after the other until one answers with anything but a gateway's error.
struct Answer {
  std::string host;
  HttpResponse response;
};
Result<Answer> ask_any(Http& http, const std::vector<std::string>& hosts,
                       const std::function<HttpRequest(const std::string& host)>& make);

}  // namespace scriptorium::elasticsearch
