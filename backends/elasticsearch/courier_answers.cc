#include <algorithm>
#include <set>
#include <utility>

#include "backends/elasticsearch/courier.h"
#include "backends/elasticsearch/index_name.h"

// The answers of the servers: which deliveries they settle, and which are sent again and how.
namespace scriptorium::elasticsearch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Failure = HttpResponse::Failure;

constexpr std::size_t kLeastSplit = 65'536;
constexpr std::size_t kMostTries = 3;  // hosts for one request, before core waits
// Requests with not one accepted among them until it is the configuration, and not a document, that
// a server does not understand.
constexpr std::size_t kTrialRequests = 32;
// How soon after a server did not let us change a document it is tried again: somebody may have
// given us the right.
constexpr seconds kTryChangeAgain{600};

}  // namespace

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
  using State = TemplateGate::State;
  const std::size_t host = templates_.host_of(family);
  if (response.failure != Failure::kNone || response.status >= 500 || response.status == 429) {
    // The request itself will find out; the question is asked again.
    templates_.answered(family, State::kUnknown);
    if (response.failure != Failure::kNone)
      host_failed(host, to_string(response.failure) + std::string(": ") + response.error);
  } else if (says_no_template(response)) {
    templates_.answered(family, State::kMissing);
    log_problem("ES_TEMPLATE_MISSING",
                "the server has no index template for these events, so they would be indexed "
                "wrongly; they are held. Run: scriptorium setup",
                config_.index_name.template_name(family), hosts_.url(host));
  } else {
    // It is there, or we may not know, which is then somebody else's responsibility.
    templates_.answered(family, State::kPresent);
  }
  status_.with([&](CourierStatus& s) { s.missing_templates = templates_.missing(); });
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

// No answer: nobody knows whether the documents are stored, and sending them a second time does no
// harm.
void Courier::failed(Parcel parcel, const HttpResponse& response) {
  const std::string reason = to_string(response.failure);
  const std::string& host = hosts_.url(parcel.host);
  host_failed(parcel.host, reason + ": " + response.error);
  if (response.failure == Failure::kTls) {
    log_problem("ES_TLS",
                "no safe connection to a server; another one is tried, and never without TLS. Look "
                "at ca_file and the certificates",
                response.error, host);
  }
  count_closed_connections(reason, response.failure, host);
  // Perhaps an answer 413 that was lost, because the server closed before it had read the body.
  const bool cut = (response.failure == Failure::kSend || response.failure == Failure::kReceive) &&
                   parcel.size() > kLeastSplit;
  cut_in_a_row_ = cut ? cut_in_a_row_ + 1 : 0;
  if (cut_in_a_row_ >= 2 && parcel.deliveries.size() > 1) {
    cut_in_a_row_ = 0;
    lower_limit(parcel.size());
    parcel.tried.clear();
    return split(std::move(parcel));
  }
  if (has_next_host(parcel)) return ready_.push_front(std::move(parcel));
  const auto trial = parcel.trial;
  retry_all(parcel, reason);
  leave_trial(trial, false);
}

void Courier::count_closed_connections(const std::string& reason, Failure failure,
                                       const std::string& host) {
  const bool closed =
      failure == Failure::kNoAnswer || failure == Failure::kSend || failure == Failure::kReceive;
  closed_in_a_row_ = closed ? closed_in_a_row_ + 1 : 0;
  if (closed_in_a_row_ != 3) return;
  log_problem("ES_NO_ANSWER",
              "a server closes connections without an answer: http:// to a port that speaks HTTPS, "
              "a client certificate that is missing or refused, a proxy that spoils compressed "
              "bodies or takes only small ones, or a server that dies",
              reason, host);
}

bool Courier::has_next_host(const Parcel& parcel) const {
  return parcel.tried.size() < std::min(hosts_.size(), kMostTries);
}

