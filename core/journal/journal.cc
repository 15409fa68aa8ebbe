#include "core/journal/journal.h"

#include <algorithm>
#include <future>
#include <limits>
#include <set>
#include <utility>

#include "core/base/fault_point.h"
#include "core/base/text.h"
#include "core/base/thread_name.h"
#include "core/journal/journal_impl.h"

namespace scriptorium {
namespace {

using journal::Entry;
using journal::Queue;
using journal::Shared;
using journal::SinkRow;
using std::chrono::milliseconds;

constexpr std::uint64_t kQueueBytes =
    8U << 20;  // above it append() waits; a small journal's queue is a quarter of it
constexpr std::uint64_t kBatchBytes = 8U << 20;  // one transaction
constexpr std::size_t kBatchEntries = 2000;
constexpr std::uint64_t kLazyLimit =
    100'000;  // unsettled settlements, above which sinks get nothing new
constexpr milliseconds kGather{
    10};  // settlements may wait that long for company: nobody waits for them
constexpr milliseconds kCommitPause{
    5};  // between the end of a commit and the begin of the next: company for whoever comes then
constexpr milliseconds kPruneDelay{
    50};  // what no sink needs any more stays that long, unless it becomes much
constexpr milliseconds kFirstBackOff{100};
constexpr milliseconds kLongestBackOff{5000};
constexpr milliseconds kWalPause{
    500};  // between two attempts to shorten -wal while it makes the journal full
constexpr int kClosingAttempts = 5;
constexpr int kStartAttempts = 6;  // of what a start cannot do without: some three seconds
constexpr std::uint64_t kEventOverhead = 1024;  // metadata of one event in the queue, about
constexpr std::size_t kScanLimit = 10'000;      // rows looked at under one read snapshot
constexpr std::uint64_t kUsualMeta = 8U << 10;
constexpr std::uint64_t kUnresolvedBytes = 24U << 20;  // of the events that one unresolved() gives

std::int64_t stored(std::uint64_t value) { return static_cast<std::int64_t>(value); }
std::uint64_t loaded(std::int64_t value) { return static_cast<std::uint64_t>(value); }

std::uint64_t cost_of(const Event& event) { return event.memory_size() + kEventOverhead; }

// What an event of this row takes once it is loaded, about: texts that are as long as usual do not
// count.
std::uint64_t weight_of(std::uint64_t bytes, std::string_view meta) {
  const std::uint64_t texts = journal::Codec::content_size(meta);
  return bytes + (texts > kUsualMeta ? texts : 0);
}

}  // namespace

namespace journal {

Readers::Lease::~Lease() {
  if (!reader_) return;
  reader_->connection->reset_statements();
  reader_->connection->take_error();
  pool_->idle_.with([&](auto& idle) {
    if (idle.size() < kKept) idle.push_back(std::move(reader_));
  });
}

Result<Readers::Lease> Readers::lease() {
  auto reader = idle_.with([](auto& idle) {
    std::unique_ptr<Reader> taken;
    if (!idle.empty()) {
      taken = std::move(idle.back());
      idle.pop_back();
    }
    return taken;
  });
  if (reader) return Lease(*this, std::move(reader));
  auto connection = Connection::open(file_, mode_);
  if (!connection) return connection.error();
  reader = std::make_unique<Reader>();
  reader->connection = *std::move(connection);
  Connection& db = *reader->connection;
  db.execute("PRAGMA cache_size=-2048");
  reader->events = std::make_unique<EventReader>(db, reader->codec);
  reader->content = content_columns(db);
  reader->columns = event_columns(db);
  reader->scan = Statement(
      db,
      ("SELECT " + reader->columns + " FROM events WHERE seq>?1 ORDER BY seq LIMIT ?2").c_str());
  reader->row = Statement(db, ("SELECT " + reader->columns + " FROM events WHERE seq=?1").c_str());
  reader->parked = Statement(
      db, "SELECT seq, attempts FROM exceptions WHERE sink=?1 AND state=1 AND seq>?2 ORDER BY seq");
  reader->weight = Statement(db, "SELECT bytes, meta FROM events WHERE seq=?1");
  if (auto error = db.take_error()) return *std::move(error);
  return Lease(*this, std::move(reader));
}

}  // namespace journal

// ---- the writer's thread
// -----------------------------------------------------------------------------------------

Journal::Impl::Impl(Options given, Logger& logger, const Clock& the_clock,
                    journal::OpenedDatabase opened)
    : options(std::move(given)),
      log(logger),
      clock(the_clock),
      report(std::move(opened.report)),
      shares(journal::Shares(options.max_bytes, options.user_share_percent)),
      readers(options.directory + "/journal.db", options.read_only && opened.immutable
                                                     ? journal::Connection::Mode::kImmutable
                                                     : journal::Connection::Mode::kReadOnly) {
  writer = std::make_unique<journal::Writer>(std::move(opened.connection), options, shared, clock);
}

Journal::Impl::~Impl() {
  if (!thread.joinable()) return;
  thread.request_stop();
  thread.join();
}

Result<void> Journal::Impl::start() {
  if (auto result = writer->load(); !result) return result;
  if (options.read_only) {
    writer.reset();
    return {};
  }
  update_full();
  thread = std::jthread([this](const std::stop_token& stop) noexcept { run(stop); });
  return {};
}

// A deadline by our clock, which a test may hold still, as one that a condition variable
// understands.
SteadyTime Journal::Impl::real_deadline(SteadyTime deadline) const {
  const SteadyTime now = clock.steady();
  constexpr auto kLongest = std::chrono::hours(24);
  if (deadline > now + kLongest) return std::chrono::steady_clock::now() + kLongest;
  return std::chrono::steady_clock::now() + (deadline - now);
}

void Journal::Impl::put(Entry entry) {
  if (options.read_only) return;
  queue.with_notify([&](Queue& q) {
    if (!entry.urgent) {
      if (q.lazy == 0) q.first_lazy = std::chrono::steady_clock::now();
      ++q.lazy;
    } else {
      ++q.urgent;
    }
    if (std::holds_alternative<journal::Command>(entry.what)) ++q.commands;
    q.bytes += entry.bytes;
    ++q.queued;
    q.entries.push_back(std::move(entry));
  });
}

Result<std::uint64_t> Journal::Impl::call(
    std::function<Result<std::uint64_t>(journal::Writer&)> run_it) {
  if (options.read_only) return Error{ErrorKind::kPermanent, "journal: opened for reading only"};
  // Shared, because the writer may still be inside set_value() when we have the answer.
  auto promise = std::make_shared<std::promise<Result<std::uint64_t>>>();
  auto answer = promise->get_future();
  put({.what = journal::Command{std::move(run_it), [promise](Result<std::uint64_t> result) {
                                  promise->set_value(std::move(result));
                                }}});
  return answer.get();
}

// A disk that is full for a moment must not end a start.
Result<std::uint64_t> Journal::Impl::insist(
    const std::function<Result<std::uint64_t>(journal::Writer&)>& run_it) {
  milliseconds pause = kFirstBackOff;
  for (int attempt = 1;; ++attempt) {
    auto result = call(run_it);
    if (result || attempt == kStartAttempts || options.read_only || damaged) return result;
    std::this_thread::sleep_for(pause);
    pause *= 2;
  }
}

std::vector<Entry> Journal::Impl::take(const std::stop_token& stop) {
  const auto busy = [](const Queue& q) {
    return q.urgent > 0 || q.flushing > 0 || q.lazy > kBatchEntries / 2;
  };
  const auto pressing = [](const Queue& q) {
    return q.commands > 0 || q.flushing > 0 || q.entries.size() > kBatchEntries / 2 ||
           q.bytes > kBatchBytes / 2;
  };
  const auto anything = [](const Queue& q) {
    return !q.entries.empty() || (q.flushing > 0 && q.pruned < q.queued);
  };
  std::optional<SteadyTime> until;
  if (const auto deferred = writer->prune_deferred_since()) until = *deferred + kPruneDelay;
  // Nobody tells when the last reader of -wal has gone.
  if (full && writer->wal_bytes() > 0)
    until =
        std::min(until.value_or(SteadyTime::max()), std::chrono::steady_clock::now() + kWalPause);
  if (!writer->prune_waiting() &&
      (until ? queue.wait_until(stop, *until, anything) : queue.wait(stop, anything))) {
    const SteadyTime gathered = queue.with([](const Queue& q) { return q.first_lazy + kGather; });
    queue.wait_until(stop, gathered, busy);
    queue.wait_until(stop, last_commit + kCommitPause, pressing);
  }
  std::vector<Entry> batch;
  queue.with_notify([&](Queue& q) {
    std::uint64_t bytes = 0;
    while (!q.entries.empty() && batch.size() < kBatchEntries && bytes < kBatchBytes) {
      const bool command = std::holds_alternative<journal::Command>(q.entries.front().what);
      if (command && !batch.empty()) break;  // it gets a transaction of its own
      Entry& entry = q.entries.front();
      bytes += entry.bytes;
      q.bytes -= entry.bytes;
      --(entry.urgent ? q.urgent : q.lazy);
      if (command) --q.commands;
      batch.push_back(std::move(entry));
      q.entries.pop_front();
      if (command) break;
    }
    q.writing = bytes;
    if (q.lazy > 0) q.first_lazy = std::chrono::steady_clock::now();
  });
  return batch;
}

void Journal::Impl::run(const std::stop_token& stop) noexcept {
  name_thread("journal");
  while (true) {
    std::vector<Entry> batch = take(stop);
    const bool end = batch.empty() && stop.stop_requested();
    if (end && !writer->prune_deferred_since()) return;
    const bool prune = end || queue.with([&](const Queue& q) { return must_prune(q); });
    commit(std::move(batch), prune, stop);
    if (end) return;
  }
}

// Whether what no sink needs any more is to be removed now, however little it is.
bool Journal::Impl::must_prune(const Queue& q) const {
  const auto since = writer->prune_deferred_since();
  if (!since && q.flushing == 0) return false;
  return full || (q.flushing > 0 && q.pruned < q.queued) ||
         writer->used_bytes() > options.max_bytes / 10 * 9 ||
         (since && std::chrono::steady_clock::now() >= *since + kPruneDelay);
}

// Tries until it is done: what was given to us is not given up while the process lives.
void Journal::Impl::commit(std::vector<Entry> batch, bool prune, const std::stop_token& stop) {
  milliseconds back_off = kFirstBackOff;
  const std::uint64_t count = batch.size();
  for (int closing = 0;;) {
    if (damaged) {
      const std::string why = "journal: damaged";
      for (Entry& entry : batch) {
        if (auto* command = std::get_if<journal::Command>(&entry.what))
          command->done(Error{ErrorKind::kCorrupt, why});
      }
      abandon(why);
      return;
    }
    auto result = writer->commit(batch, prune);
    if (writer->damaged()) {
      note_damage(result ? "found by a command" : result.error().message());
      if (!result) continue;
    }
    if (result) break;
    const std::string why = result.error().message();
    const bool first =
        shared.with([&](Shared& s) { return std::exchange(s.last_error, why) != why; });
    queue.with_notify([](Queue& q) { q.stuck = true; });
    if (first) {
      log.error("JOURNAL_WRITE_FAILED",
                "the journal cannot be written; nothing is lost, capture waits and the journal "
                "tries again until it can",
                {{"directory", options.directory},
                 {"reason", why},
                 {"kind", to_string(result.error().kind())}});
    }
    if (stop.stop_requested() && ++closing >= kClosingAttempts) {
      log.error("JOURNAL_CLOSE_INCOMPLETE",
                "the journal could not be written at the end; what was not durable is captured "
                "again from the spool, or "
                "delivered again",
                {{"directory", options.directory}, {"reason", why}, {"entries", count}});
      abandon("journal: closed");
      return;
    }
    // Room in -wal comes back when its pages are moved into the database.
    writer->checkpoint(true);
    if (stop.stop_requested()) {
      queue.wait_until(std::stop_token{}, std::chrono::steady_clock::now() + kFirstBackOff,
                       [](const Queue&) { return false; });
    } else {
      queue.wait_until(stop, std::chrono::steady_clock::now() + back_off,
                       [](const Queue&) { return false; });
      back_off = std::min(back_off * 2, kLongestBackOff);
    }
  }
  const bool again =
      shared.with([](Shared& s) { return !std::exchange(s.last_error, std::string{}).empty(); });
  if (again)
    log.info("JOURNAL_WRITES_AGAIN", "the journal can be written again",
             {{"directory", options.directory}});
  for (auto& callback : writer->take_callbacks()) callback.durable(callback.fresh);
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
  queue.with_notify([&](Queue& q) {
    q.done += count;
    q.writing = 0;
    if (!writer->prune_deferred_since()) q.pruned = q.done;
    q.stuck = false;
  });
  // -wal counts, so it is the first to be made room of.
  writer->checkpoint(writer->used_bytes() >= has_room_below());
  update_full();
  if (!full) {
    call_for_room(kForWant | (writer->used_bytes() < options.max_bytes / 5 * 4 ? kForSize : 0U) |
                  (writer->uncharged() ? kForShare : 0U));
  }
  last_commit = std::chrono::steady_clock::now();
}

std::uint64_t Journal::Impl::has_room_below() const { return options.max_bytes / 100 * 95; }

void Journal::Impl::abandon(const std::string& why) {
  queue.with_notify([&](Queue& q) {
    for (Entry& entry : q.entries) {
      if (auto* command = std::get_if<journal::Command>(&entry.what))
        command->done(Error{ErrorKind::kExhausted, why});
    }
    q.entries.clear();
    q.urgent = q.lazy = q.bytes = q.writing = q.commands = 0;
    q.broken = true;
  });
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

// What is queued is written even if the journal is full by then, so it must be small beside the
// limit.
std::uint64_t Journal::Impl::queue_limit() const {
  return std::min(kQueueBytes, options.max_bytes / 4);
}

void Journal::Impl::update_full() {
  const std::uint64_t used = writer->used_bytes();
  if (!full && used >= options.max_bytes) {
    full = true;
    log.warning(
        "JOURNAL_FULL",
        "the journal has reached its limit; capture waits until sinks have taken events, and new "
        "jobs wait in the spool for as "
        "long as the scheduler keeps them; mend the sinks that `scriptorium status` shows behind, "
        "or raise "
        "journal_max_bytes and restart",
        {{"bytes", used}, {"limit_bytes", options.max_bytes}, {"wal_bytes", writer->wal_bytes()}});
    queue.with_notify([](Queue&) {});
  } else if (full && used < has_room_below()) {
    full = false;
    log.info("JOURNAL_HAS_ROOM", "the journal has room again; capture goes on",
             {{"bytes", used}, {"limit_bytes", options.max_bytes}});
    queue.with_notify([](Queue&) {});
  }
}

bool Journal::Impl::backlogged() {
  return queue.with(
      [](const Queue& q) { return q.lazy > kLazyLimit || (q.stuck && q.lazy > kLazyLimit / 10); });
}

// ---- open and close
// ----------------------------------------------------------------------------------------------

Journal::Journal(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Journal::~Journal() = default;

Result<std::unique_ptr<Journal>> Journal::open(const Options& options, Logger& log,
                                               const Clock& clock) {
  auto opened = journal::open_database(options, log, clock);
  if (!opened) return opened.error();
  auto impl = std::make_unique<Impl>(options, log, clock, *std::move(opened));
  if (auto result = impl->start(); !result) return result.error();
  return std::unique_ptr<Journal>(new Journal(std::move(impl)));
}

const Journal::OpenReport& Journal::open_report() const noexcept { return impl_->report; }

Result<void> Journal::verify() const {
  auto connection = journal::Connection::open(impl_->options.directory + "/journal.db",
                                              journal::Connection::Mode::kReadOnly);
  if (!connection) return connection.error();
  const std::string damage = journal::verify(**connection, true);
  if (!damage.empty()) return Error{ErrorKind::kCorrupt, "journal: " + damage};
  return {};
}

// ---- sources
// -----------------------------------------------------------------------------------------------------

bool Journal::Impl::enqueue(Queue& q, Append& item, std::uint64_t cost) const {
  if (full || (q.bytes + cost > queue_limit() && q.bytes > 0)) return false;
  ++q.urgent;
  ++q.queued;
  q.bytes += cost;
  q.entries.push_back({.what = std::move(item), .bytes = cost});
  return true;
}

bool Journal::append(Append item, const std::stop_token& stop) {
  if (impl_->options.read_only || !item.event) return false;
  Impl& impl = *impl_;
  const std::uint64_t cost = cost_of(*item.event);
  bool taken = false;
  const auto try_it = [&](Queue& q) { return taken = taken || impl.enqueue(q, item, cost); };
  if (stop.stop_requested()) return false;
  impl.queue.with_notify(try_it);
  if (!taken) {
    impl.queue.wait(stop, try_it);
    if (taken) impl.queue.with_notify([](Queue&) {});
  }
  return taken;
}

Journal::Admission Journal::offer(Append& item, const std::stop_token& stop) {
  if (impl_->options.read_only || !item.event) return Admission::kFull;
  const std::uint64_t cost = cost_of(*item.event);
  const std::string source = item.source;
  const std::string event_id = item.event->id;
  if (const Admission admission = impl_->admit(item); admission != Admission::kTaken)
    return admission;
  bool taken = impl_->queue.with_notify([&](Queue& q) { return impl_->enqueue(q, item, cost); });
  if (!taken) {
    // Noted before the next attempt: room that comes right after that is then called for.
    impl_->note_refused(source, Impl::kForWant);
    impl_->queue.wait(stop, [&](Queue& q) {
      taken = taken || impl_->enqueue(q, item, cost);
      return taken || impl_->full || q.stuck || q.broken;
    });
    if (taken) impl_->queue.with_notify([](Queue&) {});
  }
  if (!taken) return Admission::kFull;
  impl_->shares.with(
      [&](journal::Shares& shares) { shares.taken(source, event_id, impl_->clock.steady()); });
  impl_->count_questions(source);
  return Admission::kTaken;
}

Journal::Admission Journal::Impl::admit(const Append& item) {
  const auto decide = [&] {
    return with_held([&](journal::Shares& all, const journal::Shares::Held& held) {
      return all.decide(held, item.source, *item.event, item.mark, item.resolve_first,
                        clock.steady());
    });
  };
  Admission admission = decide();
  if (admission == Admission::kTaken) return admission;
  // Noted before the decision that counts: what changes right after it is then called for.
  note_refused(item.source, kForSize | kForShare);
  admission = decide();
  if (admission == Admission::kOverShare) count_questions(item.source);
  return admission;
}

bool Journal::refuses(const std::string& source, const CaptureMark& mark) const {
  return impl_->with_held([&](journal::Shares& all, const journal::Shares::Held& held) {
    return all.refuses(held, source, mark, impl_->clock.steady());
  });
}

void Journal::Impl::count_questions(const std::string& source) {
  const std::size_t count =
      shares.with([&](const journal::Shares& all) { return all.question_count(source); });
  if (shared.with([&](const Shared& s) {
        const auto it = s.questions.find(source);
        return (it == s.questions.end() ? 0 : it->second) == count;
      })) {
    return;
  }
  shared.with_notify([&](Shared& s) { s.questions[source] = count; });
}

std::vector<Journal::Unresolved> Journal::owner_questions(const std::string& source,
                                                          std::size_t limit) const {
  return impl_->shares.with([&](const journal::Shares& all) {
    return all.questions(source, limit, impl_->clock.steady());
  });
}

void Journal::answer_owner(const std::string& source, const std::string& event_id,
                           const User& user) {
  impl_->shares.with([&](journal::Shares& all) { all.answer(source, event_id, user); });
  impl_->count_questions(source);
  impl_->call_for_room(Impl::kForShare);
}

void Journal::Impl::note_refused(const std::string& source, unsigned why) {
  room_calls.with([&](auto& calls) {
    if (const auto it = calls.find(source); it != calls.end()) it->second.refused |= why;
  });
}

void Journal::on_room(const std::string& source, std::function<void()> call) {
  impl_->room_calls.with([&](auto& calls) {
    if (call) {
      calls[source].call = std::move(call);
    } else {
      calls.erase(source);
    }
  });
}

// A call is short and takes no lock of ours, so it may be made under this one: then on_room() can
// take it away for good.
void Journal::Impl::call_for_room(unsigned what) {
  room_calls.with([&](auto& calls) {
    for (auto& [source, room] : calls) {
      if ((room.refused & what) == 0) continue;
      room.refused &= ~what;
      room.call();
    }
  });
}

Result<void> Journal::append_all(const std::string& source,
                                 std::vector<std::shared_ptr<const Event>> events,
                                 std::optional<std::string> position, const std::stop_token& stop) {
  Impl& impl = *impl_;
  if (impl.options.read_only)
    return Error{ErrorKind::kPermanent, "journal: opened for reading only"};
  std::uint64_t cost = kEventOverhead;
  for (const auto& event : events) cost += cost_of(*event);
  std::uint64_t number = 0;
  Entry entry{.what = journal::AppendMany{source, std::move(events), std::move(position)},
              .bytes = cost};
  const auto try_it = [&](Queue& q) {
    if (number > 0) return true;
    if (impl.full || (q.bytes + cost > impl.queue_limit() && q.bytes > 0)) return false;
    ++q.urgent;
    q.bytes += cost;
    number = ++q.queued;
    q.entries.push_back(std::move(entry));
    return true;
  };
  if (!stop.stop_requested()) {
    impl.queue.with_notify(try_it);
    if (number == 0) impl.queue.wait(stop, try_it);
  }
  if (number == 0)
    return Error{ErrorKind::kTransient,
                 "journal: stopped before the events of " + source + " were taken"};
  impl.queue.with_notify([](Queue&) {});
  if (!impl.queue.wait(stop, [&](const Queue& q) { return q.done >= number; })) {
    return Error{ErrorKind::kTransient,
                 "journal: stopped before the events of " + source + " were durable"};
  }
  return {};
}

std::optional<std::string> Journal::position(const std::string& source) const {
  auto reader = impl_->readers.lease();
  if (!reader) return std::nullopt;
  journal::Statement statement(*(*reader)->connection,
                               "SELECT position FROM positions WHERE source=?1");
  if (!statement.bind_text(source).step()) return std::nullopt;
  return std::string(statement.text(0));
}

std::vector<CaptureMark> Journal::marks(const std::string& source) const {
  std::vector<CaptureMark> result;
  auto reader = impl_->readers.lease();
  if (!reader) return result;
  journal::Connection& db = *(*reader)->connection;
  const std::string columns = journal::mark_columns(db);
  journal::Statement statement(
      db, ("SELECT entry, " + columns + " FROM marks WHERE source=?1 ORDER BY entry").c_str());
  statement.bind_text(source);
  while (statement.step()) result.push_back(journal::mark_of_row(statement));
  return result;
}

void Journal::set_mark(const std::string& source, CaptureMark mark) {
  impl_->put({.what = journal::PutMark{source, std::move(mark)}, .urgent = false});
}

void Journal::forget_marks(const std::string& source, std::vector<std::string> entries) {
  if (!entries.empty())
    impl_->put({.what = journal::ForgetMarks{source, std::move(entries)}, .urgent = false});
}

// ---- owner resolution
// --------------------------------------------------------------------------------------------

std::vector<Journal::Unresolved> Journal::unresolved(const std::string& source, std::uint64_t after,
                                                     std::size_t limit) const {
  std::vector<Unresolved> result;
  const bool any = impl_->shared.with([&](Shared& s) {
    const auto it = s.sources.find(source);
    return it != s.sources.end() && it->second.unresolved > 0 && it->second.last_ticket > after;
  });
  if (!any || limit == 0) return result;
  auto reader = impl_->readers.lease();
  if (!reader) return result;
  journal::Connection& db = *(*reader)->connection;
  journal::Statement statement(db,
                               "SELECT ticket, id, entry FROM unresolved WHERE source=?1 AND "
                               "ticket>?2 ORDER BY ticket LIMIT ?3");
  const std::string columns = journal::mark_columns(db);
  journal::Statement mark(
      db, ("SELECT entry, " + columns + " FROM marks WHERE source=?1 AND entry=?2").c_str());
  statement.bind_text(source).bind(stored(after)).bind(static_cast<std::int64_t>(limit));
  while (statement.step()) {
    Unresolved item;
    item.ticket = loaded(statement.integer(0));
    if (!statement.is_null(2) && mark.bind_text(source).bind_text(statement.text(2)).step()) {
      // A later entry of the same name has the mark now.
      if (CaptureMark found = journal::mark_of_row(mark); found.event_id == statement.id(1))
        item.mark = std::move(found);
    }
    mark.reset();
    result.push_back(std::move(item));
  }
  // While commits fail, what was resolved waits in the queue: to resolve it again would only make
  // that longer.
  impl_->resolving.with([&](const auto& tickets) {
    std::erase_if(result, [&](const Unresolved& item) { return tickets.contains(item.ticket); });
  });
  journal::Statement row(
      db, ("SELECT " + (*reader)->content + " FROM unresolved WHERE ticket=?1").c_str());
  std::uint64_t bytes = 0;
  for (Unresolved& item : result) {
    if (bytes > kUnresolvedBytes) break;
    if (!row.bind(stored(item.ticket)).step()) {
      row.reset();
      if (!db.ok()) break;
      continue;  // resolved meanwhile
    }
    auto event = (*reader)->events->load_for_owner(row);
    row.reset();
    if (event) {
      bytes += (*event)->memory_size();
      item.event = *std::move(event);
    } else if (event.error().kind() == ErrorKind::kCorrupt) {
      // Nobody can resolve what cannot be read: each sink gets it as a dead letter instead.
      impl_->put({.what = journal::PublishDamaged{item.ticket}});
    }
  }
  if (auto error = db.take_error(); error && db.damaged()) impl_->note_damage(error->message());
  std::erase_if(result, [](const Unresolved& item) { return !item.event; });
  return result;
}

bool Journal::wait_unresolved(const std::string& source, std::uint64_t after,
                              const std::stop_token& stop, SteadyTime deadline) const {
  return impl_->shared.wait_until(stop, impl_->real_deadline(deadline), [&](const Shared& s) {
    if (const auto asked = s.questions.find(source);
        asked != s.questions.end() && asked->second > 0)
      return true;
    const auto it = s.sources.find(source);
    return it != s.sources.end() && it->second.unresolved > 0 && it->second.last_ticket > after;
  });
}

void Journal::resolved(std::vector<Resolved> events) {
  if (events.empty()) return;
  std::uint64_t cost = 0;
  impl_->resolving.with([&](auto& tickets) {
    for (const Resolved& item : events) {
      cost += item.event ? cost_of(*item.event) : 0;
      tickets.insert(item.ticket);
    }
  });
  impl_->put({.what = journal::ResolveMany{std::move(events)}, .bytes = cost});
}

std::uint64_t Journal::unresolved_count(const std::string& source) const {
  return impl_->shared.with([&](Shared& s) {
    const auto it = s.sources.find(source);
    return it == s.sources.end() ? 0 : it->second.unresolved;
  });
}

// ---- sinks
// -------------------------------------------------------------------------------------------------------

Result<Journal::SinkId> Journal::register_sink(const std::string& name,
                                               std::vector<std::string> kinds) {
  auto id = impl_->insist([name, kinds = std::move(kinds)](journal::Writer& writer) {
    return writer.register_sink(name, kinds);
  });
  if (!id) return id.error();
  return static_cast<SinkId>(*id);
}

std::vector<std::string> Journal::unregistered_sinks() const {
  std::vector<std::string> names;
  impl_->shared.with([&](Shared& s) {
    for (const auto& [id, row] : s.sinks) {
      if (!row.registered) names.push_back(row.name);
    }
  });
  return names;
}

Result<void> Journal::remove_sink(const std::string& name) {
  auto result = impl_->call([name](journal::Writer& writer) { return writer.remove_sink(name); });
  if (!result) return result.error();
  return {};
}

Result<void> Journal::retire_other_sinks(std::vector<std::string> configured) {
  auto result = impl_->insist([configured = std::move(configured)](journal::Writer& writer) {
    return writer.retire_other_sinks(configured);
  });
  if (!result) return result.error();
  return {};
}

Result<std::shared_ptr<const Event>> Journal::Impl::load(journal::Readers::Lease& reader,
                                                         std::uint64_t seq) {
  if (auto event = shared.with([&](Shared& s) { return s.events.find(seq); })) return event;
  const bool there = reader->row.bind(stored(seq)).step();
  if (!there) {
    if (auto error = reader->connection->take_error()) return *std::move(error);
    return Error{ErrorKind::kVanished, "journal: event " + std::to_string(seq) + " is not there"};
  }
  if (journal::EventReader::is_in_archive(reader->row)) {
    auto locator = reader->events->locator(reader->row);
    reader->row.reset();
    if (!locator) return locator.error();
    return fetch(*locator);
  }
  auto event = reader->events->load(reader->row);
  reader->row.reset();
  return event;
}

Result<std::shared_ptr<const Event>> Journal::Impl::fetch(const Event& locator) const {
  const auto ask = archive.with([](const auto& a) { return a; });
  if (!ask) return Error{ErrorKind::kTransient, "no archive is configured that holds what waits"};
  auto event = (*ask)(locator);
  if (event && (*event)->id != locator.id) event = Error{ErrorKind::kCorrupt, "another event"};
  if (event) return event;
  const ErrorKind kind = event.error().kind();
  if (kind != ErrorKind::kVanished && kind != ErrorKind::kCorrupt)
    return event.error().with_context("archive");
  return Error{ErrorKind::kPermanent, "gone from the archive: " + event.error().message()};
}

Result<std::optional<Journal::Item>> Journal::Impl::item(journal::Readers::Lease& reader,
                                                         SinkId sink, std::uint64_t seq,
                                                         std::uint32_t attempts) {
  auto event = load(reader, seq);
  if (!event && event.error().kind() == ErrorKind::kVanished) return std::optional<Item>();
  auto item = checked(sink, seq, attempts, std::move(event));
  if (!item) return item.error();
  return std::optional<Item>(*std::move(item));
}

Result<Journal::Item> Journal::Impl::checked(SinkId sink, std::uint64_t seq, std::uint32_t attempts,
                                             Result<std::shared_ptr<const Event>> event) {
  if (event) return Item{seq, *std::move(event), attempts};
  const bool gone = event.error().kind() == ErrorKind::kPermanent;
  if (event.error().kind() != ErrorKind::kCorrupt && !gone) return event.error();
  const Timestamp now = clock.now();
  const std::string reason = (gone ? "" : "journal: ") + event.error().message();
  const std::string name = shared.with(
      [&](Shared& s) { return s.sinks.contains(sink) ? s.sinks[sink].name : std::string{}; });
  if (gone) {
    log.error("REFILL_IMPOSSIBLE",
              "an event that waited for a sink can no longer be fetched from the archive; it "
              "becomes a dead letter of this sink",
              {{"sink", name}, {"sequence", seq}, {"reason", reason}});
  } else {
    log.error("JOURNAL_EVENT_DAMAGED",
              "an event is damaged in the journal; it becomes a dead letter of this sink",
              {{"sink", name}, {"sequence", seq}, {"reason", reason}});
  }
  std::vector<Settle> dead(1);
  dead[0] = {.sequence = seq,
             .outcome = Outcome::kRejected,
             .reason = reason,
             .attempts = attempts,
             .first_attempt = now,
             .last_attempt = now};
  put({.what = journal::SettleMany{sink, std::move(dead), 0}, .urgent = false});
  return Item{seq, nullptr, attempts};
}

Result<std::vector<Journal::Item>> Journal::read(SinkId sink, std::uint64_t after,
                                                 std::size_t max_events,
                                                 std::uint64_t max_bytes) const {
  Impl& impl = *impl_;
  std::vector<Item> items;
  if (max_events == 0 || impl.backlogged()) return items;
  std::uint64_t bytes = 0;
  const auto room = [&](std::uint64_t more) {
    return items.empty() || (items.size() < max_events && bytes + more <= max_bytes);
  };
  std::uint64_t last_seq = 0;
  bool done = false;
  std::optional<SinkRow> row = impl.shared.with([&](Shared& s) -> std::optional<SinkRow> {
    const auto it = s.sinks.find(sink);
    if (it == s.sinks.end()) return std::nullopt;
    SinkRow& known = it->second;
    after = std::max(after, known.cursor);
    last_seq = s.last_seq;
    if (after >= known.last_wanted) {
      done = true;
    } else if (s.events.covers(after)) {
      done = true;
      for (auto at = s.events.after(after); at != s.events.end(); ++at) {
        if (!at->event) {
          done = false;  // one that must be looked at on disk
          break;
        }
        if (!known.wants(at->event->kind, at->number, 0) || known.ahead.contains(at->number))
          continue;
        const std::uint64_t memory = at->event->memory_size(),
                            usual = at->event->bytes_size() + kUsualMeta;
        const std::uint64_t size = memory > usual ? memory : at->event->bytes_size();
        if (!room(size)) break;
        bytes += size;
        items.push_back({at->number, at->event, 0});
        if (items.size() >= max_events) break;
      }
      if (!done && !items.empty()) done = true;
    }
    if (done && items.empty()) {
      known.scanned_from = after;
      known.scanned_to = last_seq;
    }
    return known;
  });
  if (!row) return Error{ErrorKind::kPermanent, "journal: no such sink"};
  if (done) return items;

  auto reader = impl.readers.lease();
  if (!reader) return reader.error();
  journal::Connection& db = *(*reader)->connection;
  journal::Statement& scan = (*reader)->scan;
  std::vector<std::pair<std::size_t, Event>> to_fetch;  // place in `items`, locator
  std::uint64_t at = after;
  bool more = true;
  const std::size_t chunk =
      std::min<std::size_t>(std::max<std::size_t>(max_events, 64), kScanLimit);
  while (more && items.size() < max_events) {
    std::size_t rows = 0;
    scan.bind(stored(at)).bind(static_cast<std::int64_t>(chunk));
    while (more && scan.step()) {
      ++rows;
      at = loaded(scan.integer(3));
      if (!row->wants(scan.text(4), at, static_cast<SinkId>(scan.integer(6))) ||
          row->ahead.contains(at))
        continue;
      const std::uint64_t size = weight_of(loaded(scan.integer(5)), scan.text(0));
      if (!room(size)) {
        more = false;
        break;
      }
      Result<std::shared_ptr<const Event>> event =
          impl.shared.with([&](Shared& s) { return s.events.find(at); });
      if (*event == nullptr && journal::EventReader::is_in_archive(scan)) {
        if (auto locator = (*reader)->events->locator(scan)) {
          to_fetch.emplace_back(items.size(), *std::move(locator));
        } else {
          event = locator.error();
        }
      } else if (*event == nullptr) {
        event = (*reader)->events->load(scan);
      }
      auto loaded_item = impl.checked(sink, at, 0, std::move(event));
      if (!loaded_item) {
        scan.reset();
        if (!items.empty()) return items;
        return loaded_item.error();
      }
      bytes += size;
      items.push_back(*std::move(loaded_item));
      more = items.size() < max_events;
    }
    scan.reset();
    if (auto error = db.take_error()) {
      if (error->kind() == ErrorKind::kCorrupt) impl.note_damage(error->message());
      return *std::move(error);
    }
    more = more && rows == chunk;
  }
  // No snapshot is held any more: an archive may take its time.
  for (auto& [index, locator] : to_fetch) {
    Item& item = items[index];
    auto fetched = impl.checked(sink, item.sequence, item.attempts, impl.fetch(locator));
    if (!fetched) {
      items.resize(index);
      if (!items.empty()) return items;
      return fetched.error();
    }
    item = *std::move(fetched);
  }
  if (items.empty()) {
    impl.shared.with([&](Shared& s) {
      const auto it = s.sinks.find(sink);
      if (it == s.sinks.end() || it->second.kinds != row->kinds) return;
      it->second.scanned_from = after;
      it->second.scanned_to = last_seq;
    });
  }
  return items;
}

Result<std::vector<Journal::Item>> Journal::parked(
    SinkId sink, std::size_t limit, std::uint64_t after, std::uint64_t max_bytes,
    const std::function<bool(std::uint64_t)>& skip) const {
  std::vector<Item> items;
  auto reader = impl_->readers.lease();
  if (!reader) return reader.error();
  std::vector<std::pair<std::uint64_t, std::uint32_t>> rows;
  journal::Statement& parked = (*reader)->parked;
  parked.bind(sink).bind(stored(after));
  while (rows.size() < limit && parked.step()) {
    const std::uint64_t seq = loaded(parked.integer(0));
    if (!skip || !skip(seq)) rows.emplace_back(seq, static_cast<std::uint32_t>(parked.integer(1)));
  }
  parked.reset();
  if (auto error = (*reader)->connection->take_error()) return *std::move(error);
  std::uint64_t bytes = 0;
  for (const auto& [seq, attempts] : rows) {
    if (journal::Statement& weight = (*reader)->weight; weight.bind(stored(seq)).step()) {
      bytes += weight_of(loaded(weight.integer(0)), weight.text(1));
    }
    (*reader)->weight.reset();
    if (bytes > max_bytes && !items.empty()) break;
    auto item = impl_->item(*reader, sink, seq, attempts);
    if (!item) {
      if (!items.empty()) return items;
      return item.error();
    }
    if (*item) items.push_back(**std::move(item));
  }
  return items;
}

std::uint64_t Journal::parked_generation(SinkId sink) const {
  return impl_->shared.with([&](Shared& s) {
    const auto it = s.sinks.find(sink);
    return it == s.sinks.end() ? 0 : it->second.generation;
  });
}

std::uint64_t Journal::cursor(SinkId sink) const {
  return impl_->shared.with([&](Shared& s) {
    const auto it = s.sinks.find(sink);
    return it == s.sinks.end() ? 0 : it->second.cursor;
  });
}

bool Journal::wait(SinkId sink, std::uint64_t after, std::uint64_t parked_generation,
                   const std::stop_token& stop, SteadyTime deadline) const {
  Impl& impl = *impl_;
  const SteadyTime until = impl.real_deadline(deadline);
  const bool ready = impl.shared.wait_until(stop, until, [&](const Shared& s) {
    const auto it = s.sinks.find(sink);
    if (it == s.sinks.end()) return false;
    const SinkRow& row = it->second;
    if (row.generation != parked_generation) return true;
    const std::uint64_t from = std::max(after, row.cursor);
    return row.last_wanted > (from >= row.scanned_from ? std::max(from, row.scanned_to) : from);
  });
  if (!ready || !impl.backlogged()) return ready;
  // The disk does not take settlements: more deliveries would only pile up.
  return impl.queue.wait_until(stop, until, [](const Queue& q) {
    return q.lazy <= kLazyLimit && (!q.stuck || q.lazy <= kLazyLimit / 10);
  });
}

void Journal::settle(SinkId sink, std::vector<Settle> settlements, std::uint64_t cursor) {
  impl_->put({.what = journal::SettleMany{sink, std::move(settlements), cursor}, .urgent = false});
}

// ---- archives
// ----------------------------------------------------------------------------------------------------

void Journal::set_archive(Archive archive) {
  auto shared = archive ? std::make_shared<const Archive>(std::move(archive)) : nullptr;
  impl_->archive.with([&](auto& a) { a = std::move(shared); });
}

Result<std::vector<Journal::Releasable>> Journal::releasable(const std::string& archive,
                                                             std::uint64_t& after,
                                                             std::size_t limit) const {
  std::vector<Releasable> result;
  std::map<SinkId, SinkRow> sinks = impl_->shared.with([](const Shared& s) { return s.sinks; });
  const auto source = std::find_if(sinks.begin(), sinks.end(), [&](const auto& s) {
    return s.second.name == archive && s.second.registered;
  });
  if (source == sinks.end()) return result;
  const SinkRow holder = source->second;
  sinks.erase(source);
  // Nothing that somebody needs and that the archive may have lies outside of this.
  std::uint64_t low = holder.cursor;
  for (const auto& [id, row] : sinks) low = std::min(low, row.parked > 0 ? 0 : row.cursor);
  std::uint64_t high = holder.cursor;
  if (!holder.ahead.empty()) high = std::max(high, holder.ahead.rbegin()->first);
  after = std::max(after, low);
  auto reader = impl_->readers.lease();
  if (!reader) return reader.error();
  journal::Connection& db = *(*reader)->connection;
  journal::Statement open_state(db,
                                "SELECT 1 FROM exceptions WHERE sink=?1 AND seq=?2 AND state<>3");
  journal::Statement parked(db, "SELECT 1 FROM exceptions WHERE seq=?1 AND state=1");
  journal::Statement& scan = (*reader)->scan;
  scan.bind(stored(after)).bind(static_cast<std::int64_t>(kScanLimit));
  while (result.size() < limit && scan.step()) {
    const std::uint64_t seq = loaded(scan.integer(3));
    if (seq > high) break;
    after = seq;
    const std::string_view kind = scan.text(4);
    const auto target = static_cast<SinkId>(scan.integer(6));
    if (journal::EventReader::is_in_archive(scan) || !holder.wants(kind, seq, target)) continue;
    bool acknowledged = seq <= holder.cursor;
    if (acknowledged) {
      acknowledged = !open_state.bind(holder.id).bind(stored(seq)).step();
      open_state.reset();
    } else if (const auto ahead = holder.ahead.find(seq); ahead != holder.ahead.end()) {
      acknowledged = ahead->second.state == journal::State::kSettled;
    }
    if (!acknowledged) continue;
    bool needed = std::any_of(sinks.begin(), sinks.end(), [&](const auto& s) {
      return seq > s.second.cursor && s.second.wants(kind, seq, target) &&
             !s.second.ahead.contains(seq);
    });
    if (!needed) {
      needed = parked.bind(stored(seq)).step();
      parked.reset();
    }
    if (!needed) continue;
    auto event = (*reader)->events->without_bytes(scan);
    if (!event) continue;  // damaged: who reads it makes it a dead letter
    result.push_back(
        {seq, std::make_shared<const Event>(*std::move(event)), loaded(scan.integer(5))});
  }
  scan.reset();
  if (auto error = db.take_error()) return *std::move(error);
  return result;
}

Result<void> Journal::release(const std::vector<Releasable>& events) {
  if (impl_->options.read_only)
    return Error{ErrorKind::kPermanent, "journal: opened for reading only"};
  journal::ReleaseMany many;
  for (const Releasable& item : events)
    many.items.push_back({item.sequence, journal::encode_locator(*item.event)});
  if (many.items.empty()) return {};
  impl_->put({.what = std::move(many)});
  const std::uint64_t upto = impl_->queue.with([](const Queue& q) { return q.queued; });
  if (!impl_->queue.wait_until(std::stop_token{},
                               std::chrono::steady_clock::now() + std::chrono::seconds(10),
                               [&](const Queue& q) { return q.done >= upto; })) {
    return Error{ErrorKind::kTransient, "journal: not written yet"};
  }
  return {};
}

std::uint64_t Journal::used_bytes() const {
  return impl_->shared.with([](const Shared& s) { return s.used_bytes; });
}

std::vector<Journal::Fill> Journal::fills() const {
  std::vector<Fill> fills;
  auto reader = impl_->readers.lease();
  if (!reader) return fills;
  journal::Connection& db = *(*reader)->connection;
  if (db.integer("SELECT count(*) FROM sqlite_schema WHERE name='fills'").value_or(0) == 0)
    return fills;
  journal::Statement statement(db,
                               "SELECT sink, archive, since, position, sent, present, skipped, "
                               "total, state FROM fills ORDER BY sink");
  while (statement.step()) {
    fills.push_back({.sink = std::string(statement.text(0)),
                     .archive = std::string(statement.text(1)),
                     .since = {statement.integer(2)},
                     .position = std::string(statement.text(3)),
                     .sent = loaded(statement.integer(4)),
                     .present = loaded(statement.integer(5)),
                     .skipped = loaded(statement.integer(6)),
                     .total = loaded(statement.integer(7)),
                     .state = static_cast<Fill::State>(statement.integer(8))});
  }
  db.take_error();
  return fills;
}

Result<void> Journal::set_fill(const Fill& fill) {
  auto result = impl_->call([fill](journal::Writer& writer) { return writer.set_fill(fill); });
  if (!result) return result.error();
  return {};
}

Result<void> Journal::fill(const Fill& progress, std::vector<std::shared_ptr<const Event>> events) {
  auto result = impl_->call([progress, events = std::move(events)](journal::Writer& writer) {
    return writer.fill(progress, events);
  });
  if (!result) return result.error();
  return {};
}

bool Journal::wait_above(std::uint64_t bytes, const std::stop_token& stop) const {
  return impl_->shared.wait(stop, [&](const Shared& s) { return s.used_bytes > bytes; });
}

// ---- dead letters
// ------------------------------------------------------------------------------------------------

Result<std::vector<Journal::DeadLetter>> Journal::dead_letters(
    const std::optional<std::string>& sink, std::size_t limit) const {
  std::vector<DeadLetter> letters;
  auto reader = impl_->readers.lease();
  if (!reader) return reader.error();
  journal::Connection& db = *(*reader)->connection;
  journal::Statement statement(
      db,
      "SELECT s.name, x.seq, x.reason, x.attempts, x.first_attempt, x.last_attempt, e.id, e.kind, "
      "e.job_id, e.bytes, e.meta "
      "FROM exceptions x JOIN sinks s ON s.id=x.sink LEFT JOIN events e ON e.seq=x.seq "
      "WHERE x.state=2 AND (?1 IS NULL OR s.name=?1) ORDER BY s.name, x.seq LIMIT ?2");
  (sink ? statement.bind_text(*sink) : statement.bind_null())
      .bind(static_cast<std::int64_t>(
          std::min<std::size_t>(limit, std::numeric_limits<std::int64_t>::max())));
  while (statement.step()) {
    DeadLetter& letter = letters.emplace_back();
    letter.sink = statement.text(0);
    letter.sequence = loaded(statement.integer(1));
    letter.reason = statement.text(2);
    letter.attempts = static_cast<std::uint32_t>(statement.integer(3));
    letter.first_attempt = {statement.integer(4)};
    letter.last_attempt = {statement.integer(5)};
    letter.event_id = statement.id(6);
    letter.kind = statement.text(7);
    letter.job_id = statement.text(8);
    letter.bytes = loaded(statement.integer(9));
    auto meta = (*reader)->codec.decompress(statement.text(10));
    if (!meta) continue;  // damaged: that may be the very reason why it is here
    Event locator;
    if (auto event = event_from_json(*meta)) {
      letter.cluster = event->cluster;
    } else if (journal::decode_locator(*meta, locator)) {
      letter.cluster = locator.cluster;
    }
  }
  if (auto error = db.take_error()) return *std::move(error);
  return letters;
}

Result<std::uint64_t> Journal::retry_dead(const std::optional<std::string>& sink,
                                          const std::string& event_id) {
  return impl_->call([sink, event_id](journal::Writer& writer) {
    return writer.change_dead(sink, event_id, true);
  });
}

Result<std::uint64_t> Journal::discard_dead(const std::optional<std::string>& sink,
                                            const std::string& event_id) {
  return impl_->call([sink, event_id](journal::Writer& writer) {
    return writer.change_dead(sink, event_id, false);
  });
}

// ---- looking
// -----------------------------------------------------------------------------------------------------

Result<std::vector<std::shared_ptr<const Event>>> Journal::find(std::string_view job_id,
                                                                std::size_t limit) const {
  std::vector<std::shared_ptr<const Event>> events;
  auto reader = impl_->readers.lease();
  if (!reader) return reader.error();
  journal::Connection& db = *(*reader)->connection;
  std::vector<Event> locators;
  for (const std::string& query :
       {(*reader)->columns + " FROM events WHERE job_id=?1 ORDER BY seq LIMIT ?2",
        (*reader)->content + " FROM unresolved WHERE job_id=?1 ORDER BY ticket LIMIT ?2"}) {
    if (events.size() >= limit) break;
    journal::Statement statement(db, ("SELECT " + query).c_str());
    statement.bind_text(job_id).bind(
        static_cast<std::int64_t>(std::min<std::size_t>(limit - events.size(), kScanLimit)));
    while (statement.step()) {
      if (journal::EventReader::is_in_archive(statement)) {
        if (auto locator = (*reader)->events->locator(statement))
          locators.push_back(*std::move(locator));
        continue;
      }
      auto event = (*reader)->events->load(statement);
      if (event) events.push_back(*std::move(event));
    }
  }
  if (auto error = db.take_error()) return *std::move(error);
  for (const Event& locator : locators) {
    auto event = impl_->fetch(locator);
    if (event && events.size() < limit) events.push_back(*std::move(event));
  }
  return events;
}

Result<std::shared_ptr<const Event>> Journal::event(const std::string& event_id) const {
  auto reader = impl_->readers.lease();
  if (!reader) return reader.error();
  journal::Connection& db = *(*reader)->connection;
  // A cut id names the range of ids that begin so.
  const bool cut = event_id.size() >= 8 && event_id.size() < 64 &&
                   event_id.find_first_not_of("0123456789abcdef") == std::string::npos;
  std::optional<Error> error;
  for (const char* table : {"events", "unresolved"}) {
    const std::string& columns =
        std::string_view(table) == "events" ? (*reader)->columns : (*reader)->content;
    const std::string sql = "SELECT " + columns + " FROM " + table +
                            (cut ? " WHERE id BETWEEN ?1 AND ?2 OR id=?3" : " WHERE id=?1") +
                            " LIMIT 2";
    journal::Statement statement(db, sql.c_str());
    if (cut) {
      statement.bind_id(event_id + std::string(64 - event_id.size(), '0'))
          .bind_id(event_id + std::string(64 - event_id.size(), 'f'));
      statement.bind_text(event_id);
    } else {
      statement.bind_id(event_id);
    }
    if (!statement.step()) continue;
    const bool in_archive = journal::EventReader::is_in_archive(statement);
    std::optional<Event> locator;
    auto event = (*reader)->events->load(statement);
    if (in_archive) {
      auto found = (*reader)->events->locator(statement);
      if (!found) return found.error().with_context("journal");
      locator = *std::move(found);
    } else if (!event) {
      return event.error().with_context("journal");
    }
    if (statement.step())
      return Error{ErrorKind::kPermanent,
                   "event id " + event_id + ": several events begin so; give more digits"};
    statement.reset();
    if (locator) return impl_->fetch(*locator);
    return event;
  }
  if (auto failed = db.take_error()) return *std::move(failed);
  return Error{ErrorKind::kVanished, "event " + printable(event_id) + " is not in the journal"};
}

Journal::Usage Journal::usage() const {
  Usage usage;
  std::map<SinkId, SinkRow> sinks;
  impl_->shared.with([&](Shared& s) {
    usage.events = s.event_count;
    usage.bytes = s.used_bytes;
    usage.wal_bytes = s.wal_bytes;
    usage.last_error = s.last_error;
    sinks = s.sinks;
  });
  usage.limit_bytes = impl_->options.max_bytes;
  usage.user_share_bytes =
      std::min(impl_->options.max_bytes,
               impl_->shares.with([](const journal::Shares& all) { return all.share_bytes(); }));
  usage.over_share =
      impl_->with_held([&](const journal::Shares& all, const journal::Shares::Held& held) {
        return all.waiting(held, impl_->clock.steady());
      });
  usage.full = impl_->full;
  auto reader = impl_->readers.lease();
  for (const auto& [id, row] : sinks) {
    SinkState& state = usage.sinks.emplace_back();
    state.name = row.name;
    state.registered = row.registered;
    state.kinds = row.patterns;
    state.waiting = row.pending + row.parked;
    state.waiting_bytes = row.pending_bytes + row.parked_bytes;
    state.parked = row.parked;
    state.in_archive = row.in_archive;
    state.dead = row.dead;
    state.acknowledged = row.acknowledged;
    state.last_success = row.last_success;
    if (!reader) continue;
    journal::Connection& db = *(*reader)->connection;
    const auto take = [&](std::int64_t captured_at) {
      if (!state.oldest_waiting || captured_at < state.oldest_waiting->nanoseconds)
        state.oldest_waiting = Timestamp{captured_at};
    };
    if (row.pending > 0) {
      journal::Statement statement(
          db, ("SELECT seq, kind, captured_at, " + journal::column_or(db, "events", "target", "0") +
               " FROM events WHERE seq>?1 ORDER BY seq")
                  .c_str());
      statement.bind(stored(row.cursor));
      while (statement.step()) {
        if (!row.wants(statement.text(1), loaded(statement.integer(0)),
                       static_cast<SinkId>(statement.integer(3))) ||
            row.ahead.contains(loaded(statement.integer(0))))
          continue;
        take(statement.integer(2));
        break;
      }
    }
    if (row.parked > 0) {
      journal::Statement statement(
          db,
          "SELECT e.captured_at FROM exceptions x JOIN events e ON e.seq=x.seq WHERE x.sink=?1 AND "
          "x.state=1 ORDER BY x.seq LIMIT 1");
      if (statement.bind(id).step()) take(statement.integer(0));
    }
    db.take_error();
  }
  return usage;
}

bool Journal::full() const { return impl_->full; }
bool Journal::damaged() const { return impl_->damaged; }

bool Journal::flush(SteadyTime deadline) {
  if (impl_->options.read_only) return true;
  const std::uint64_t upto = impl_->queue.with([](const Queue& q) { return q.queued; });
  impl_->queue.with_notify([](Queue& q) { ++q.flushing; });
  const auto all_done = [&](const Queue& q) { return q.done >= upto && q.pruned >= upto; };
  impl_->queue.wait_until(std::stop_token{}, impl_->real_deadline(deadline),
                          [&](const Queue& q) { return all_done(q) || q.broken; });
  return impl_->queue.with([&](Queue& q) {
    --q.flushing;
    return all_done(q);
  });
}

}  // namespace scriptorium
