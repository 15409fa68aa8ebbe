#include "core/daemon/owner_retry.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/fault_point.h"
#include "core/base/text.h"
#include "core/base/thread_name.h"
#include "core/daemon/owner_stage.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium {
namespace {

using std::chrono::seconds;

constexpr std::size_t kAtOnce = 1000;
constexpr seconds kCheckInterval{15};  // how often it is checked what is due
constexpr seconds kShortestPause{60};
constexpr std::chrono::hours kLongestPause{6};
constexpr std::chrono::hours kGivenUpAfter{30 * 24};
constexpr seconds kLateQueryLimit{60};

std::chrono::nanoseconds age_of(const Journal::Unverified& item, Timestamp now) {
  return std::chrono::nanoseconds(
      std::max<std::int64_t>(now.nanoseconds - item.noted_at.nanoseconds, 0));
}

Timestamp later_by(Timestamp now, std::chrono::nanoseconds pause) {
  return Timestamp{now.nanoseconds + pause.count()};
}

// The scheduler and its accounting were asked and knew no owner.
Timestamp next_time(const Journal::Unverified& item, Timestamp now) {
  return later_by(
      now, std::clamp<std::chrono::nanoseconds>(age_of(item, now), kShortestPause, kLongestPause));
}

}  // namespace

OwnerRetry::OwnerRetry(std::string source, std::unique_ptr<LateOwnerResolver> resolver,
                       std::shared_ptr<const redact::Redactor> redactor, Journal& journal,
                       const Archives& archives, Logger& log, const Clock& clock)
    : source_(std::move(source)),
      resolver_(std::move(resolver)),
      redactor_(std::move(redactor)),
      journal_(journal),
      archives_(archives),
      log_(log),
      clock_(clock) {}

void OwnerRetry::continue_from(const OwnerRetry& before) {
  state_.with([&](State& s) { s = before.state_.with([](const State& b) { return b; }); });
}

void OwnerRetry::start() {
  thread_.start([this](const std::stop_token& stop) { run(stop); });
}

std::uint64_t OwnerRetry::ask_now() {
  return state_.with_notify([](State& s) { return ++s.wanted; });
}

OwnerRetry::Status OwnerRetry::status() const {
  Status status = state_.with([](const State& s) { return s.status; });
  status.waiting = journal_.unverified_count(source_);
  return status;
}

void OwnerRetry::run(const std::stop_token& stop) noexcept {
  name_thread("owners-later", source_);
  while (!stop.stop_requested()) {
    const auto [wanted, now] = state_.with(
        [](const State& s) { return std::pair(s.wanted, s.wanted > s.status.rounds_done); });
    note_new_numbers();
    Result<std::uint64_t> done = std::uint64_t{0};
    if (now) done = journal_.hasten_unverified(source_);
    if (done) done = round(stop);
    if (done && now && *done > 0) {
      done = Error{ErrorKind::kTransient,
                   "to spare the scheduler, some jobs are asked about within the next minutes: " +
                       std::to_string(*done)};
    }
    state_.with([&](State& s) {
      s.status.rounds_done = wanted;
      s.status.last_error = done ? "" : printable(done.error().message());
    });
    state_.wait_until(stop, std::chrono::steady_clock::now() + kCheckInterval,
                      [&, before = wanted](const State& s) { return s.wanted > before; });
  }
}

void OwnerRetry::note_new_numbers() {
  if (since_.size() > 2 * Journal::kMostUnverified) {  // most are gone from the journal
    since_.clear();
    newest_ = 0;
  }
  const auto numbers = journal_.unverified_numbers(source_, newest_);
  const SteadyTime now = clock_.steady();
  for (const std::uint64_t number : numbers) since_.try_emplace(newest_ = number, now);
}

Result<std::uint64_t> OwnerRetry::round(const std::stop_token& stop) {
  std::uint64_t spared = 0;
  const Timestamp begun = clock_.now();
  while (!stop.stop_requested()) {
    // What this round has asked about is next due after the round began.
    auto due = journal_.unverified(source_, begun, kAtOnce);
    if (!due) return due.error();
    if (due->empty()) break;
    // A replacing event takes room in the journal, and captured events have precedence.
    if (journal_.full()) return Error{ErrorKind::kTransient, "the journal is full"};
    const auto handled = handle(*due, stop);
    if (!handled) return handled.error();
    spared += *handled;
  }
  return spared;
}

