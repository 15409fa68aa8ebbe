#include "backends/elasticsearch/courier.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "backends/elasticsearch/setup.h"

namespace scriptorium::elasticsearch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Failure = HttpResponse::Failure;

// What somebody must repair is asked for no oftener than this.
constexpr milliseconds kSlowly{60'000};
constexpr seconds kComplainAgain{600};
constexpr std::size_t kMostComplaints = 64;

// A batch larger than this goes in two bodies at least: the second is made while the server works
// at the first.
constexpr std::size_t kWorthTwoBodies = 1'000'000;
constexpr std::size_t kLeastBodyLimit = 65'536;
// After so many bodies taken in a row, twice as much is tried again.
constexpr std::uint32_t kTakenUntilLarger = 256;
constexpr std::size_t kMostTries = 3;  // hosts for one request, before core waits

// Requests with not one accepted among them until it is the configuration, and not a document, that
// a server does not understand.
constexpr std::size_t kTrialRequests = 32;
// A document that nobody can judge is rejected when it was refused so often, for so long, while
// others were taken.
constexpr std::uint32_t kSuspectRefusals = 8;
constexpr seconds kSuspectTime{600};
constexpr std::size_t kMostSuspects = 10'000;

// How soon after an answer that there is none, for an operator who has just run `scriptorium
// setup`; and after none.
constexpr seconds kAskMissingTemplateAgain{2};
constexpr seconds kAskTemplateAgain{30};
// How soon after a server did not let us change a document it is tried again: somebody may have
// given us the right.
constexpr seconds kTryChangeAgain{600};

}  // namespace

Courier::Courier(const ElasticsearchConfig& config, const Credentials& credentials,
                 const PluginContext& context)
    : config_(config),
      context_(context),
      http_(config, credentials),
      hosts_(config.hosts),
      signature_(credentials.signature),
      body_limit_(static_cast<std::size_t>(config.request_max_bytes)) {
  status_.with([&](CourierStatus& s) {
    s.hosts = hosts_.list();
    s.body_limit = body_limit_;
  });
  thread_ = std::jthread([this] { run(); });
}

Courier::~Courier() { stop(context_.clock.steady()); }

void Courier::deliver(std::vector<Delivery> batch) {
  if (batch.empty()) return;
  const bool taken = inbox_.with([&](Inbox& inbox) {
    if (inbox.stop_at) return false;
    inbox.batches.push_back(std::move(batch));
    return true;
  });
  if (taken) {
    http_.wake();
  } else {
    for (Delivery& delivery : batch) delivery.retry("shutting down");
  }
}

void Courier::stop(SteadyTime deadline) {
  inbox_.with([&](Inbox& inbox) {
    inbox.stop_at = inbox.stop_at ? std::min(*inbox.stop_at, deadline) : deadline;
  });
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
          "the sink could not go on with what it had in hand; its events are tried again",
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
  for (Load& load : loads_) {
    for (std::size_t i = load.next; i < load.deliveries.size(); ++i)
      load.deliveries[i].retry(kReason);
  }
  under_way_.clear();
  ready_.clear();
  loads_.clear();
  questions_.clear();
  for (auto& [family, known] : templates_) {
    if (known.state == TemplateState::kAsked) known.state = TemplateState::kUnknown;
  }
}

bool Courier::step() {
  std::optional<SteadyTime> stop_at;
  collect(stop_at);
  const SteadyTime now = context_.clock.steady();
  if (stop_at && (now >= *stop_at || (loads_.empty() && ready_.empty() && under_way_.empty())))
    return false;
  send_what_may_go();
  milliseconds limit = seconds(60);
  if (stop_at)
    limit = std::clamp(std::chrono::ceil<milliseconds>(*stop_at - now), milliseconds(0),
                       milliseconds(1000));
  for (Http::Done& done : http_.wait(limit)) finish(std::move(done));
  return true;
}