void Courier::answered(Parcel parcel, const HttpResponse& response) {
  const ServerError error = response.status == 200 ? ServerError{} : parse_error(response.body);
  const RequestAction action = judge_request(response.status, error);
  const std::string reason = "request: " + short_reason(response.status, error.type);
  const auto hint =
      parse_retry_after(response.retry_after, context_.clock.now().nanoseconds / kSecond);
  const auto trial = parcel.trial;
  if (action != RequestAction::kNextHost) host_worked(parcel.host);
  cut_in_a_row_ = 0;
  switch (action) {
    case RequestAction::kItems: return settle_items(std::move(parcel), response);
    case RequestAction::kSplit: return too_large(std::move(parcel), response);
    case RequestAction::kSuspect: {
      const std::string words = words_of(error, parcel);
      return not_understood(std::move(parcel), reason, words);
    }
    case RequestAction::kNextHost:
      host_failed(parcel.host, reason);
      if (has_next_host(parcel)) return ready_.push_front(std::move(parcel));
      retry_all(parcel, reason, hint);
      break;
    case RequestAction::kRetry: retry_all(parcel, reason, hint); break;
    case RequestAction::kHold: {
      std::string words = words_of(error, parcel);
      if (words.empty() && error.type.empty() && response.status != 401 && response.status != 403)
        words = kStranger;
      log_refused(short_reason(response.status, error.type) + ": " + words,
                  hosts_.url(parcel.host));
      retry_all(parcel, words.empty() ? reason : reason + ": " + words,
                std::max(hint.value_or(kSlowly), kSlowly));
      break;
    }
  }
  leave_trial(trial, false);
}

// The server's words about a request, without any of its events'.
std::string Courier::words_of(const ServerError& error, const Parcel& parcel) const {
  std::string words = safe_reason(error.reason);
  for (const Delivery& delivery : parcel.deliveries) words = safe_reason(words, delivery.event());
  return words;
}

void Courier::settle_items(Parcel parcel, const HttpResponse& response) {
  std::vector<std::string_view> ids;
  ids.reserve(parcel.deliveries.size());
  for (const Delivery& delivery : parcel.deliveries)
    ids.push_back(document_id(delivery.event(), parcel.replacing));
  const auto items = parse_bulk_answer(response.body, ids);
  if (!items) {
    log_problem("ES_ANSWER",
                "a server answers, but not as Elasticsearch or OpenSearch do; nothing is lost, the "
                "events are sent again",
                items.error().message(), hosts_.url(parcel.host));
    retry_all(parcel, items.error().message());
    return leave_trial(parcel.trial, false);
  }
  count_items(*items);  // first: whoever sees a delivery settled sees it counted
  std::set<std::string> accepted;
  for (std::size_t i = 0; i < items->size(); ++i) {
    const ItemAction action = judge_item((*items)[i]);
    if (action == ItemAction::kStored || action == ItemAction::kDuplicate)
      accepted.insert(family(parcel.deliveries[i]));
  }
  for (const std::string& one : accepted) suspects_.accepted_one(one);
  const bool may_not_change = std::ranges::any_of(
      *items, [](const Item& item) { return judge_item(item) == ItemAction::kNoChange; });
  for (std::size_t i = 0; i < items->size(); ++i) {
    const Item& item = (*items)[i];
    // OpenSearch also refuses everything else in the request for the same shard; without the change
    // it accepts that.
    const bool with_it = may_not_change && item.status == 403 && item.type == "security_exception";
    if (with_it && !item.changes) {
      parcel.deliveries[i].retry(short_reason(item.status, item.type));
    } else {
      settle(parcel.deliveries[i], item, accepted.contains(family(parcel.deliveries[i])));
    }
  }
  if (body_limit_.taken())
    status_.with([&](CourierStatus& s) { s.body_limit = body_limit_.value(); });
  leave_trial(parcel.trial, true);
  ask_product();
}

void Courier::count_items(const std::vector<Item>& items) {
  CourierStatus sum;
  for (const Item& item : items) {
    const ItemAction action = judge_item(item);
    const bool taken = action == ItemAction::kStored;
    const bool over = item.changes && item.status == 200;  // 201: there was none
    sum.replaced += taken && over ? 1 : 0;
    sum.created += taken && !over ? 1 : 0;
    sum.duplicates += action == ItemAction::kDuplicate ? 1 : 0;
    sum.failure_store += taken && item.failure_store ? 1 : 0;
  }
  status_.with([&](CourierStatus& s) {
    s.created += sum.created;
    s.replaced += sum.replaced;
    s.duplicates += sum.duplicates;
    s.failure_store += sum.failure_store;
  });
}

