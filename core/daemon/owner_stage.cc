#include "core/daemon/owner_stage.h"

#include <algorithm>
#include <utility>

#include "core/base/text.h"
#include "core/base/thread_name.h"

namespace scriptorium {
namespace {

// One round's worth: at one question a second, the rate that this stage lets through.
constexpr std::size_t kBatch = 4096;
constexpr std::chrono::seconds kQueryLimit{10};

}  // namespace

std::shared_ptr<const Event> with_owner(const Event& event, const OwnerAnswer& answer) {
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
  return result;
}

OwnerStage::OwnerStage(Options options, std::unique_ptr<OwnerResolver> resolver, Journal& journal, Logger& log,
                       const Clock& clock)
    : options_(std::move(options)), resolver_(std::move(resolver)), journal_(journal), log_(log), clock_(clock) {}

OwnerStage::~OwnerStage() { stop(); }

void OwnerStage::start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void OwnerStage::stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

OwnerStage::Status OwnerStage::status() const {
  return status_.with([](const Status& s) { return s; });
}

void OwnerStage::run(const std::stop_token& stop) noexcept {
  name_thread("owners", options_.source);
  next_query_ = clock_.steady();
  while (!stop.stop_requested()) {
    const SteadyTime long_from_now = clock_.steady() + std::chrono::minutes{1};
    if (!journal_.wait_unresolved(options_.source, 0, stop, long_from_now)) continue;
    if (round(stop)) continue;
    // Something waits and could not be decided: again when the scheduler may be asked, or when something new comes.
    Guarded<int> nothing;
    nothing.wait_until(stop, std::max(next_query_, clock_.steady() + std::chrono::milliseconds{50}), [](int) { return false; });
  }
}

bool OwnerStage::round(const std::stop_token& stop) {
  std::vector<Journal::Unresolved> waiting = journal_.unresolved(options_.source, 0, kBatch);
  if (waiting.empty()) return false;

  std::vector<Journal::Resolved> done;
  std::map<std::string, std::uint64_t> unverified;
  std::uint64_t verified = 0;
  if (last_failed_) {
    // While the scheduler does not answer, what has waited its time goes on without another question.
    std::erase_if(waiting, [&](const Journal::Unresolved& u) {
      if (!expired(*u.event)) return false;
      done.push_back({u.ticket, u.event});
      ++unverified["the scheduler did not answer in time"];
      return true;
    });
  }
  if (!waiting.empty() && clock_.steady() >= next_query_) {
    std::vector<OwnerQuery> queries;
    queries.reserve(waiting.size());
    for (const Journal::Unresolved& u : waiting) {
      queries.push_back({u.event.get(), u.event->time.nanoseconds, [this, &u] { return u.mark && options_.unchanged(*u.mark); }});
    }
    auto answers = ask(queries, stop);
    if (stop.stop_requested()) return false;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      const Journal::Unresolved& u = waiting[i];
      const auto state = answers ? (*answers)[i].state : OwnerAnswer::State::kNotYet;
      if (state == OwnerAnswer::State::kFound) {
        done.push_back({u.ticket, with_owner(*u.event, (*answers)[i])});
        if (done.back().event->user.verified) {
          ++verified;
        } else {
          ++unverified["the scheduler's record could not be tied to the entry"];
        }
      } else if (state == OwnerAnswer::State::kUnknown) {
        done.push_back({u.ticket, u.event});
        ++unverified["the scheduler knows no such job"];
      } else if (expired(*u.event)) {
        done.push_back({u.ticket, u.event});
        ++unverified[answers ? "the scheduler had not listed it in time" : "the scheduler did not answer in time"];
      }
    }
  }
  const bool any = !done.empty();
  status_.with([&](Status& s) {
    s.verified += verified;
    for (const auto& [reason, count] : unverified) s.unverified[reason] += count;
  });
  if (any) journal_.resolved(std::move(done));
  // resolved() is queued: without the flush the same events would be read again, and asked for again.
  if (any) journal_.flush(clock_.steady() + std::chrono::seconds{5});
  return any;
}

Result<std::vector<OwnerAnswer>> OwnerStage::ask(const std::vector<OwnerQuery>& queries, const std::stop_token& stop) {
  const SteadyTime begun = clock_.steady();
  Result<std::vector<OwnerAnswer>> answers = [&]() -> Result<std::vector<OwnerAnswer>> {
    try {
      return resolver_->resolve(queries, stop, begun + std::min<std::chrono::nanoseconds>(kQueryLimit, options_.timeout));
    } catch (const std::exception& e) {
      return Error{ErrorKind::kPermanent, std::string("the resolver threw: ") + e.what()};
    }
  }();
  if (answers && answers->size() != queries.size())
    answers = Error{ErrorKind::kPermanent, "the resolver gave another number of answers than it was asked"};
  next_query_ = clock_.steady() + resolver_->min_interval();
  if (stop.stop_requested()) return answers;
  if (!answers && !last_failed_) {
    log_.warning("OWNER_UNKNOWN",
                 "the scheduler cannot be asked who owns its jobs; their events wait for it, and go out unverified after "
                 "resolve_timeout_seconds",
                 {{"source", options_.source}, {"reason", answers.error().message()}});
  } else if (answers && last_failed_) {
    log_.info("OWNER_KNOWN", "the scheduler answers again", {{"source", options_.source}});
  }
  last_failed_ = !answers;
  status_.with([&](Status& s) {
    ++s.queries;
    if (!answers) {
      ++s.failed_queries;
      s.last_error = printable(answers.error().message());
    }
  });
  return answers;
}

bool OwnerStage::expired(const Event& event) const {
  return clock_.now().nanoseconds - event.captured_at.nanoseconds >= std::chrono::nanoseconds(options_.timeout).count();
}

}  // namespace scriptorium