void Courier::collect(std::optional<SteadyTime>& stop_at) {
  std::deque<std::vector<Delivery>> batches;
  inbox_.with([&](Inbox& inbox) {
    batches.swap(inbox.batches);
    stop_at = inbox.stop_at;
  });
  for (std::vector<Delivery>& batch : batches) {
    // About what the documents will have: JSON's own signs, and what is known of the job.
    std::size_t bytes = 0;
    for (const Delivery& delivery : batch) bytes += (delivery.event().bytes_size() * 6 / 5) + 2000;
    const std::size_t limit = bytes > kWorthTwoBodies
                                  ? std::clamp(bytes / 2, kWorthTwoBodies / 2, body_limit_)
                                  : body_limit_;
    loads_.push_back({.deliveries = std::move(batch), .next = 0, .body_limit = limit});
  }
  drop_finished_loads();
  if (!batches.empty()) look_for_new_secrets();
}

// An operator has put another password or certificate in place: it counts from the next batch on.
void Courier::look_for_new_secrets() {
  if (signature_of(config_) == signature_) return;
  auto credentials = read_credentials(config_);
  if (credentials) {
    signature_ = credentials->signature;
    renewal_ = *std::move(credentials);
    return;
  }
  signature_ = signature_of(config_);
  context_.log.error(
      "ES_SECRET_UNREADABLE",
      "a secret's file has changed and cannot be used; the old one goes on to be used",
      {{"sink", context_.name}, {"reason", credentials.error().message()}});
}

