#include "core/capture/gap_watch.h"

#include <algorithm>
#include <utility>

#include "core/base/text.h"
#include "core/base/thread_name.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium {
namespace {

using namespace std::chrono_literals;

// The scheduler forgets short jobs, and the tasks of an array use up numbers long before the next
// job is submitted. So it is asked this often even if no number waits, once a number was seen.
constexpr auto kRound = 60s;
constexpr auto kBetweenQuestions = 10s;
constexpr auto kQueryLimit = 20s;
constexpr std::size_t kAskedOneByOne = 20;
constexpr auto kSaveEvery = 1s;
constexpr auto kStopLimit = 2s;

}  // namespace

GapWatch::GapWatch(std::string source, std::chrono::seconds patience,
                   std::unique_ptr<NumberResolver> resolver, Journal& journal, Logger& log,
                   const Clock& clock)
    : source_(std::move(source)),
      resolver_(std::move(resolver)),
      journal_(journal),
      log_(log),
      clock_(clock) {
  state_.with([&](State& s) { s.tracker = GapTracker(patience); });
}

GapWatch::~GapWatch() { stop(); }

void GapWatch::start() {
  // Not earlier: during a reload, the previous instance writes this state until it is stopped.
  const auto saved = loaded_ ? std::nullopt : journal_.position(place());
  loaded_ = true;
  state_.with([&](State& s) {
    s.ended = s.closed = false;
    if (saved) s.tracker.load(*saved, clock_.steady());
    s.counts = s.counts || s.tracker.status().highest.has_value();
  });
  next_round_ = clock_.steady() + kRound;
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void GapWatch::stop() {
  if (!thread_.joinable()) return;
  state_.with_notify([](State& s) { s.ended = true; });
  state_.wait_until({}, clock_.steady() + kStopLimit, [](const State& s) { return s.closed; });
  thread_.request_stop();
  thread_.join();
}

void GapWatch::change(std::chrono::seconds patience, std::unique_ptr<NumberResolver> resolver) {
  state_.with([&](State& s) { s.tracker.change_patience(patience); });
  resolver_ = std::move(resolver);
}

void GapWatch::seen(std::span<const std::uint64_t> numbers) {
  if (numbers.empty()) return;
  const bool first = state_.with([&](State& s) {
    const SteadyTime now = clock_.steady();
    for (const std::uint64_t number : numbers) s.tracker.seen(number, now);
    return !std::exchange(s.counts, true);
  });
  if (first) state_.with_notify([](State&) {});
}

void GapWatch::scanned() {
  state_.with_notify([&](State& s) { s.tracker.scanned(clock_.steady()); });
}

void GapWatch::expect_listing() {
  state_.with([](State& s) { s.tracker.expect_listing(); });
}

GapStatus GapWatch::status() const {
  return state_.with([](const State& s) {
    GapStatus status = s.tracker.status();
    status.queries = s.queries;
    status.last_error = s.last_error;
    return status;
  });
}

void GapWatch::run(const std::stop_token& stop) noexcept {
  name_thread("gaps");
  while (!stop.stop_requested()) {
    if (!state_.wait(stop, [](const State& s) { return s.counts || s.ended; })) break;
    // seen() does not wake this thread for each job; its changes are handled in the next round.
    const SteadyTime next = clock_.steady() + kSaveEvery;
    const bool ended = state_.wait_until(stop, next, [](const State& s) { return s.ended; });
    if (!ended && !stop.stop_requested()) check(stop);
    save(stop);
    if (ended) break;
  }
  state_.with_notify([](State& s) { s.closed = true; });
}

void GapWatch::check(const std::stop_token& stop) {
  const SteadyTime now = clock_.steady();
  const auto due = state_.with([](const State& s) { return s.tracker.due(); });
  const bool waits = due && *due <= now;
  const bool round = resolver_ != nullptr && now >= next_round_;
  if (!waits && !round) return;
  std::optional<std::vector<NumberUse>> answer;
  if (resolver_ != nullptr) {
    if (now < next_question_) return;
    NumberResolver::Question question;
    if (waits)
      question = state_.with([](const State& s) { return s.tracker.question(kAskedOneByOne); });
    if (round) question = {.numbers = {}, .since = std::max(question.since, now - kRound)};
    auto asked = call_plugin("the resolver", ErrorKind::kPermanent,
                             [&] { return resolver_->numbers(question, stop, now + kQueryLimit); });
    if (stop.stop_requested()) return;
    next_question_ = clock_.steady() + kBetweenQuestions;
    if (question.numbers.empty() && (!asked || *asked)) next_round_ = clock_.steady() + kRound;
    state_.with([&](State& s) {
      if (!asked || *asked) ++s.queries;
      s.last_error = asked ? std::nullopt : std::optional(printable(asked.error().message()));
    });
    if (asked) answer = *std::move(asked);
  }
  const GapTracker::Verdict verdict = state_.with(
      [&](State& s) { return s.tracker.judge(clock_.steady(), resolver_ != nullptr, answer); });
  if (verdict.confirmed > 0) {
    log_.warning(
        "JOB_SCRIPT_NEVER_SEEN",
        "the scheduler has jobs with a script that never appeared in the spool; see "
        "docs/capture.md, \"Numbers that never came\"",
        {{"source", source_}, {"jobs", verdict.confirmed}, {"numbers", verdict.confirmed_ranges}});
  }
  if (verdict.suspected > 0) {
    log_.info(
        "JOB_NUMBERS_SKIPPED",
        "job numbers were passed over without an entry in the spool: refused submissions, or jobs "
        "that nothing was seen of",
        {{"source", source_}, {"numbers", verdict.suspected_ranges}, {"count", verdict.suspected}});
  }
}

void GapWatch::save(const std::stop_token& stop) {
  const auto text = state_.with([](State& s) -> std::optional<std::string> {
    if (!s.tracker.changed()) return std::nullopt;
    s.tracker.saved();
    return s.tracker.save();
  });
  // Not while the journal is full: append_all() would wait for room, and the entries that wait in
  // the spool are seen again after a restart anyway.
  if (!text || journal_.full()) return;
  if (auto saved = journal_.append_all(place(), {}, text, stop); !saved && !stop.stop_requested()) {
    state_.with([&](State& s) { s.last_error = printable(saved.error().message()); });
  }
}

}  // namespace scriptorium
