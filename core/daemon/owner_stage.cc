#include "core/daemon/owner_stage.h"

#include <algorithm>
#include <utility>

#include "core/base/pause.h"
#include "core/base/text.h"
#include "core/base/thread_name.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium {
namespace {

constexpr std::size_t kBatch = 4096;  // events in a page
constexpr std::size_t kPages = 64;    // in one round
constexpr std::chrono::seconds kQueryLimit{10};
// Reasons become labels of a metric, and some of them come from a plugin, so they must not grow
// without bound.
constexpr std::size_t kMaxReasons = 16;
constexpr const char* kNoAnswer = "the scheduler did not answer in time";

std::int64_t minute_of(SteadyTime at) {
  return std::chrono::floor<std::chrono::minutes>(at.time_since_epoch()).count();
}

std::chrono::milliseconds pause_of(const OwnerResolver& resolver) try {
  return resolver.min_interval();
} catch (...) {
  return std::chrono::seconds{1};
}

SchedulerLoad load_of(const OwnerResolver& resolver) try { return resolver.load(); } catch (...) {
  return {};
}

void forget_texts(Event& event) {
  event.job.name.reset();
  event.job.account.reset();
  event.job.work_dir.reset();
}

}  // namespace

void LastHour::add(SteadyTime now, Counts counts) {
  const std::int64_t number = minute_of(now);
  Minute& minute = minutes_.at(static_cast<std::size_t>(number) % minutes_.size());
  if (minute.number != number) minute = {number, {}};
  minute.counts.decided += counts.decided;
  minute.counts.unverified += counts.unverified;
}

LastHour::Counts LastHour::counts(SteadyTime now) const {
  Counts sum;
  const auto oldest = minute_of(now) - static_cast<std::int64_t>(minutes_.size());
  for (const Minute& minute : minutes_) {
    if (minute.number <= oldest) continue;
    sum.decided += minute.counts.decided;
    sum.unverified += minute.counts.unverified;
  }
  return sum;
}

std::shared_ptr<Event> with_owner(const Event& event, const OwnerAnswer& answer,
                                  const redact::Redactor& redactor) {
  auto result = std::make_shared<Event>(event);
  result->user = answer.user;
  const auto take = [](std::optional<std::string>& into, const std::optional<std::string>& from) {
    if (from) into = from;
  };
  take(result->job.name, answer.name);
  take(result->job.account, answer.account);
  take(result->job.partition, answer.partition);
  take(result->job.qos, answer.qos);
  take(result->job.work_dir, answer.work_dir);
  if (answer.array) result->job.array = answer.array;
  if (answer.het) result->job.het = answer.het;
  if (answer.submitted_at) result->job.submitted_at = answer.submitted_at;
  make_text_utf8(*result);
  if (!redactor.redact_texts(*result)) forget_texts(*result);
  return result;
}

OwnerStage::OwnerStage(Options options, std::unique_ptr<OwnerResolver> resolver, Journal& journal,
                       Logger& log, const Clock& clock)
    : options_(std::move(options)),
      resolver_(std::move(resolver)),
      journal_(journal),
      log_(log),
      clock_(clock) {}

void OwnerStage::start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void OwnerStage::continue_from(const OwnerStage& before) {
  counted_.with([&](Counted& c) { c = before.counted_.with([](const Counted& b) { return b; }); });
  last_failed_ = before.last_failed_;
  waits_ = before.waits_;
}

OwnerStage::Status OwnerStage::status() const {
  const SteadyTime now = clock_.steady();
  Status status = counted_.with([&](const Counted& c) {
    Status copy = c.status;
    copy.last_hour = c.last_hour.counts(now);
    return copy;
  });
  status.load = load_of(*resolver_);
  return status;
}

void OwnerStage::run(const std::stop_token& stop) noexcept {
  name_thread("owners", options_.source);
  next_query_ = clock_.steady();
  while (!stop.stop_requested()) {
    const SteadyTime long_from_now = clock_.steady() + std::chrono::minutes{1};
    if (!journal_.wait_unresolved(options_.source, 0, stop, long_from_now)) continue;
    if (round(stop)) continue;
    // Something waits and could not be decided: try again when the scheduler may be asked.
    pause_until(stop, std::max(next_query_, clock_.steady() + std::chrono::milliseconds{50}));
  }
}