Result<std::uint64_t> OwnerRetry::handle(const std::vector<Journal::Unverified>& due,
                                         const std::stop_token& stop) {
  const SteadyTime begun = clock_.steady();
  const auto answers = ask(due, stop);
  std::uint64_t spared = 0;
  if (stop.stop_requested()) return spared;
  const Timestamp now = clock_.now();
  std::vector<Journal::LaterOwner> later;
  std::uint64_t verified = 0;
  std::optional<Error> failed;
  if (!answers) failed = answers.error();
  for (std::size_t i = 0; i < due.size() && !stop.stop_requested(); ++i) {
    const auto state = answers ? (*answers)[i].state : OwnerAnswer::State::kNotAsked;
    if (state == OwnerAnswer::State::kFound && (*answers)[i].user.verified &&
        (*answers)[i].user.id) {
      auto replaced = replace(due[i], (*answers)[i]);
      if (replaced) {
        ++verified;
        since_.erase(due[i].number);
      } else {
        failed = replaced.error();
        later.push_back({due[i].number, later_by(now, kShortestPause)});
      }
      continue;
    }
    if (state == OwnerAnswer::State::kNotAsked) {
      ++spared;
      later.push_back({due[i].number, later_by(now, kShortestPause)});
    } else if (age_of(due[i], now) > kGivenUpAfter) {
      later.push_back({due[i].number, std::nullopt});
      since_.erase(due[i].number);
    } else {
      later.push_back({due[i].number, next_time(due[i], now)});
      since_[due[i].number] = begun;
    }
  }
  state_.with([&](State& s) {
    s.status.asked += answers ? due.size() : 0;
    s.status.verified += verified;
  });
  if (verified > 0) {
    log_.info("OWNERS_FOUND_LATER",
              "owners of jobs that were delivered unverified are known now; the sinks replace "
              "the first events of these jobs",
              {{"source", source_}, {"jobs", verified}});
  }
  if (!later.empty()) {
    if (auto noted = journal_.change_unverified(std::move(later)); !noted) return noted.error();
  }
  if (failed) return *failed;
  return spared;
}

Result<std::vector<OwnerAnswer>> OwnerRetry::ask(const std::vector<Journal::Unverified>& due,
                                                 const std::stop_token& stop) {
  std::vector<OwnerQuery> queries;
  queries.reserve(due.size());
  const SteadyTime now = clock_.steady();
  for (const Journal::Unverified& item : due) {
    const auto since = since_.find(item.number);
    queries.push_back({.event = item.event.get(),
                       .script_mtime_ns = item.event->time.nanoseconds,
                       .entry_unchanged = {},
                       .since = since == since_.end() ? now : since->second});
  }
  auto answers = call_plugin("the resolver", ErrorKind::kPermanent, [&] {
    return resolver_->resolve(queries, stop, now + kLateQueryLimit);
  });
  if (answers && answers->size() != queries.size())
    return Error{ErrorKind::kPermanent,
                 "the resolver gave another number of answers than it was asked"};
  return answers;
}

Result<void> OwnerRetry::replace(const Journal::Unverified& item, const OwnerAnswer& answer) {
  std::shared_ptr<const Event> whole = item.event;
  if (auto held = journal_.event(item.event->id)) {
    whole = *std::move(held);
  } else if (!archives_.names().empty()) {
    auto archived = archives_.fetch(*item.event);
    if (!archived && !is_lost(archived.error())) return archived.error();
    if (archived) whole = *std::move(archived);
  }
  auto event = with_owner(*whole, answer, *redactor_);
  event->replaces = item.event->id;
  event->id = owned_event_id(item.event->id, *answer.user.id);
  event->user.unverified_reason.reset();
  FAULT_POINT("owners.before_replace");
  return journal_.replace_unverified(item.number, source_, std::move(event));
}

}  // namespace scriptorium
