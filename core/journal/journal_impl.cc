#include "core/journal/journal_impl.h"

#include <algorithm>
#include <future>
#include <utility>

#include "core/base/text.h"
#include "core/base/thread_name.h"
#include "core/journal/quarantine.h"
#include "core/journal/schema.h"

namespace scriptorium {
namespace {

using journal::CommitQueue;
using journal::Entry;
using journal::Shared;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Between the end of a commit and the begin of the next: whatever comes meanwhile shares it.
constexpr milliseconds kCommitPause{5};
constexpr milliseconds kFirstBackOff{100};
constexpr milliseconds kLongestBackOff{5000};
// Between two attempts to shorten -wal while it makes the journal full.
constexpr milliseconds kWalPause{500};
constexpr int kClosingAttempts = 5;
constexpr int kStartAttempts = 6;  // of what a start depends on: some three seconds

}  // namespace

Journal::Impl::Impl(Options given, Logger& logger, const Clock& the_clock,
                    journal::OpenedDatabase opened)
    : options(std::move(given)),
      log(logger),
      clock(the_clock),
      report(std::move(opened.report)),
      secret(std::move(opened.secret)),
      queue(CommitQueue(options.max_bytes)),
      shares(journal::Shares(options.max_bytes, options.user_share_percent)),
      readers(options.directory + "/" + journal::kFileName,
              options.read_only && opened.immutable ? journal::Connection::Mode::kImmutable
                                                    : journal::Connection::Mode::kReadOnly),
      reader(shared, readers,
             {.unreadable =
                  [this](SinkId sink, const Item& item, const std::string& reason,
                         bool only_in_archive) {
                    bury_unreadable(sink, item, reason, only_in_archive);
                  },
              .needless = [this](SinkId sink, const Item& item) { settle_replaced(sink, item); },
              .damaged = [this](const std::string& why) { note_damage(why); }}),
      writer_(std::make_unique<journal::Writer>(std::move(opened.connection), options, secret,
                                                shared, clock)) {}

Journal::Impl::~Impl() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

Result<void> Journal::Impl::start() {
  if (auto result = writer_->load(); !result) return result;
  if (options.read_only) {
    writer_.reset();
    return {};
  }
  update_full();
  thread_ = std::jthread([this](const std::stop_token& stop) noexcept { run(stop); });
  return {};
}

SteadyTime Journal::Impl::real_deadline(SteadyTime deadline) const {
  const SteadyTime now = clock.steady();
  constexpr auto kLongest = std::chrono::hours(24);
  if (deadline > now + kLongest) return steady_clock::now() + kLongest;
  return steady_clock::now() + (deadline - now);
}

Error Journal::Impl::read_only_error() const {
  return {ErrorKind::kPermanent, "journal: opened for reading only"};
}

void Journal::Impl::put(Entry entry) {
  if (options.read_only) return;
  const SteadyTime now = steady_clock::now();
  queue.with_notify([&](CommitQueue& q) { q.add(std::move(entry), now); });
}

Result<void> Journal::Impl::change(RunCommand run_it) {
  if (auto result = call(std::move(run_it)); !result) return result.error();
  return {};
}

Result<std::uint64_t> Journal::Impl::call(RunCommand run_it) {
  if (options.read_only) return read_only_error();
  // Shared, because the writer may still be inside set_value() when the answer is here.
  auto promise = std::make_shared<std::promise<Result<std::uint64_t>>>();
  auto answer = promise->get_future();
  put({.what = journal::Command{std::move(run_it), [promise](Result<std::uint64_t> result) {
                                  promise->set_value(std::move(result));
                                }}});
  return answer.get();
}

Result<std::uint64_t> Journal::Impl::call_until_done(const RunCommand& run_it) {
  milliseconds pause = kFirstBackOff;
  for (int attempt = 1;; ++attempt) {
    auto result = call(run_it);
    if (result || attempt == kStartAttempts || options.read_only || damaged) return result;
    std::this_thread::sleep_for(pause);
    pause *= 2;
  }
}

std::vector<Entry> Journal::Impl::take(const std::stop_token& stop) {
  std::optional<SteadyTime> until;
  if (const auto deferred = writer_->prune_deferred_since())
    until = CommitQueue::prune_until(*deferred);
  // No event announces that the last reader of -wal has gone.
  if (writer_->wal_bytes() > 0 && queue.with([](const CommitQueue& q) { return q.is_full(); }))
    until = std::min(until.value_or(SteadyTime::max()), steady_clock::now() + kWalPause);
  const auto has_work = [](const CommitQueue& q) { return q.has_work(); };
  if (!writer_->prune_waiting() &&
      (until ? queue.wait_until(stop, *until, has_work) : queue.wait(stop, has_work))) {
    const SteadyTime gathered = queue.with([](const CommitQueue& q) { return q.gather_until(); });
    queue.wait_until(stop, gathered, [](const CommitQueue& q) { return q.is_busy(); });
    queue.wait_until(stop, last_commit_ + kCommitPause,
                     [](const CommitQueue& q) { return q.is_pressing(); });
  }
  const SteadyTime now = steady_clock::now();
  return queue.with_notify([&](CommitQueue& q) { return q.take(now); });
}

void Journal::Impl::run(const std::stop_token& stop) noexcept {
  name_thread("journal");
  while (true) {
    std::vector<Entry> batch = take(stop);
    const bool end = batch.empty() && stop.stop_requested();
    const auto deferred = writer_->prune_deferred_since();
    if (end && !deferred) return;
    const bool prune = end || queue.with([&](const CommitQueue& q) {
      return q.must_prune(deferred, writer_->used_bytes(), steady_clock::now());
    });
    commit(std::move(batch), prune, stop);
    if (end) return;
  }
}

void Journal::Impl::commit(std::vector<Entry> batch, bool prune, const std::stop_token& stop) {
  milliseconds back_off = kFirstBackOff;
  int closing_attempts = 0;
  bool done = false;
  while (!damaged && !(done = try_commit(batch, prune)) && !damaged) {
    if (stop.stop_requested() && ++closing_attempts >= kClosingAttempts) {
      log.error("JOURNAL_CLOSE_INCOMPLETE",
                "the journal could not be written at the end; what was not durable is captured "
                "again from the spool, or delivered again",
                {{"directory", options.directory},
                 {"reason", shared.with([](const Shared& s) { return s.last_error; })},
                 {"entries", batch.size()}});
      return abandon({}, {ErrorKind::kExhausted, "journal: closed"});
    }
    // Room in -wal is regained when its pages are moved into the database.
    writer_->checkpoint(true);
    const bool stopping = stop.stop_requested();
    queue.wait_until(stopping ? std::stop_token{} : stop,
                     steady_clock::now() + (stopping ? kFirstBackOff : back_off),
                     [](const CommitQueue&) { return false; });
    if (!stopping) back_off = std::min(back_off * 2, kLongestBackOff);
  }
  if (!done) return abandon(std::move(batch), {ErrorKind::kCorrupt, "journal: damaged"});
  committed(batch);
}

bool Journal::Impl::try_commit(std::vector<Entry>& batch, bool prune) {
  const auto result = writer_->commit(batch, prune);
  if (writer_->damaged()) note_damage(result ? "found by a command" : result.error().message());
  if (result) return true;
  if (!damaged) report_write_error(result.error());
  return false;
}

void Journal::Impl::report_write_error(const Error& error) {
  const bool is_new = shared.with(
      [&](Shared& s) { return std::exchange(s.last_error, error.message()) != error.message(); });
  queue.with_notify([](CommitQueue& q) { q.commit_failed(); });
  if (!is_new) return;
  log.error("JOURNAL_WRITE_FAILED",
            "the journal cannot be written; nothing is lost, capture waits and the journal tries "
            "again until it can",
            {{"directory", options.directory},
             {"reason", error.message()},
             {"kind", to_string(error.kind())}});
}

void Journal::Impl::committed(const std::vector<Entry>& batch) {
  const bool failed_before =
      shared.with([](Shared& s) { return !std::exchange(s.last_error, std::string{}).empty(); });
  if (failed_before)
    log.info("JOURNAL_WRITES_AGAIN", "the journal can be written again",
             {{"directory", options.directory}});
  for (auto& callback : writer_->take_callbacks()) callback.durable(callback.fresh);
  for (const Entry& entry : batch) {
    const auto* many = std::get_if<journal::ResolveMany>(&entry.what);
    if (many == nullptr) continue;
    resolving.with([&](auto& tickets) {
      for (const Resolved& item : many->events) tickets.erase(item.ticket);
    });
    shares.with([&](journal::Shares& all) {
      for (const Resolved& item : many->events) {
        if (item.event) all.charged(item.event->id);
      }
    });
  }
  const bool all_pruned = !writer_->prune_deferred_since();
  const std::uint64_t room_below = queue.with_notify([&](CommitQueue& q) {
    q.committed(batch.size(), all_pruned);
    return q.has_room_below();
  });
  // -wal counts as used, so emptying it is the first way to make room.
  writer_->checkpoint(writer_->used_bytes() >= room_below);
  update_full();
  call_for_room();
  last_commit_ = steady_clock::now();
}

void Journal::Impl::update_full() {
  const std::uint64_t used = writer_->used_bytes();
  const auto change = queue.with([&](CommitQueue& q) { return q.note_used(used); });
  if (change == CommitQueue::RoomChange::kNone) return;
  if (change == CommitQueue::RoomChange::kBecameFull) {
    log.warning(
        "JOURNAL_FULL",
        "the journal has reached its limit; capture waits until sinks have taken events, "
        "and new jobs wait in the spool for as long as the scheduler keeps them; fix the "
        "sinks that `scriptorium status` shows behind, or raise journal_max_bytes and "
        "restart",
        {{"bytes", used}, {"limit_bytes", options.max_bytes}, {"wal_bytes", writer_->wal_bytes()}});
  } else {
    log.info("JOURNAL_HAS_ROOM", "the journal has room again; capture continues",
             {{"bytes", used}, {"limit_bytes", options.max_bytes}});
  }
  queue.with_notify([](CommitQueue&) {});
}

void Journal::Impl::call_for_room() {
  using journal::RoomCalls;
  if (queue.with([](const CommitQueue& q) { return q.is_full(); })) return;
  const bool room_for_large =
      writer_->used_bytes() < journal::Shares::large_until(options.max_bytes);
  room_calls.call(RoomCalls::kNoRoom | (room_for_large ? RoomCalls::kTooLarge : 0U) |
                  (writer_->uncharged() ? RoomCalls::kOverShare : 0U));
}

void Journal::Impl::abandon(std::vector<Entry> batch, const Error& why) {
  const auto fail = [&](Entry& entry, const Error& error) {
    if (auto* command = std::get_if<journal::Command>(&entry.what)) command->done(error);
  };
  for (Entry& entry : batch) fail(entry, why);
  auto queued = queue.with_notify([](CommitQueue& q) { return q.break_off(); });
  for (Entry& entry : queued) fail(entry, {ErrorKind::kExhausted, why.message()});
}

void Journal::Impl::note_damage(const std::string& why) {
  if (options.read_only || damaged.exchange(true)) return;
  log.error("JOURNAL_DAMAGED",
            "the journal's file is damaged; the daemon ends, and its next start puts the file "
            "aside and takes over what can be read",
            {{"directory", options.directory}, {"reason", printable(why, 400)}});
  if (auto result = journal::ask_for_salvage(options.directory, why); !result) {
    log.error("JOURNAL_SALVAGE_UNMARKED",
              "the next start cannot be told that the journal is damaged; it finds out by its own "
              "check, which looks less closely",
              {{"directory", options.directory}, {"reason", result.error().message()}});
  }
}

void Journal::Impl::bury_unreadable(SinkId sink, const Item& item, const std::string& reason,
                                    bool only_in_archive) {
  const std::string name = shared.with([&](const Shared& s) {
    const auto* const row = s.sink(sink);
    return row == nullptr ? std::string{} : row->name;
  });
  if (only_in_archive) {
    log.error("REFILL_IMPOSSIBLE",
              "an event that waited for a sink can no longer be fetched from the archive; it "
              "becomes a dead letter of this sink",
              {{"sink", name}, {"sequence", item.sequence}, {"reason", reason}});
  } else {
    log.error("JOURNAL_EVENT_DAMAGED",
              "an event is damaged in the journal; it becomes a dead letter of this sink",
              {{"sink", name}, {"sequence", item.sequence}, {"reason", reason}});
  }
  const Timestamp now = clock.now();
  std::vector<Settle> dead;
  dead.push_back({.sequence = item.sequence,
                  .outcome = Outcome::kRejected,
                  .reason = reason,
                  .attempts = item.attempts,
                  .first_attempt = now,
                  .last_attempt = now});
  put({.what = journal::SettleMany{sink, std::move(dead), 0}, .urgent = false});
}

// As the dispatcher does with one that it has read before.
void Journal::Impl::settle_replaced(SinkId sink, const Item& item) {
  put({.what = journal::SettleMany{sink,
                                   {{.sequence = item.sequence,
                                     .outcome = Outcome::kAcknowledged,
                                     .attempts = item.attempts}},
                                   0},
       .urgent = false});
}

}  // namespace scriptorium