bool OwnerStage::round(const std::stop_token& stop) {
  bool any = false;
  std::uint64_t after = 0;
  if (clock_.steady() < next_query_) return false;
  // Continue page after page as long as pages lead to answers: the newest events must not wait
  // behind the oldest, about which the scheduler may not be asked yet.
  for (std::size_t page = 0; page < kPages && !stop.stop_requested(); ++page) {
    std::vector<Journal::Unresolved> waiting = journal_.unresolved(options_.source, after, kBatch);
    if (waiting.empty()) break;
    after = waiting.back().ticket;
    const SteadyTime now = clock_.steady();
    for (const Journal::Unresolved& u : waiting)
      waits_.try_emplace(u.ticket, Wait{.since = now, .covered = {}});
    const PageResult result = handle(std::move(waiting), stop);
    any = any || result.decided > 0;
    if (result.answered == 0 && !last_failed_) break;
  }
  if (!stop.stop_requested()) answer_questions(stop);
  return any;
}

// What one page of events led to.
struct OwnerStage::Decisions {
  const redact::Redactor& redactor;
  std::vector<Journal::Resolved> done;
  std::uint64_t verified = 0;
  std::map<std::string, std::uint64_t> unverified;  // by reason

  // `event` names its owner as far as that is known.
  void add_unverified(std::uint64_t ticket, const Event& event, const std::string& reason) {
    auto copy = std::make_shared<Event>(event);
    copy->user.verified = false;
    copy->user.unverified_reason = reason;
    make_text_utf8(*copy);
    ++unverified[*copy->user.unverified_reason];
    done.push_back({ticket, std::move(copy)});
  }
  void add_found(std::uint64_t ticket, const Event& event, const OwnerAnswer& answer) {
    auto owned = with_owner(event, answer, redactor);
    if (!answer.user.verified) {
      return add_unverified(ticket, *owned,
                            answer.user.unverified_reason.value_or(
                                "the scheduler's record does not say for certain whose job it is"));
    }
    done.push_back({ticket, std::move(owned)});
    ++verified;
  }
};

std::vector<OwnerQuery> OwnerStage::queries_about(
    const std::vector<Journal::Unresolved>& events) const {
  std::vector<OwnerQuery> queries;
  queries.reserve(events.size());
  const SteadyTime now = clock_.steady();
  const Timestamp wall = clock_.now();
  for (const Journal::Unresolved& u : events) {
    // The time of the capture on the steady clock, or when this stage first saw the event.
    const std::chrono::nanoseconds age(
        std::max<std::int64_t>(wall.nanoseconds - u.event->captured_at.nanoseconds, 0));
    SteadyTime since = now - age;
    if (const auto wait = waits_.find(u.ticket); wait != waits_.end())
      since = std::min(since, wait->second.since);
    queries.push_back({u.event.get(), u.event->time.nanoseconds,
                       [this, &u] { return u.mark && options_.unchanged(*u.mark); }, since});
  }
  return queries;
}

// Answers the journal's questions about entries that wait in the spool until their owner is known.
// The scheduler is asked again about an entry without an answer, until the journal accepts that the
// owner cannot be found.
void OwnerStage::answer_questions(const std::stop_token& stop) {
  const std::vector<Journal::Unresolved> questions =
      journal_.owner_questions(options_.source, kBatch);
  if (questions.empty()) return;
  const auto answers = ask(queries_about(questions), stop);
  if (stop.stop_requested()) return;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const std::string& id = questions[i].event->id;
    if (!answers || (*answers)[i].state == OwnerAnswer::State::kUnknown) {
      journal_.answer_owner(options_.source, id, {});
    } else if ((*answers)[i].state == OwnerAnswer::State::kFound) {
      journal_.answer_owner(options_.source, id, (*answers)[i].user);
    }
  }
}

OwnerStage::PageResult OwnerStage::handle(std::vector<Journal::Unresolved> waiting,
                                          const std::stop_token& stop) {
  PageResult result;
  Decisions decisions{.redactor = *options_.redactor};
  if (last_failed_) give_up_expired(waiting, decisions);
  if (!waiting.empty()) {
    const auto answers = ask(queries_about(waiting), stop);
    if (stop.stop_requested()) return result;
    result.answered = decide(waiting, answers, decisions);
  }
  result.decided = decisions.done.size();
  if (result.decided == 0) return result;
  count(decisions);
  for (const Journal::Resolved& done : decisions.done) waits_.erase(done.ticket);
  journal_.resolved(std::move(decisions.done));
  // resolved() is queued: without the flush the next page would hold the same events again.
  journal_.flush(clock_.steady() + std::chrono::seconds{5});
  return result;
}

