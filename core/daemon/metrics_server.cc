#include "core/daemon/metrics_server.h"

#include <unistd.h>

#include <chrono>
#include <utility>  // before Boost.Beast 1.74, which forgets it in C++20

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/field.hpp>
#include <boost/beast/http/parser.hpp>

#include "core/base/pause.h"
#include "core/base/thread_name.h"
#include "core/base/thrown.h"
#include "core/daemon/metrics.h"

namespace scriptorium {
namespace {

namespace http = boost::beast::http;
constexpr std::chrono::milliseconds kPatience{2000};
constexpr std::chrono::seconds kTextfileInterval{15};
constexpr std::size_t kLongestHead = 16U << 10;

std::string answer(int code, const char* type, const std::string& body, bool with_body) {
  return "HTTP/1.1 " + std::to_string(code) + ' ' +
         std::string(http::obsolete_reason(static_cast<http::status>(code))) +
         "\r\nContent-Type: " + type + "\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\nConnection: close\r\nX-Content-Type-Options: nosniff\r\n\r\n" +
         (with_body ? body : "");
}

}  // namespace

std::string MetricsServer::respond(std::string_view request, const StatusJson& status) {
  constexpr const char* kPlain = "text/plain; charset=utf-8";
  http::request_parser<http::empty_body> parser;
  boost::system::error_code error;
  parser.put(boost::asio::buffer(request.data(), request.size()), error);
  if (error || !parser.is_header_done()) return answer(400, kPlain, "not an HTTP request\n", true);
  const auto& head = parser.get();
  const bool with_body = head.method() != http::verb::head;
  if (head.method() != http::verb::get && head.method() != http::verb::head)
    return answer(405, kPlain, "only GET and HEAD\n", with_body);
  const std::string_view target(head.target().data(), head.target().size());
  const std::string_view path = target.substr(0, target.find('?'));
  if (path == "/") return answer(200, kPlain, "Scriptorium. Its metrics: /metrics\n", with_body);
  if (path != "/metrics") return answer(404, kPlain, "only /metrics is here\n", with_body);
  const auto accept = head[http::field::accept];
  const bool open =
      std::string_view(accept.data(), accept.size()).find("application/openmetrics-text") !=
      std::string_view::npos;
  const MetricsFormat format = open ? MetricsFormat::kOpenMetrics : MetricsFormat::kPrometheus;
  return answer(200, content_type(format), render_metrics(status(), format), with_body);
}

Result<std::unique_ptr<MetricsServer>> MetricsServer::open(Options options, StatusJson status,
                                                           Logger& log) {
  std::vector<UniqueFd> sockets;
  auto local = listen_unix(options.socket, 0660, "metrics_socket");
  if (!local) return local.error();
  sockets.push_back(*std::move(local));
  if (options.listen) {
    auto loopback = listen_tcp(options.listen->v6 ? "::1" : "127.0.0.1", options.listen->port,
                               "metrics_listen");
    if (!loopback) return loopback.error();
    sockets.push_back(*std::move(loopback));
  }
  return std::unique_ptr<MetricsServer>(
      new MetricsServer(std::move(options), std::move(sockets), std::move(status), log));
}

MetricsServer::MetricsServer(Options options, std::vector<UniqueFd> sockets, StatusJson status,
                             Logger& log)
    : options_(std::move(options)),
      status_(std::move(status)),
      log_(log),
      listener_(std::move(sockets),
                {.is_whole = [](std::string_view s) { return s.find("\r\n\r\n") != s.npos; },
                 .answer = [this](const std::string& request) { return respond(request, status_); },
                 .failure_id = "METRICS_FAILED",
                 .failure_text = "metrics could not be given",
                 .longest_request = kLongestHead,
                 .patience = kPatience},
                log) {}

void MetricsServer::start() {
  if (!options_.textfile.empty()) {
    write_textfile();
    textfile_thread_ = std::jthread([this](const std::stop_token& stop) {
      name_thread("textfile");
      while (pause_for(stop, kTextfileInterval)) write_textfile();
    });
  }
  listener_.start();
}

MetricsServer::~MetricsServer() {
  textfile_thread_ = {};
  // Stale figures are worse than none: node_exporter would keep showing them.
  if (!options_.textfile.empty()) ::unlink(options_.textfile.c_str());
}

void MetricsServer::write_textfile() noexcept try {
  const auto written =
      replace_file(options_.textfile, render_metrics(status_(), MetricsFormat::kPrometheus), 0644);
  if (written) {
    textfile_failed_ = false;
  } else if (!std::exchange(textfile_failed_, true)) {
    log_.warning("METRICS_TEXTFILE",
                 "the file with the metrics cannot be written; it is tried again every 15 s",
                 {{"file", options_.textfile}, {"reason", written.error().message()}});
  }
} catch (...) {
  log_.warning("METRICS_FAILED", "metrics could not be given", {{"reason", thrown_text()}});
}

}  // namespace scriptorium
