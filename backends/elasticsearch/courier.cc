#include "backends/elasticsearch/courier.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/base/gzip.h"

namespace scriptorium::elasticsearch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Failure = HttpResponse::Failure;

constexpr seconds kRepeatProblem{600};
constexpr std::size_t kMostProblems = 64;

// A batch larger than this goes in two bodies at least: the second is made while the server works
// at the first.
constexpr std::size_t kWorthTwoBodies = 1'000'000;
constexpr std::size_t kLeastBodyLimit = 65'536;
// After so many bodies taken in a row, twice as much is tried again.
constexpr std::uint32_t kTakenUntilLarger = 256;

}  // namespace

Courier::Courier(const ElasticsearchConfig& config, const Credentials& credentials,
                 const PluginContext& context)
    : config_(config),
      context_(context),
      http_(config, credentials),
      hosts_(config.hosts),
      templates_(config),
      signature_(credentials.signature),
      body_limit_({.least = kLeastBodyLimit,
                   .most = static_cast<std::size_t>(config.request_max_bytes),
                   .raise_after = kTakenUntilLarger}),
      problems_(kRepeatProblem, kMostProblems) {
  status_.with([&](CourierStatus& s) {
    s.hosts = hosts_.list();
    s.body_limit = body_limit_.value();
  });
  inbox_.open();
  thread_ = std::jthread([this] { run(); });
}

Courier::~Courier() { stop(context_.clock.steady()); }

void Courier::deliver(std::vector<Delivery> batch) {
  if (batch.empty()) return;
  std::vector<std::vector<Delivery>> batches;
  batches.push_back(std::move(batch));
  if (inbox_.put(batches)) return http_.wake();
  for (Delivery& delivery : batches.front()) delivery.retry("shutting down");
}

void Courier::stop(SteadyTime deadline) {
  inbox_.close(deadline);
  http_.wake();
  if (thread_.joinable()) thread_.join();
}

CourierStatus Courier::status() const {
  return status_.with([](const CourierStatus& s) { return s; });
}

void Courier::run() noexcept {
  block_sigpipe();
  for (;;) {
    try {
      if (!step()) break;
    } catch (const std::exception& e) {
      // Without memory, most likely. What was in hand is tried again; the next step starts from
      // nothing.
      context_.log.error(
          "ES_INTERNAL",
          "the sink could not continue with what it had in hand; its events are tried again",
          {{"sink", context_.name}, {"reason", e.what()}});
      give_up();
    }
  }
  give_up();
}

// Everything that is in hand becomes a retry.
void Courier::give_up() noexcept {
  http_.abort();
  constexpr const char* kReason = "shutting down";
  for (auto& [tag, parcel] : under_way_) retry_all(parcel, kReason);
  for (Parcel& parcel : ready_) retry_all(parcel, kReason);
  for (Batch& batch : batches_) {
    for (std::size_t i = batch.next; i < batch.deliveries.size(); ++i)
      batch.deliveries[i].retry(kReason);
  }
  under_way_.clear();
  ready_.clear();
  batches_.clear();
  questions_.clear();
  templates_.forget_questions();
}

bool Courier::step() {
  const auto stop_at = collect();
  const SteadyTime now = context_.clock.steady();
  if (stop_at && (now >= *stop_at || (batches_.empty() && ready_.empty() && under_way_.empty())))
    return false;
  send_what_may_go();
  milliseconds limit = seconds(60);
  if (stop_at)
    limit = std::clamp(std::chrono::ceil<milliseconds>(*stop_at - now), milliseconds(0),
                       milliseconds(1000));
  for (Http::Done& done : http_.wait(limit)) finish(std::move(done));
  return true;
}

std::optional<SteadyTime> Courier::collect() {
  auto [batches, stop_at] = inbox_.take();
  for (std::vector<Delivery>& batch : batches) {
    // About what the documents will have: JSON's own signs, and what is known of the job.
    std::size_t bytes = 0;
    for (const Delivery& delivery : batch) bytes += (delivery.event().bytes_size() * 6 / 5) + 2000;
    const std::size_t limit =
        bytes > kWorthTwoBodies
            ? std::min(std::max(bytes / 2, kWorthTwoBodies / 2), body_limit_.value())
            : body_limit_.value();
    batches_.push_back({.deliveries = std::move(batch), .next = 0, .body_limit = limit});
  }
  drop_rendered_batches();
  if (!batches.empty()) check_for_new_secrets();
  return stop_at;
}

// An operator has put another password or certificate in place: it counts from the next batch on.
void Courier::check_for_new_secrets() {
  if (signature_of(config_) == signature_) return;
  auto credentials = read_credentials(config_);
  if (credentials) {
    signature_ = credentials->signature;
    renewal_ = *std::move(credentials);
    return;
  }
  signature_ = signature_of(config_);
  context_.log.error("ES_SECRET_UNREADABLE",
                     "a secret's file has changed and cannot be used; the old one stays in use",
                     {{"sink", context_.name}, {"reason", credentials.error().message()}});
}

void Courier::drop_rendered_batches() {
  while (!batches_.empty() && batches_.front().rendered()) batches_.pop_front();
}

void Courier::send_what_may_go() {
  if (renewal_) {
    if (http_.in_flight() > 0) return;
    http_.renew(*std::exchange(renewal_, std::nullopt));
    no_change_until_.reset();
  }
  const auto most = static_cast<std::size_t>(config_.requests_in_flight);
  while (under_way_.size() < most) {
    if (!ready_.empty()) {
      Parcel parcel = std::move(ready_.front());
      ready_.pop_front();
      send(std::move(parcel));
    } else if (ready_to_render()) {
      if (auto parcel = render()) send(*std::move(parcel));
    } else {
      break;
    }
  }
}