void Courier::drop_finished_loads() {
  while (!loads_.empty() && loads_.front().next == loads_.front().deliveries.size())
    loads_.pop_front();
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

// Whether there is something to render, and its template was asked for.
bool Courier::ready_to_render() {
  drop_finished_loads();
  if (loads_.empty()) return false;
  if (!config_.require_template) return true;
  for (const std::string& family : families(config_)) {
    Template& known = templates_[family];
    if (known.state == TemplateState::kAsked) return false;
  }
  const Load& load = loads_.front();
  std::string family(family_of(load.deliveries[load.next].event().kind));
  if (const auto shipped = families(config_); std::ranges::find(shipped, family) == shipped.end()) {
    if (config_.index_name.has_family())
      return true;  // not a family of ours: whatever its owner made for it
    family = shipped.front();
  }
  const Template& known = templates_[family];
  const SteadyTime now = context_.clock.steady();
  const seconds pause =
      known.state == TemplateState::kMissing ? kAskMissingTemplateAgain : kAskTemplateAgain;
  const bool stale = known.asked_at == SteadyTime{} || now - known.asked_at >= pause;
  if (known.state == TemplateState::kThere || !stale) return true;
  ask_template(family);
  return false;
}

bool Courier::template_in_the_way(Delivery& delivery) {
  if (!config_.require_template) return false;
  std::string family(family_of(delivery.event().kind));
  if (!config_.index_name.has_family()) family = families(config_).front();
  const auto known = templates_.find(family);
  if (known == templates_.end() || known->second.state != TemplateState::kMissing) return false;
  delivery.retry("the index template is missing; run scriptorium setup", kSlowly);
  return true;
}

// The next body of the first load; nothing if all that was looked at is settled already.
std::optional<Courier::Parcel> Courier::render() {
  Load& load = loads_.front();
  const std::size_t limit = std::min(load.body_limit, body_limit_);
  auto body = std::make_shared<Body>(limit + (limit / 4));
  Parcel parcel;
  parcel.replacing = replacing();
  std::uint64_t scripts_cut = 0;
  std::uint64_t environments_cut = 0;
  while (load.next < load.deliveries.size()) {
    Delivery& delivery = load.deliveries[load.next];
    const std::string& id = document_id(delivery.event(), parcel.replacing);
    if (id.empty() || id.size() > 512) {
      delivery.reject("the event's id has " + std::to_string(id.size()) +
                      " bytes; a document's has 1 to 512");
      ++load.next;
      continue;
    }
    if (template_in_the_way(delivery)) {
      ++load.next;
      continue;
    }
    const Cuts cuts = body->add(delivery.event(), config_, parcel.replacing);
    if (body->count() > 1 && body->size() > limit) {
      body->drop_last();
      break;
    }
    scripts_cut += cuts.script ? 1 : 0;
    environments_cut += cuts.environment ? 1 : 0;
    parcel.deliveries.push_back(std::move(delivery));
    ++load.next;
    if (body->size() >= limit) break;
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
  Template& known = templates_[family];
  known = {.state = TemplateState::kAsked, .asked_at = now, .host = hosts_.pick(now)};
  questions_[++last_tag_] = family;
  http_.start(
      get(hosts_.url(known.host), "/_index_template/" + config_.index_name.template_name(family)),
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
  HttpRequest request;
  request.method = "POST";
  // Half of our own patience: a server whose shards are away then says so, where it else would be a
  // timeout.
  request.url = hosts_.url(parcel.host) + "/_bulk?timeout=" +
                std::to_string(std::max<std::int64_t>(config_.request_timeout_ms / 2, 500)) + "ms" +
                (config_.require_alias ? "&require_alias=true" : "") +
                "&filter_path=took,errors,error,status,items.*.status,items.*._id,items.*.error."
                "type,items.*.error.reason,"
                "items.*.failure_store";
  request.content_type = "application/x-ndjson";
  request.timeout = milliseconds(config_.request_timeout_ms);
  request.expect = !parcel.without_expect;
  const std::string_view raw =
      parcel.body->slice(parcel.first, parcel.first + parcel.deliveries.size());
  if (config_.compression == Compression::kGzip) {
    const auto packed = std::make_shared<const std::string>(gzip(raw));
    request.body = *packed;
    request.keep = packed;
    request.gzipped = true;
  } else {
    request.body = raw;
    request.keep = parcel.body;
  }
  status_.with([&](CourierStatus& s) {
    ++s.requests;
    s.bytes_raw += raw.size();
    s.bytes_sent += request.body.size();
  });
  const std::uint64_t tag = ++last_tag_;
  under_way_.emplace(tag, std::move(parcel));
  http_.start(std::move(request), tag);
}

void Courier::finish(Http::Done done) {
  HttpResponse& response = done.response;
  // A server that refuses a body by its size answers and closes while it is still being sent.
  if (response.failure != Failure::kNone && response.status == 413)
    response.failure = Failure::kNone;
  status_.with([&](CourierStatus& s) {
    if (response.failure == Failure::kNone) {
      ++s.http[response.status];
    } else {
      ++s.failures[to_string(response.failure)];
    }
  });
  if (auto question = questions_.extract(done.tag); !question.empty()) {
    if (question.mapped().empty()) {
      note_server(response, true);
      product_asked_ = response.failure == Failure::kNone;
    } else {
      finish_template(question.mapped(), response);
    }
    return;
  }
  auto node = under_way_.extract(done.tag);
  if (!node.empty()) finish_parcel(std::move(node.mapped()), response);
}

void Courier::host_failed(std::size_t host, std::string why) {
  if (hosts_.size() > 1 && hosts_.list()[host].failures == 0) {
    context_.log.warning("ES_HOST_DOWN",
                         "a server of the list does not answer; the others get its requests",
                         {{"sink", context_.name}, {"host", hosts_.url(host)}, {"reason", why}});
  }
  hosts_.failed(host, context_.clock.steady(), std::move(why));
  status_.with([&](CourierStatus& s) { s.hosts = hosts_.list(); });
}

void Courier::host_worked(std::size_t host) {
  if (hosts_.list()[host].failures == 0) return;
  if (hosts_.size() > 1) {
    context_.log.info("ES_HOST_BACK", "a server of the list answers again",
                      {{"sink", context_.name}, {"host", hosts_.url(host)}});
  }
  hosts_.worked(host);
  status_.with([&](CourierStatus& s) { s.hosts = hosts_.list(); });
}

void Courier::finish_template(const std::string& family, const HttpResponse& response) {
  Template& known = templates_[family];
  const std::string name = config_.index_name.template_name(family);
  if (response.failure != Failure::kNone || response.status >= 500 || response.status == 429) {
    // The request itself will find out; the question is asked again.
    known.state = TemplateState::kUnknown;
    if (response.failure != Failure::kNone)
      host_failed(known.host, to_string(response.failure) + std::string(": ") + response.error);
  } else if (says_no_template(response)) {
    known.state = TemplateState::kMissing;
    complain("ES_TEMPLATE_MISSING",
             "the server has no index template for these events, so they would be indexed wrongly; "
             "they are held. Run: "
             "scriptorium setup",
             name, hosts_.url(known.host));
  } else {
    // There, or we may not know: then it is somebody else's care.
    known.state = TemplateState::kThere;
  }
  std::vector<std::string> missing;
  for (const auto& [key, value] : templates_) {
    if (value.state == TemplateState::kMissing)
      missing.push_back(config_.index_name.template_name(key));
  }
  status_.with([&](CourierStatus& s) { s.missing_templates = std::move(missing); });
}

void Courier::note_server(const HttpResponse& response, bool asked) {
  const ServerInfo info = server_info(response);
  if (info.product == Product::kAuto) return;
  status_.with([&](CourierStatus& s) {
    if (asked || s.server.product == Product::kAuto) s.server = info;
  });
}

void Courier::finish_parcel(Parcel parcel, const HttpResponse& response) {
  if (response.failure != Failure::kNone) return failed(std::move(parcel), response);
  closed_in_a_row_ = 0;
  note_server(response, false);
  answered(std::move(parcel), response);
}

// No answer: nobody knows whether the documents are stored, and a second request with them does no
// harm.
void Courier::failed(Parcel parcel, const HttpResponse& response) {
  const std::string reason = to_string(response.failure);
  const std::string& host = hosts_.url(parcel.host);
  host_failed(parcel.host, reason + ": " + response.error);
  if (response.failure == Failure::kTls) {
    complain("ES_TLS",
             "no safe connection to a server; another one is tried, and never without TLS. Look at "
             "ca_file and the certificates",
             response.error, host);
  }
  const bool closed = response.failure == Failure::kNoAnswer ||
                      response.failure == Failure::kSend || response.failure == Failure::kReceive;
  closed_in_a_row_ = closed ? closed_in_a_row_ + 1 : 0;
  if (closed_in_a_row_ == 3) {
    complain("ES_NO_ANSWER",
             "a server closes connections without an answer: http:// to a port that speaks HTTPS, "
             "a client certificate that is "
             "missing "
             "or refused, a proxy that spoils compressed bodies or takes only small ones, or a "
             "server that dies",
             reason, host);
  }
  // Perhaps an answer 413 that was lost, because the server closed before it had read the body.
  const bool cut = (response.failure == Failure::kSend || response.failure == Failure::kReceive) &&
                   parcel.size() > kLeastBodyLimit;
  cut_in_a_row_ = cut ? cut_in_a_row_ + 1 : 0;
  if (cut_in_a_row_ >= 2 && parcel.deliveries.size() > 1) {
    cut_in_a_row_ = 0;
    lower_limit(parcel.size());
    parcel.tried.clear();
    return split(std::move(parcel));
  }
  if (next_host(parcel)) return ready_.push_front(std::move(parcel));
  const auto trial = parcel.trial;
  retry_all(parcel, reason);
  leave_trial(trial, false);
}

bool Courier::next_host(Parcel& parcel) {
  return parcel.tried.size() < std::min(hosts_.size(), kMostTries);
}

void Courier::answered(Parcel parcel, const HttpResponse& response) {
  const ServerError error = response.status == 200 ? ServerError{} : parse_error(response.body);
  const RequestAction action = judge_request(response.status, error);
  const std::string reason = "request: " + short_reason(response.status, error.type);
  const auto hint =
      parse_retry_after(response.retry_after, context_.clock.now().nanoseconds / 1'000'000'000);
  const auto trial = parcel.trial;
  if (action != RequestAction::kNextHost) host_worked(parcel.host);
  cut_in_a_row_ = 0;
  switch (action) {
    case RequestAction::kItems: return judge_items(std::move(parcel), response);
    case RequestAction::kSplit: return too_large(std::move(parcel), response);
    case RequestAction::kSuspect: {
      const std::string words = words_of(error, parcel);
      return not_understood(std::move(parcel), reason, words);
    }
    case RequestAction::kNextHost:
      host_failed(parcel.host, reason);
      if (next_host(parcel)) return ready_.push_front(std::move(parcel));
      retry_all(parcel, reason, hint);
      break;
    case RequestAction::kRetry: retry_all(parcel, reason, hint); break;
    case RequestAction::kHold:
      complain_refused(short_reason(response.status, error.type) + ": " + words_of(error, parcel),
                       hosts_.url(parcel.host));
      retry_all(parcel, reason, std::max(hint.value_or(kSlowly), kSlowly));
      break;
  }
  leave_trial(trial, false);
}

// The server's words about a request, without any of its events'.
std::string Courier::words_of(const ServerError& error, const Parcel& parcel) const {
  std::string words = safe_reason(error.reason);
  for (const Delivery& delivery : parcel.deliveries) words = safe_reason(words, delivery.event());
  return words;
}

void Courier::judge_items(Parcel parcel, const HttpResponse& response) {
  std::vector<std::string_view> ids;
  ids.reserve(parcel.deliveries.size());
  for (const Delivery& delivery : parcel.deliveries)
    ids.push_back(document_id(delivery.event(), parcel.replacing));
  const auto items = parse_bulk_answer(response.body, ids);
  if (!items) {
    retry_all(parcel, items.error().message());
    return leave_trial(parcel.trial, false);
  }
  std::uint64_t created = 0;
  std::uint64_t replaced = 0;
  std::uint64_t duplicates = 0;
  std::uint64_t failure_store = 0;
  bool may_not_change = false;
  for (const Item& item : *items) {
    const ItemAction action = judge_item(item);
    may_not_change = may_not_change || action == ItemAction::kNoChange;
    const bool over = item.changes && item.status == 200;  // 201: there was none
    replaced += action == ItemAction::kStored && over ? 1 : 0;
    created += action == ItemAction::kStored && !over ? 1 : 0;
    duplicates += action == ItemAction::kDuplicate ? 1 : 0;
    failure_store += action == ItemAction::kStored && item.failure_store ? 1 : 0;
  }
  if (created + replaced + duplicates > 0) ++accepts_;
  // Before the deliveries: who sees one settled sees it counted.
  status_.with([&](CourierStatus& s) {
    s.created += created;
    s.replaced += replaced;
    s.duplicates += duplicates;
    s.failure_store += failure_store;
  });
  for (std::size_t i = 0; i < items->size(); ++i) {
    const Item& item = (*items)[i];
    // OpenSearch also refuses everything else in the request for the same shard; without the change
    // it accepts that.
    const bool with_it = may_not_change && item.status == 403 && item.type == "security_exception";
    if (with_it && !item.changes) {
      parcel.deliveries[i].retry(short_reason(item.status, item.type));
    } else {
      settle(parcel.deliveries[i], item);
    }
  }
  if (++taken_in_a_row_ >= kTakenUntilLarger) {
    taken_in_a_row_ = 0;
    body_limit_ = std::min(body_limit_ * 2, static_cast<std::size_t>(config_.request_max_bytes));
    status_.with([&](CourierStatus& s) { s.body_limit = body_limit_; });
  }
  leave_trial(parcel.trial, true);
  ask_product();
}

void Courier::settle(Delivery& delivery, const Item& item) {
  const std::string short_words = short_reason(item.status, item.type);
  const ItemAction action = judge_item(item);
  if (action == ItemAction::kStored || action == ItemAction::kDuplicate) {
    if (!suspects_.empty()) suspects_.erase(delivery.event().id);
    if (action == ItemAction::kStored && item.failure_store) {
      complain("ES_FAILURE_STORE",
               "the server took a document, but into the failure store of its data stream, where "
               "no search finds it",
               safe_reason(item.reason, delivery.event()));
    }
    return delivery.acknowledge();
  }
  if (action == ItemAction::kRetry) return delivery.retry(short_words);
  const std::string words = safe_reason(item.reason, delivery.event());
  const std::string reason = words.empty() ? short_words : short_words + ": " + words;
  if (action == ItemAction::kNoChange) {
    may_not_change(reason);
    return delivery.retry(short_words);
  }
  if (action == ItemAction::kHold) {
    complain_refused(reason);
    return delivery.retry(short_words, kSlowly);
  }
  if (action == ItemAction::kReject || worn_out(delivery)) {
    suspects_.erase(delivery.event().id);
    return delivery.reject(reason);
  }
  delivery.retry(short_words);
}

Replacing Courier::replacing() const {
  const bool may_change =
      !config_.data_stream && (!no_change_until_ || context_.clock.steady() >= *no_change_until_);
  return may_change ? Replacing::kInPlace : Replacing::kBeside;
}

void Courier::may_not_change(const std::string& reason) {
  if (!no_change_until_) {
    context_.log.warning(
        "ES_CREATE_ONLY",
        "the server lets us create documents but not change them, so a job whose owner is found "
        "later gets a "
        "second document beside its first; give the right to index documents if it is to have one",
        {{"sink", context_.name}, {"reason", reason}});
  }
  no_change_until_ = context_.clock.steady() + kTryChangeAgain;
}

// Counts a refusal that may be the document's fault; true if by now it must be.
bool Courier::worn_out(const Delivery& delivery) {
  const SteadyTime now = context_.clock.steady();
  if (suspects_.size() >= kMostSuspects && !suspects_.contains(delivery.event().id)) {
    suspects_.erase(std::ranges::min_element(suspects_, {},
                                             [](const auto& entry) { return entry.second.since; }));
  }
  const auto [entry, fresh] =
      suspects_.try_emplace(delivery.event().id, Suspect{.since = now, .accepts_seen = accepts_});
  Suspect& suspect = entry->second;
  ++suspect.refusals;
  return suspect.refusals >= kSuspectRefusals && now - suspect.since >= kSuspectTime &&
         accepts_ != suspect.accepts_seen;
}

void Courier::retry_all(Parcel& parcel, const std::string& reason,
                        std::optional<milliseconds> hint) {
  for (Delivery& delivery : parcel.deliveries) delivery.retry(reason, hint);
}

void Courier::split(Parcel parcel) {
  status_.with([](CourierStatus& s) { ++s.splits; });
  const std::size_t half = parcel.deliveries.size() / 2;
  Parcel second;
  second.body = parcel.body;
  second.replacing = parcel.replacing;
  second.first = parcel.first + half;
  second.deliveries.assign(
      std::make_move_iterator(parcel.deliveries.begin() + static_cast<std::ptrdiff_t>(half)),
      std::make_move_iterator(parcel.deliveries.end()));
  second.trial = parcel.trial;
  second.without_expect = parcel.without_expect;
  parcel.deliveries.erase(parcel.deliveries.begin() + static_cast<std::ptrdiff_t>(half),
                          parcel.deliveries.end());
  parcel.tried.clear();
  if (parcel.trial) ++parcel.trial->open;
  if (parcel.trial) {
    // Halves before quarters: if one document is guilty, that shows with the third request and not
    // with the tenth.
    ready_.push_back(std::move(parcel));
    ready_.push_back(std::move(second));
  } else {
    ready_.push_front(std::move(second));
    ready_.push_front(std::move(parcel));
  }
}

void Courier::too_large(Parcel parcel, const HttpResponse& response) {
  if (response.status == 417 && !parcel.without_expect) {
    // A proxy that knows no "Expect: 100-continue".
    parcel.without_expect = true;
    parcel.tried.clear();
    return ready_.push_front(std::move(parcel));
  }
  if (parcel.deliveries.size() > 1) {
    if (response.status == 413) lower_limit(parcel.size());
    return split(std::move(parcel));
  }
  const auto trial = parcel.trial;
  parcel.deliveries.front().reject(
      std::to_string(response.status) + ": the document has " + std::to_string(parcel.size()) +
      " bytes, more than the server takes in one request; raise its http.max_content_length, or "
      "lower script_max_bytes or environment_max_bytes");
  leave_trial(trial, false);
}

void Courier::lower_limit(std::size_t refused_size) {
  taken_in_a_row_ = 0;
  body_limit_ = std::min(body_limit_, std::max(refused_size / 2, kLeastBodyLimit));
  status_.with([&](CourierStatus& s) { s.body_limit = body_limit_; });
}

// 400 for the request: the server stored nothing of it, and says not which document it did not
// like.
void Courier::not_understood(Parcel parcel, const std::string& reason, const std::string& words) {
  if (!parcel.trial) {
    parcel.trial = std::make_shared<Trial>();
    parcel.trial->open = 1;
  }
  Trial& trial = *parcel.trial;
  ++trial.requests;
  const std::string full = words.empty() ? reason : reason + ": " + words;
  if (!trial.passed && trial.requests >= kTrialRequests) {
    // Not one was taken: it is no single document.
    complain_refused(full, hosts_.url(parcel.host));
    retry_all(parcel, reason, kSlowly);
    return leave_trial(parcel.trial, false);
  }
  if (parcel.deliveries.size() > 1) return split(std::move(parcel));
  trial.refused.push_back({std::move(parcel.deliveries.front()), reason, full});
  leave_trial(parcel.trial, false);
}

// A parcel of a trial has its answer. After the last one those that were refused alone are judged:
// guilty if others passed, now or since they were refused the first time.
void Courier::leave_trial(const std::shared_ptr<Trial>& trial, bool passed) {
  if (!trial) return;
  trial->passed = trial->passed || passed;
  if (--trial->open > 0) return;
  for (auto& [delivery, reason, full] : trial->refused) {
    const auto known = suspects_.find(delivery.event().id);
    const bool others_passed =
        trial->passed || (known != suspects_.end() && known->second.accepts_seen != accepts_);
    if (others_passed) {
      suspects_.erase(delivery.event().id);
      delivery.reject(full);
      continue;
    }
    static_cast<void>(worn_out(delivery));
    complain_refused(full);
    delivery.retry(reason, kSlowly);
  }
  trial->refused.clear();
}

void Courier::complain_refused(const std::string& reason, const std::string& host) {
  complain("ES_REFUSED",
           "the server refuses our requests, by its configuration or ours; nothing is lost, they "
           "are tried again each minute",
           reason, host);
}

// Once for each reason, and again while it lasts.
void Courier::complain(const char* id, const char* sentence, const std::string& reason,
                       const std::string& host) {
  const SteadyTime now = context_.clock.steady();
  std::erase_if(complaints_,
                [&](const auto& entry) { return now - entry.second >= kComplainAgain; });
  if (complaints_.size() >= kMostComplaints) complaints_.erase(complaints_.begin());
  if (!complaints_.try_emplace(std::string(id) + " " + reason, now).second) return;
  Logger::Fields fields{{"sink", context_.name}, {"reason", reason}};
  if (!host.empty()) fields.emplace_back("host", host);
  context_.log.log(LogLevel::kError, id, sentence, fields);
}

}  // namespace scriptorium::elasticsearch
