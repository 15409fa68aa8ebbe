#include "backends/elasticsearch/sink.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "backends/elasticsearch/admin.h"
#include "backends/elasticsearch/document.h"

namespace scriptorium::elasticsearch {
namespace {

// A command's own thread may get SIGPIPE from a closed connection; one of ours holds it back.
template <typename T>
Result<T> aside(const std::function<Result<T>()>& ask) {
  Result<T> result = Error{ErrorKind::kTransient, "nothing was asked"};
  {
    const std::jthread thread([&]() noexcept {
      block_sigpipe();
      try {
        result = ask();
      } catch (const std::exception& e) {
        result = Error{ErrorKind::kTransient,
                       std::string("an answer of the server is not understood: ") + e.what()};
      }
    });
  }
  return result;
}

bool is_local(const std::string& url) {
  return url.starts_with("http://localhost") || url.starts_with("http://127.") ||
         url.starts_with("http://[::1]");
}

}  // namespace

Result<std::unique_ptr<ElasticsearchSink>> ElasticsearchSink::create(ElasticsearchConfig config,
                                                                     const PluginContext& context) {
  auto credentials = read_credentials(config);
  if (!credentials) return credentials.error();
  return std::unique_ptr<ElasticsearchSink>(
      new ElasticsearchSink(std::move(config), *std::move(credentials), context));
}

ElasticsearchSink::ElasticsearchSink(ElasticsearchConfig config, Credentials credentials,
                                     const PluginContext& context)
    : config_(std::move(config)), credentials_(std::move(credentials)), context_(context) {}

ElasticsearchSink::~ElasticsearchSink() = default;

Result<void> ElasticsearchSink::start() {
  if (courier_ != nullptr) return {};
  if (!config_.verify_tls) {
    context_.log.warning("ES_TLS_UNVERIFIED",
                         "verify_tls is off: anybody on the way can read and change what is sent; "
                         "set ca_file instead",
                         {{"sink", context_.name}});
  }
  if (!credentials_.authorization.empty()) {
    for (const HostUrl& host : config_.hosts) {
      if (!host.starts_with("http://") || is_local(host)) continue;
      context_.log.warning("ES_PLAIN_HTTP",
                           "a password or key goes over the network unencrypted; use https://",
                           {{"sink", context_.name}, {"host", host}});
    }
  }
  courier_ = std::make_unique<Courier>(config_, credentials_, context_);
  return {};
}

void ElasticsearchSink::deliver(std::vector<Delivery> batch) {
  if (courier_ != nullptr) return courier_->deliver(std::move(batch));
  for (Delivery& delivery : batch) delivery.retry("not started");
}

void ElasticsearchSink::stop(SteadyTime deadline) {
  if (courier_ != nullptr) courier_->stop(deadline);
}

Result<void> ElasticsearchSink::check() {
  return aside<void>([&] { return Admin(config_, credentials_, context_).check(); });
}

Result<std::vector<StoredJob>> ElasticsearchSink::find(std::string_view job_id) {
  return aside<std::vector<StoredJob>>(
      [&] { return Admin(config_, credentials_, context_).find(job_id); });
}

Result<std::string> ElasticsearchSink::setup(bool print) {
  return aside<std::string>([&] { return Admin(config_, credentials_, context_).setup(print); });
}

std::string ElasticsearchSink::status_json() const {
  using Json = nlohmann::ordered_json;
  if (courier_ == nullptr) return {};
  const CourierStatus status = courier_->status();
  const SteadyTime now = context_.clock.steady();
  Json hosts = Json::array();
  for (const Hosts::Host& host : status.hosts) {
    const char* state = host.failures == 0 ? "up" : host.out_until > now ? "down" : "to be tried";
    Json& one = hosts.emplace_back(Json{{"url", host.url}, {"state", state}});
    if (!host.last_error.empty()) one["last_error"] = host.last_error;
  }
  Json http = Json::object();
  for (const auto& [code, count] : status.http) http[std::to_string(code)] = count;
  const Json json{
      {"product", to_string(status.server.product)},
      {"version", status.server.version},
      {"hosts", std::move(hosts)},
      {"created", status.created},
      {"replaced", status.replaced},
      {"duplicates", status.duplicates},
      {"failure_store", status.failure_store},
      {"truncated", {{"script", status.scripts_cut}, {"environment", status.environments_cut}}},
      {"bytes", {{"raw", status.bytes_raw}, {"sent", status.bytes_sent}}},
      {"requests", status.requests},
      {"splits", status.splits},
      {"body_limit_bytes", status.body_limit},
      {"http", std::move(http)},
      {"failures", Json(status.failures)},
      {"missing_templates", status.missing_templates}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace scriptorium::elasticsearch