// While the scheduler does not answer, events whose time is up continue without another query.
void OwnerStage::give_up_expired(std::vector<Journal::Unresolved>& waiting,
                                 Decisions& decisions) const {
  std::erase_if(waiting, [&](const Journal::Unresolved& u) {
    if (!expired(waits_.at(u.ticket).since)) return false;
    decisions.add_unverified(u.ticket, *u.event, kNoAnswer);
    return true;
  });
}

std::size_t OwnerStage::decide(const std::vector<Journal::Unresolved>& waiting,
                               const Result<std::vector<OwnerAnswer>>& answers,
                               Decisions& decisions) {
  using State = OwnerAnswer::State;
  std::size_t answered = 0;
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    const Journal::Unresolved& u = waiting[i];
    Wait& wait = waits_.at(u.ticket);
    const OwnerAnswer answer = answers ? (*answers)[i] : OwnerAnswer{.state = State::kNotAsked};
    if (answer.state != State::kNotAsked) {
      ++answered;
      if (!wait.covered) wait.covered = clock_.steady();
    }
    switch (answer.state) {
      case State::kFound: decisions.add_found(u.ticket, *u.event, answer); break;
      case State::kUnknown:
        decisions.add_unverified(
            u.ticket, *u.event,
            answer.user.unverified_reason.value_or("the scheduler knows no such job"));
        break;
      case State::kNotYet:
        // The time counts from the first answer that could have named it: an event is not late
        // while its query waits.
        if (expired(*wait.covered)) {
          decisions.add_unverified(u.ticket, *u.event, "the scheduler had not listed it in time");
        }
        break;
      case State::kNotAsked:
        if (!answers && expired(wait.since))
          decisions.add_unverified(u.ticket, *u.event, kNoAnswer);
        break;
    }
  }
  return answered;
}

void OwnerStage::count(const Decisions& decisions) {
  counted_.with([&](Counted& c) {
    c.status.verified += decisions.verified;
    auto& counts = c.status.unverified;
    for (const auto& [reason, count] : decisions.unverified) {
      const bool has_room = counts.contains(reason) || counts.size() < kMaxReasons;
      counts[has_room ? reason : "another reason"] += count;
    }
    const std::uint64_t decided = decisions.done.size();
    c.last_hour.add(clock_.steady(),
                    {.decided = decided, .unverified = decided - decisions.verified});
  });
}

Result<std::vector<OwnerAnswer>> OwnerStage::ask(const std::vector<OwnerQuery>& queries,
                                                 const std::stop_token& stop) {
  const SteadyTime begun = clock_.steady();
  auto answers = call_plugin("the resolver", ErrorKind::kPermanent, [&] {
    return resolver_->resolve(
        queries, stop, begun + std::min<std::chrono::nanoseconds>(kQueryLimit, options_.timeout));
  });
  if (answers && answers->size() != queries.size())
    answers = Error{ErrorKind::kPermanent,
                    "the resolver gave another number of answers than it was asked"};
  next_query_ = clock_.steady() + pause_of(*resolver_);
  if (stop.stop_requested()) return answers;
  if (!answers && !last_failed_) {
    log_.warning("OWNER_UNKNOWN",
                 "the scheduler cannot be asked who owns its jobs; their events wait for it, and "
                 "go out unverified after resolve_timeout_seconds",
                 {{"source", options_.source}, {"reason", answers.error().message()}});
  } else if (answers && last_failed_) {
    log_.info("OWNER_KNOWN", "the scheduler answers again", {{"source", options_.source}});
    if (options_.answers_again) options_.answers_again();
  }
  last_failed_ = !answers;
  counted_.with([&](Counted& c) {
    Status& s = c.status;
    ++s.queries;
    if (!answers) {
      ++s.failed_queries;
      s.last_error = printable(answers.error().message());
    }
  });
  return answers;
}

bool OwnerStage::expired(SteadyTime since) const {
  return clock_.steady() - since >= options_.timeout;
}

}  // namespace scriptorium