// Documents whose events have one template; see TemplateGate.
std::string Courier::family(const Delivery& delivery) const {
  return config_.index_name.has_family() ? std::string(family_of(delivery.event().kind))
                                         : std::string{};
}

// `others_accepted`: the same answer takes another document of its family.
void Courier::settle(Delivery& delivery, const Item& item, bool others_accepted) {
  const std::string short_words = short_reason(item.status, item.type);
  const ItemAction action = judge_item(item);
  if (action == ItemAction::kStored || action == ItemAction::kDuplicate)
    return stored(delivery, item);
  const std::string words = safe_reason(item.reason, delivery.event());
  const std::string reason = words.empty() ? short_words : short_words + ": " + words;
  if (action == ItemAction::kRetry)
    return delivery.retry(item.type == "unavailable_shards_exception" ? reason : short_words);
  if (action == ItemAction::kNoChange) {
    may_not_change(reason);
    return delivery.retry(short_words);
  }
  if (action == ItemAction::kHold) {
    log_refused(reason);
    return delivery.retry(reason, kSlowly);
  }
  const std::string& id = delivery.event().id;
  const bool others = others_accepted || suspects_.others_accepted_since(id);
  const bool guilty = suspects_.refused(id, family(delivery), context_.clock.steady());
  if (guilty || (action == ItemAction::kReject && others)) {
    suspects_.forget(id);
    return delivery.reject(reason);
  }
  // As long as the server takes no other it may be its mapping or its pipeline.
  if (!others) log_refused(reason);
  delivery.retry(reason, action == ItemAction::kReject ? std::optional(kSlowly) : std::nullopt);
}

void Courier::stored(Delivery& delivery, const Item& item) {
  suspects_.forget(delivery.event().id);
  if (judge_item(item) == ItemAction::kStored && item.failure_store) {
    log_problem("ES_FAILURE_STORE",
                "the server took a document, but into the failure store of its data stream, where "
                "no search finds it",
                safe_reason(item.reason, delivery.event()));
  }
  delivery.acknowledge();
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

void Courier::retry_all(Parcel& parcel, const std::string& reason,
                        std::optional<milliseconds> hint) {
  for (Delivery& delivery : parcel.deliveries) delivery.retry(reason, hint);
}

Courier::Parcel Courier::Parcel::take_second_half() {
  const auto half = deliveries.begin() + static_cast<std::ptrdiff_t>(deliveries.size() / 2);
  Parcel second;
  second.body = body;
  second.replacing = replacing;
  second.first = first + deliveries.size() / 2;
  second.deliveries.assign(std::make_move_iterator(half),
                           std::make_move_iterator(deliveries.end()));
  second.trial = trial;
  second.without_expect = without_expect;
  deliveries.erase(half, deliveries.end());
  return second;
}

void Courier::split(Parcel parcel) {
  status_.with([](CourierStatus& s) { ++s.splits; });
  Parcel second = parcel.take_second_half();
  parcel.tried.clear();
  if (parcel.trial) {
    ++parcel.trial->open;
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
  body_limit_.refused(refused_size);
  status_.with([&](CourierStatus& s) { s.body_limit = body_limit_.value(); });
}

// 400 for the request: the server stored nothing of it, and does not say which document it did
// not accept.
void Courier::not_understood(Parcel parcel, const std::string& reason, const std::string& words) {
  if (!parcel.trial) {
    parcel.trial = std::make_shared<Trial>();
    parcel.trial->open = 1;
  }
  Trial& trial = *parcel.trial;
  ++trial.requests;
  const std::string full = words.empty() ? reason : reason + ": " + words;
  if (!trial.passed && trial.requests >= kTrialRequests) {
    // Not one was taken, so it is not a single document's fault.
    log_refused(full, hosts_.url(parcel.host));
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
    const std::string& id = delivery.event().id;
    if (trial->passed || suspects_.others_accepted_since(id)) {
      suspects_.forget(id);
      delivery.reject(full);
      continue;
    }
    static_cast<void>(suspects_.refused(id, family(delivery), context_.clock.steady()));
    log_refused(full);
    delivery.retry(reason, kSlowly);
  }
  trial->refused.clear();
}

}  // namespace scriptorium::elasticsearch
