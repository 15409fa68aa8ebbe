#include "backends/elasticsearch/sink.h"

#include <functional>
#include <thread>
#include <utility>

#include "backends/elasticsearch/admin.h"
#include "backends/elasticsearch/document.h"
#include "core/base/json_text.h"

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

void add_member(std::string& json, const char* name) {
  if (json.back() != '{') json += ',';
  append_json_string(name, json);
  json += ':';
}
void add(std::string& json, const char* name, std::uint64_t value) {
  add_member(json, name);
  json += std::to_string(value);
}
void add(std::string& json, const char* name, std::string_view value) {
  add_member(json, name);
  append_json_string(value, json);
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
  if (courier_ == nullptr) return {};
  const CourierStatus status = courier_->status();
  const SteadyTime now = context_.clock.steady();
  std::string json = "{";
  add(json, "product", to_string(status.server.product));
  add(json, "version", status.server.version);
  add_member(json, "hosts");
  json += '[';
  for (const Hosts::Host& host : status.hosts) {
    if (json.back() != '[') json += ',';
    json += '{';
    add(json, "url", host.url);
    add(json, "state", host.failures == 0 ? "up" : host.out_until > now ? "down" : "to be tried");
    if (!host.last_error.empty()) add(json, "last_error", host.last_error);
    json += '}';
  }
  json += ']';
  add(json, "created", status.created);
  add(json, "replaced", status.replaced);
  add(json, "duplicates", status.duplicates);
  add(json, "failure_store", status.failure_store);
  add_member(json, "truncated");
  json += '{';
  add(json, "script", status.scripts_cut);
  add(json, "environment", status.environments_cut);
  json += '}';
  add_member(json, "bytes");
  json += '{';
  add(json, "raw", status.bytes_raw);
  add(json, "sent", status.bytes_sent);
  json += '}';
  add(json, "requests", status.requests);
  add(json, "splits", status.splits);
  add(json, "body_limit_bytes", status.body_limit);
  add_member(json, "http");
  json += '{';
  for (const auto& [code, count] : status.http) add(json, std::to_string(code).c_str(), count);
  json += '}';
  add_member(json, "failures");
  json += '{';
  for (const auto& [reason, count] : status.failures) add(json, reason.c_str(), count);
  json += '}';
  add_member(json, "missing_templates");
  json += '[';
  for (const std::string& name : status.missing_templates) {
    if (json.back() != '[') json += ',';
    append_json_string(name, json);
  }
  json += "]}";
  return json;
}

}  // namespace scriptorium::elasticsearch