// Whether there is something to render, and the question for its template has its answer.
bool Courier::ready_to_render() {
  drop_rendered_batches();
  if (batches_.empty() || templates_.waiting()) return false;
  const Batch& batch = batches_.front();
  const auto family =
      templates_.to_ask(batch.deliveries[batch.next].event().kind, context_.clock.steady());
  if (family) ask_template(*family);
  return !family;
}

bool Courier::renderable(Delivery& delivery, Replacing replacing) const {
  const std::string& id = document_id(delivery.event(), replacing);
  if (id.empty() || id.size() > 512) {
    delivery.reject("the event's id has " + std::to_string(id.size()) +
                    " bytes; a document's has 1 to 512");
    return false;
  }
  if (!templates_.holds(delivery.event().kind)) return true;
  delivery.retry("the index template is missing; run scriptorium setup", kSlowly);
  return false;
}

// The next body of the first batch; nothing if every delivery up to its end is settled already.
std::optional<Courier::Parcel> Courier::render() {
  Batch& batch = batches_.front();
  const std::size_t limit = std::min(batch.body_limit, body_limit_.value());
  auto body = std::make_shared<Body>(limit + (limit / 4));
  Parcel parcel;
  parcel.replacing = replacing();
  std::uint64_t scripts_cut = 0;
  std::uint64_t environments_cut = 0;
  for (; !batch.rendered() && body->size() < limit; ++batch.next) {
    Delivery& delivery = batch.deliveries[batch.next];
    if (!renderable(delivery, parcel.replacing)) continue;
    const Cuts cuts = body->add(delivery.event(), config_, parcel.replacing);
    if (body->count() > 1 && body->size() > limit) {
      body->drop_last();
      break;
    }
    scripts_cut += cuts.script ? 1 : 0;
    environments_cut += cuts.environment ? 1 : 0;
    parcel.deliveries.push_back(std::move(delivery));
  }
  status_.with([&](CourierStatus& s) {
    s.scripts_cut += scripts_cut;
    s.environments_cut += environments_cut;
  });
  if (parcel.deliveries.empty()) return std::nullopt;
  parcel.body = std::move(body);
  return parcel;
}

void Courier::ask_template(const std::string& family) {
  const SteadyTime now = context_.clock.steady();
  const std::size_t host = hosts_.pick(now);
  templates_.asked(family, host, now);
  questions_[++last_tag_] = family;
  http_.start(get(hosts_.url(host), "/_index_template/" + config_.index_name.template_name(family)),
              last_tag_);
}

// Once, and after a request that was taken: it must not hold one up.
void Courier::ask_product() {
  if (product_asked_) return;
  product_asked_ = true;
  questions_[++last_tag_] = "";
  http_.start(get(hosts_.url(hosts_.pick(context_.clock.steady())), "/"), last_tag_);
}

void Courier::send(Parcel parcel) {
  parcel.host = hosts_.pick(context_.clock.steady(), parcel.tried);
  parcel.tried.push_back(parcel.host);
  HttpRequest request = request_for(parcel);
  status_.with([&](CourierStatus& s) {
    ++s.requests;
    s.bytes_raw += parcel.size();
    s.bytes_sent += request.body.size();
  });
  const std::uint64_t tag = ++last_tag_;
  under_way_.emplace(tag, std::move(parcel));
  http_.start(std::move(request), tag);
}

HttpRequest Courier::request_for(const Parcel& parcel) const {
  HttpRequest request;
  request.method = "POST";
  // Half of our own patience: a server whose shards are away then answers, where it would otherwise
  // be a timeout.
  request.url = hosts_.url(parcel.host) + "/_bulk?timeout=" +
                std::to_string(std::max<std::int64_t>(config_.request_timeout_ms / 2, 500)) + "ms" +
                (config_.require_alias ? "&require_alias=true" : "") +
                "&filter_path=took,errors,error,status,items.*.status,items.*.result,items.*._id,"
                "items.*.error."
                "type,items.*.error.reason,items.*.failure_store";
  request.content_type = "application/x-ndjson";
  request.timeout = milliseconds(config_.request_timeout_ms);
  request.expect = !parcel.without_expect;
  if (config_.compression == Compression::kGzip) {
    const auto packed = std::make_shared<const std::string>(gzip(parcel.bytes()));
    request.body = *packed;
    request.keep = packed;
    request.gzipped = true;
  } else {
    request.body = parcel.bytes();
    request.keep = parcel.body;
  }
  return request;
}

void Courier::log_refused(const std::string& reason, const std::string& host) {
  log_problem("ES_REFUSED",
              "the server refuses our requests, by its configuration or ours; nothing is lost, "
              "they are tried again each minute",
              reason, host);
}

void Courier::log_problem(const char* id, const char* sentence, const std::string& reason,
                          const std::string& host) {
  if (!problems_.allows(std::string(id) + " " + reason, context_.clock.steady())) return;
  Logger::Fields fields{{"sink", context_.name}, {"reason", reason}};
  if (!host.empty()) fields.emplace_back("host", host);
  context_.log.log(LogLevel::kError, id, sentence, fields);
}

}  // namespace scriptorium::elasticsearch
