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

constexpr std::uint64_t kQueueBytes = 8U << 20;  // above it append() waits; a small journal's queue is a quarter of it
constexpr std::uint64_t kBatchBytes = 8U << 20;  // one transaction
constexpr std::size_t kBatchEntries = 2000;
constexpr std::uint64_t kLazyLimit = 100'000;  // unsettled settlements, above which sinks get nothing new
constexpr milliseconds kGather{10};            // settlements may wait that long for company: nobody waits for them
constexpr milliseconds kCommitPause{5};  // between the end of a commit and the begin of the next: company for whoever comes then
constexpr milliseconds kPruneDelay{50};  // what no sink needs any more stays that long, unless it becomes much
constexpr milliseconds kFirstBackOff{100};
constexpr milliseconds kLongestBackOff{5000};
constexpr int kClosingAttempts = 5;
constexpr std::uint64_t kEventOverhead = 1024;  // metadata of one event in the queue, about
constexpr std::size_t kScanLimit = 10'000;      // rows looked at under one read snapshot

std::int64_t stored(std::uint64_t value) { return static_cast<std::int64_t>(value); }
std::uint64_t loaded(std::int64_t value) { return static_cast<std::uint64_t>(value); }

std::uint64_t cost_of(const Event& event) { return event.bytes_size() + kEventOverhead; }

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
  reader->scan =
      Statement(db, ("SELECT " + reader->content + ", seq, kind, bytes FROM events WHERE seq>?1 ORDER BY seq LIMIT ?2").c_str());
  reader->row = Statement(db, ("SELECT " + reader->content + " FROM events WHERE seq=?1").c_str());
  reader->parked = Statement(db, "SELECT seq, attempts FROM exceptions WHERE sink=?1 AND state=1 ORDER BY seq LIMIT ?2");
  if (auto error = db.take_error()) return *std::move(error);
  return Lease(*this, std::move(reader));
}

}  // namespace journal

// ---- the writer's thread -----------------------------------------------------------------------------------------

Journal::Impl::Impl(Options given, Logger& logger, const Clock& the_clock, journal::OpenedDatabase opened)
    : options(std::move(given)),
      log(logger),
      clock(the_clock),
      report(std::move(opened.report)),
      readers(options.directory + "/journal.db", options.read_only && opened.immutable ? journal::Connection::Mode::kImmutable
                                                                                       : journal::Connection::Mode::kReadOnly) {
  writer = std::make_unique<journal::Writer>(std::move(opened.connection), options.cache_bytes, shared, clock);
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

// A deadline by our clock, which a test may hold still, as one that a condition variable understands.
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

Result<std::uint64_t> Journal::Impl::call(std::function<Result<std::uint64_t>(journal::Writer&)> run_it) {
  if (options.read_only) return Error{ErrorKind::kPermanent, "journal: opened for reading only"};
  // Shared, because the writer may still be inside set_value() when we have the answer.
  auto promise = std::make_shared<std::promise<Result<std::uint64_t>>>();
  auto answer = promise->get_future();
  put({.what = journal::Command{std::move(run_it),
                                [promise](Result<std::uint64_t> result) { promise->set_value(std::move(result)); }}});
  return answer.get();
}

std::vector<Entry> Journal::Impl::take(const std::stop_token& stop) {
  const auto busy = [](const Queue& q) { return q.urgent > 0 || q.flushing > 0 || q.lazy > kBatchEntries / 2; };
  const auto pressing = [](const Queue& q) {
    return q.commands > 0 || q.flushing > 0 || q.entries.size() > kBatchEntries / 2 || q.bytes > kBatchBytes / 2;
  };
  const auto anything = [](const Queue& q) { return !q.entries.empty() || (q.flushing > 0 && q.pruned < q.queued); };
  const auto deferred = writer->prune_deferred_since();
  if (!writer->prune_waiting() &&
      (deferred ? queue.wait_until(stop, *deferred + kPruneDelay, anything) : queue.wait(stop, anything))) {
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
  return full || (q.flushing > 0 && q.pruned < q.queued) || writer->used_bytes() > options.max_bytes / 10 * 9 ||
         (since && std::chrono::steady_clock::now() >= *since + kPruneDelay);
}

// Tries until it is done: what was given to us is not given up while the process lives.
void Journal::Impl::commit(std::vector<Entry> batch, bool prune, const std::stop_token& stop) {
  milliseconds back_off = kFirstBackOff;
  const std::uint64_t count = batch.size();
  for (int closing = 0;;) {
    auto result = writer->commit(batch, prune);
    if (result) break;
    const std::string why = result.error().message();
    const bool first = shared.with([&](Shared& s) { return std::exchange(s.last_error, why) != why; });
    queue.with_notify([](Queue& q) { q.stuck = true; });
    if (first) {
      log.error("JOURNAL_WRITE_FAILED",
                "the journal cannot be written; nothing is lost, capture waits and the journal tries again until it can",
                {{"directory", options.directory}, {"reason", why}, {"kind", to_string(result.error().kind())}});
    }
    if (stop.stop_requested() && ++closing >= kClosingAttempts) {
      log.error("JOURNAL_CLOSE_INCOMPLETE",
                "the journal could not be written at the end; what was not durable is captured again from the spool, or "
                "delivered again",
                {{"directory", options.directory}, {"reason", why}, {"entries", count}});
      // Whoever waits for a result gets none, as if the process had ended here.
      queue.with_notify([](Queue& q) {
        for (Entry& entry : q.entries) {
          if (auto* command = std::get_if<journal::Command>(&entry.what))
            command->done(Error{ErrorKind::kExhausted, "journal: closed"});
        }
        q.entries.clear();
        q.urgent = q.lazy = q.bytes = q.commands = 0;
      });
      return;
    }
    // Room in -wal comes back when its pages are moved into the database.
    writer->checkpoint(true);
    if (stop.stop_requested()) {
      queue.wait_until(std::stop_token{}, std::chrono::steady_clock::now() + kFirstBackOff, [](const Queue&) { return false; });
    } else {
      queue.wait_until(stop, std::chrono::steady_clock::now() + back_off, [](const Queue&) { return false; });
      back_off = std::min(back_off * 2, kLongestBackOff);
    }
  }
  const bool again = shared.with([](Shared& s) { return !std::exchange(s.last_error, std::string{}).empty(); });
  if (again) log.info("JOURNAL_WRITES_AGAIN", "the journal can be written again", {{"directory", options.directory}});
  for (auto& callback : writer->take_callbacks()) callback.durable(callback.fresh);
  queue.with_notify([&](Queue& q) {
    q.done += count;
    if (!writer->prune_deferred_since()) q.pruned = q.done;
    q.stuck = false;
  });
  update_full();
  writer->checkpoint(false);
  last_commit = std::chrono::steady_clock::now();
}

// What is queued is written even if the journal is full by then, so it must be small beside the limit.
std::uint64_t Journal::Impl::queue_limit() const { return std::min(kQueueBytes, options.max_bytes / 4); }

void Journal::Impl::update_full() {
  const std::uint64_t used = writer->used_bytes();
  if (!full && used >= options.max_bytes) {
    full = true;
    log.warning(
        "JOURNAL_FULL",
        "the journal has reached its limit; capture waits until sinks have taken events, and new jobs wait in the spool for as "
        "long as the scheduler keeps them; mend the sinks that `scriptorium status` shows behind, or raise "
        "journal_max_bytes and restart",
        {{"bytes", used}, {"limit_bytes", options.max_bytes}});
    queue.with_notify([](Queue&) {});
  } else if (full && used < options.max_bytes / 100 * 95) {
    full = false;
    log.info("JOURNAL_HAS_ROOM", "the journal has room again; capture goes on",
             {{"bytes", used}, {"limit_bytes", options.max_bytes}});
    queue.with_notify([](Queue&) {});
  }
}

bool Journal::Impl::backlogged() {
  return queue.with([](const Queue& q) { return q.lazy > kLazyLimit || (q.stuck && q.lazy > kLazyLimit / 10); });
}

// ---- open and close ----------------------------------------------------------------------------------------------

Journal::Journal(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Journal::~Journal() = default;

Result<std::unique_ptr<Journal>> Journal::open(const Options& options, Logger& log, const Clock& clock) {
  auto opened = journal::open_database(options, log, clock);
  if (!opened) return opened.error();
  auto impl = std::make_unique<Impl>(options, log, clock, *std::move(opened));
  if (auto result = impl->start(); !result) return result.error();
  return std::unique_ptr<Journal>(new Journal(std::move(impl)));
}

const Journal::OpenReport& Journal::open_report() const noexcept { return impl_->report; }

Result<void> Journal::verify() const {
  auto connection = journal::Connection::open(impl_->options.directory + "/journal.db", journal::Connection::Mode::kReadOnly);
  if (!connection) return connection.error();
  const std::string damage = journal::verify(**connection, true);
  if (!damage.empty()) return Error{ErrorKind::kCorrupt, "journal: " + damage};
  return {};
}

// ---- sources -----------------------------------------------------------------------------------------------------

bool Journal::append(Append item, const std::stop_token& stop) {
  if (impl_->options.read_only || !item.event) return false;
  Impl& impl = *impl_;
  const std::uint64_t cost = cost_of(*item.event);
  bool taken = false;
  const auto try_it = [&](Queue& q) {
    if (taken) return true;
    if (impl.full || (q.bytes + cost > impl.queue_limit() && q.bytes > 0)) return false;
    ++q.urgent;
    ++q.queued;
    q.bytes += cost;
    q.entries.push_back({.what = std::move(item), .bytes = cost});
    return taken = true;
  };
  if (stop.stop_requested()) return false;
  impl.queue.with_notify(try_it);
  if (!taken) {
    impl.queue.wait(stop, try_it);
    if (taken) impl.queue.with_notify([](Queue&) {});
  }
  return taken;
}

Result<void> Journal::append_all(const std::string& source, std::vector<std::shared_ptr<const Event>> events,
                                 std::optional<std::string> position, const std::stop_token& stop) {
  Impl& impl = *impl_;
  if (impl.options.read_only) return Error{ErrorKind::kPermanent, "journal: opened for reading only"};
  std::uint64_t cost = kEventOverhead;
  for (const auto& event : events) cost += cost_of(*event);
  std::uint64_t number = 0;
  Entry entry{.what = journal::AppendMany{source, std::move(events), std::move(position)}, .bytes = cost};
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
  if (number == 0) return Error{ErrorKind::kTransient, "journal: stopped before the events of " + source + " were taken"};
  impl.queue.with_notify([](Queue&) {});
  if (!impl.queue.wait(stop, [&](const Queue& q) { return q.done >= number; })) {
    return Error{ErrorKind::kTransient, "journal: stopped before the events of " + source + " were durable"};
  }
  return {};
}

std::optional<std::string> Journal::position(const std::string& source) const {
  auto reader = impl_->readers.lease();
  if (!reader) return std::nullopt;
  journal::Statement statement(*(*reader)->connection, "SELECT position FROM positions WHERE source=?1");
  if (!statement.bind_text(source).step()) return std::nullopt;
  return std::string(statement.text(0));
}

std::vector<CaptureMark> Journal::marks(const std::string& source) const {
  std::vector<CaptureMark> result;
  auto reader = impl_->readers.lease();
  if (!reader) return result;
  journal::Statement statement(*(*reader)->connection,
                               "SELECT entry, device, inode, mtime_ns, size, event_id FROM marks WHERE source=?1 ORDER BY entry");
  statement.bind_text(source);
  while (statement.step()) {
    result.push_back({.entry = std::string(statement.text(0)),
                      .device = loaded(statement.integer(1)),
                      .inode = loaded(statement.integer(2)),
                      .mtime_ns = statement.integer(3),
                      .size = loaded(statement.integer(4)),
                      .event_id = statement.id(5)});
  }
  return result;
}

void Journal::set_mark(const std::string& source, CaptureMark mark) {
  impl_->put({.what = journal::PutMark{source, std::move(mark)}, .urgent = false});
}

void Journal::forget_marks(const std::string& source, std::vector<std::string> entries) {
  if (!entries.empty()) impl_->put({.what = journal::ForgetMarks{source, std::move(entries)}, .urgent = false});
}

// ---- owner resolution --------------------------------------------------------------------------------------------

std::vector<Journal::Unresolved> Journal::unresolved(const std::string& source, std::uint64_t after, std::size_t limit) const {
  std::vector<Unresolved> result;
  const bool any = impl_->shared.with([&](Shared& s) {
    const auto it = s.sources.find(source);
    return it != s.sources.end() && it->second.unresolved > 0 && it->second.last_ticket > after;
  });
  if (!any || limit == 0) return result;
  auto reader = impl_->readers.lease();
  if (!reader) return result;
  journal::Connection& db = *(*reader)->connection;
  journal::Statement statement(
      db,
      "SELECT u.ticket, u.id, m.entry, m.device, m.inode, m.mtime_ns, m.size, m.event_id FROM unresolved u LEFT JOIN marks m "
      "ON m.source=u.source AND m.entry=u.entry WHERE u.source=?1 AND u.ticket>?2 ORDER BY u.ticket LIMIT ?3");
  statement.bind_text(source).bind(stored(after)).bind(static_cast<std::int64_t>(limit));
  while (statement.step()) {
    Unresolved item;
    item.ticket = loaded(statement.integer(0));
    if (!statement.is_null(2) && statement.id(7) == statement.id(1)) {
      item.mark = CaptureMark{.entry = std::string(statement.text(2)),
                              .device = loaded(statement.integer(3)),
                              .inode = loaded(statement.integer(4)),
                              .mtime_ns = statement.integer(5),
                              .size = loaded(statement.integer(6)),
                              .event_id = statement.id(7)};
    }
    result.push_back(std::move(item));
  }
  impl_->shared.with([&](Shared& s) {
    for (Unresolved& item : result) item.event = s.tickets.find(item.ticket);
  });
  journal::Statement row(db, ("SELECT " + (*reader)->content + " FROM unresolved WHERE ticket=?1").c_str());
  for (Unresolved& item : result) {
    if (item.event) continue;
    if (!row.bind(stored(item.ticket)).step()) {
      row.reset();
      if (!db.ok()) break;
      continue;  // resolved meanwhile
    }
    auto event = (*reader)->events->load(row);
    row.reset();
    if (event) {
      item.event = *std::move(event);
    } else if (event.error().kind() == ErrorKind::kCorrupt) {
      // Nobody can resolve what cannot be read: each sink gets it as a dead letter instead.
      impl_->put({.what = journal::PublishDamaged{item.ticket}});
    }
  }
  if (auto error = db.take_error(); error && db.damaged()) {
    impl_->log.error("JOURNAL_DAMAGED", "the journal's file is damaged; restart the daemon: it then saves what can be read",
                     {{"directory", impl_->options.directory}, {"reason", error->message()}});
  }
  std::erase_if(result, [](const Unresolved& item) { return !item.event; });
  return result;
}

bool Journal::wait_unresolved(const std::string& source, std::uint64_t after, const std::stop_token& stop,
                              SteadyTime deadline) const {
  return impl_->shared.wait_until(stop, impl_->real_deadline(deadline), [&](const Shared& s) {
    const auto it = s.sources.find(source);
    return it != s.sources.end() && it->second.unresolved > 0 && it->second.last_ticket > after;
  });
}

void Journal::resolved(std::vector<Resolved> events) {
  if (events.empty()) return;
  std::uint64_t cost = 0;
  for (const Resolved& item : events) cost += item.event ? cost_of(*item.event) : 0;
  impl_->put({.what = journal::ResolveMany{std::move(events)}, .bytes = cost});
}

std::uint64_t Journal::unresolved_count(const std::string& source) const {
  return impl_->shared.with([&](Shared& s) {
    const auto it = s.sources.find(source);
    return it == s.sources.end() ? 0 : it->second.unresolved;
  });
}

// ---- sinks -------------------------------------------------------------------------------------------------------

Result<Journal::SinkId> Journal::register_sink(const std::string& name, std::vector<std::string> kinds) {
  auto id = impl_->call([name, kinds = std::move(kinds)](journal::Writer& writer) { return writer.register_sink(name, kinds); });
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

void Journal::remove_sink(const std::string& name) {
  auto result = impl_->call([name](journal::Writer& writer) { return writer.remove_sink(name); });
  if (!result) {
    impl_->log.error("JOURNAL_REMOVE_SINK_FAILED", "a sink could not be removed from the journal; its events stay; try again",
                     {{"sink", name}, {"reason", result.error().message()}});
  }
}

Result<std::shared_ptr<const Event>> Journal::Impl::load(journal::Readers::Lease& reader, std::uint64_t seq) {
  if (auto event = shared.with([&](Shared& s) { return s.events.find(seq); })) return event;
  const bool there = reader->row.bind(stored(seq)).step();
  if (!there) {
    if (auto error = reader->connection->take_error()) return *std::move(error);
    return Error{ErrorKind::kVanished, "journal: event " + std::to_string(seq) + " is not there"};
  }
  auto event = reader->events->load(reader->row);
  reader->row.reset();
  return event;
}

Result<std::optional<Journal::Item>> Journal::Impl::item(journal::Readers::Lease& reader, SinkId sink, std::uint64_t seq,
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
  if (event.error().kind() != ErrorKind::kCorrupt) return event.error();
  const Timestamp now = clock.now();
  const std::string reason = "journal: " + event.error().message();
  const std::string name = shared.with([&](Shared& s) { return s.sinks.contains(sink) ? s.sinks[sink].name : std::string{}; });
  log.error("JOURNAL_EVENT_DAMAGED", "an event is damaged in the journal; it becomes a dead letter of this sink",
            {{"sink", name}, {"sequence", seq}, {"reason", reason}});
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

Result<std::vector<Journal::Item>> Journal::read(SinkId sink, std::uint64_t after, std::size_t max_events,
                                                 std::uint64_t max_bytes) const {
  Impl& impl = *impl_;
  std::vector<Item> items;
  if (max_events == 0 || impl.backlogged()) return items;
  std::uint64_t bytes = 0;
  const auto room = [&](std::uint64_t more) { return items.empty() || (items.size() < max_events && bytes + more <= max_bytes); };
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
        if (!known.wants(at->event->kind) || known.ahead.contains(at->number)) continue;
        const std::uint64_t size = at->event->bytes_size();
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
  std::uint64_t at = after;
  bool more = true;
  const std::size_t chunk = std::min<std::size_t>(std::max<std::size_t>(max_events, 64), kScanLimit);
  while (more && items.size() < max_events) {
    std::size_t rows = 0;
    scan.bind(stored(at)).bind(static_cast<std::int64_t>(chunk));
    while (more && scan.step()) {
      ++rows;
      at = loaded(scan.integer(3));
      if (!row->wants(scan.text(4)) || row->ahead.contains(at)) continue;
      const std::uint64_t size = loaded(scan.integer(5));
      if (!room(size)) {
        more = false;
        break;
      }
      Result<std::shared_ptr<const Event>> event = impl.shared.with([&](Shared& s) { return s.events.find(at); });
      if (*event == nullptr) event = (*reader)->events->load(scan);
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
      if (error->kind() == ErrorKind::kCorrupt) {
        impl.log.error("JOURNAL_DAMAGED", "the journal's file is damaged; restart the daemon: it then saves what can be read",
                       {{"directory", impl.options.directory}, {"reason", error->message()}});
      }
      return *std::move(error);
    }
    more = more && rows == chunk;
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

Result<std::vector<Journal::Item>> Journal::parked(SinkId sink, std::size_t limit) const {
  std::vector<Item> items;
  auto reader = impl_->readers.lease();
  if (!reader) return reader.error();
  std::vector<std::pair<std::uint64_t, std::uint32_t>> rows;
  (*reader)->parked.bind(sink).bind(
      static_cast<std::int64_t>(std::min<std::size_t>(limit, std::numeric_limits<std::int64_t>::max())));
  while ((*reader)->parked.step()) {
    rows.emplace_back(loaded((*reader)->parked.integer(0)), static_cast<std::uint32_t>((*reader)->parked.integer(1)));
  }
  if (auto error = (*reader)->connection->take_error()) return *std::move(error);
  for (const auto& [seq, attempts] : rows) {
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

bool Journal::wait(SinkId sink, std::uint64_t after, std::uint64_t parked_generation, const std::stop_token& stop,
                   SteadyTime deadline) const {
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
  return impl.queue.wait_until(stop, until,
                               [](const Queue& q) { return q.lazy <= kLazyLimit && (!q.stuck || q.lazy <= kLazyLimit / 10); });
}

void Journal::settle(SinkId sink, std::vector<Settle> settlements, std::uint64_t cursor) {
  impl_->put({.what = journal::SettleMany{sink, std::move(settlements), cursor}, .urgent = false});
}

// ---- dead letters ------------------------------------------------------------------------------------------------

Result<std::vector<Journal::DeadLetter>> Journal::dead_letters(const std::optional<std::string>& sink, std::size_t limit) const {
  std::vector<DeadLetter> letters;
  auto reader = impl_->readers.lease();
  if (!reader) return reader.error();
  journal::Connection& db = *(*reader)->connection;
  journal::Statement statement(
      db,
      "SELECT s.name, x.seq, x.reason, x.attempts, x.first_attempt, x.last_attempt, e.id, e.kind, e.job_id, e.bytes, e.meta "
      "FROM exceptions x JOIN sinks s ON s.id=x.sink LEFT JOIN events e ON e.seq=x.seq "
      "WHERE x.state=2 AND (?1 IS NULL OR s.name=?1) ORDER BY s.name, x.seq LIMIT ?2");
  (sink ? statement.bind_text(*sink) : statement.bind_null())
      .bind(static_cast<std::int64_t>(std::min<std::size_t>(limit, std::numeric_limits<std::int64_t>::max())));
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
    auto json = (*reader)->codec.decompress(statement.text(10));
    if (!json) continue;  // damaged: that may be the very reason why it is here
    if (auto event = event_from_json(*json)) letter.cluster = event->cluster;
  }
  if (auto error = db.take_error()) return *std::move(error);
  return letters;
}

Result<std::uint64_t> Journal::retry_dead(const std::optional<std::string>& sink, const std::string& event_id) {
  return impl_->call([sink, event_id](journal::Writer& writer) { return writer.change_dead(sink, event_id, true); });
}

Result<std::uint64_t> Journal::discard_dead(const std::optional<std::string>& sink, const std::string& event_id) {
  return impl_->call([sink, event_id](journal::Writer& writer) { return writer.change_dead(sink, event_id, false); });
}

// ---- looking -----------------------------------------------------------------------------------------------------

Result<std::vector<std::shared_ptr<const Event>>> Journal::find(std::string_view job_id, std::size_t limit) const {
  std::vector<std::shared_ptr<const Event>> events;
  auto reader = impl_->readers.lease();
  if (!reader) return reader.error();
  journal::Connection& db = *(*reader)->connection;
  for (const char* where :
       {" FROM events WHERE job_id=?1 ORDER BY seq LIMIT ?2", " FROM unresolved WHERE job_id=?1 ORDER BY ticket LIMIT ?2"}) {
    if (events.size() >= limit) break;
    journal::Statement statement(db, ("SELECT " + (*reader)->content + where).c_str());
    statement.bind_text(job_id).bind(static_cast<std::int64_t>(std::min<std::size_t>(limit - events.size(), kScanLimit)));
    while (statement.step()) {
      auto event = (*reader)->events->load(statement);
      if (event) events.push_back(*std::move(event));
    }
  }
  if (auto error = db.take_error()) return *std::move(error);
  return events;
}

Result<std::shared_ptr<const Event>> Journal::event(const std::string& event_id) const {
  auto reader = impl_->readers.lease();
  if (!reader) return reader.error();
  journal::Connection& db = *(*reader)->connection;
  // A cut id names the range of ids that begin so.
  const bool cut =
      event_id.size() >= 8 && event_id.size() < 64 && event_id.find_first_not_of("0123456789abcdef") == std::string::npos;
  std::optional<Error> error;
  for (const char* table : {"events", "unresolved"}) {
    const std::string sql = "SELECT " + (*reader)->content + " FROM " + table +
                            (cut ? " WHERE id BETWEEN ?1 AND ?2 OR id=?3" : " WHERE id=?1") + " LIMIT 2";
    journal::Statement statement(db, sql.c_str());
    if (cut) {
      statement.bind_id(event_id + std::string(64 - event_id.size(), '0'))
          .bind_id(event_id + std::string(64 - event_id.size(), 'f'));
      statement.bind_text(event_id);
    } else {
      statement.bind_id(event_id);
    }
    if (!statement.step()) continue;
    auto event = (*reader)->events->load(statement);
    if (!event) return event.error().with_context("journal");
    if (statement.step())
      return Error{ErrorKind::kPermanent, "event id " + event_id + ": several events begin so; give more digits"};
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
    usage.last_error = s.last_error;
    sinks = s.sinks;
  });
  usage.limit_bytes = impl_->options.max_bytes;
  usage.full = impl_->full;
  auto reader = impl_->readers.lease();
  for (const auto& [id, row] : sinks) {
    SinkState& state = usage.sinks.emplace_back();
    state.name = row.name;
    state.registered = row.registered;
    state.waiting = row.pending + row.parked;
    state.waiting_bytes = row.pending_bytes + row.parked_bytes;
    state.parked = row.parked;
    state.dead = row.dead;
    state.acknowledged = row.acknowledged;
    state.last_success = row.last_success;
    if (!reader) continue;
    journal::Connection& db = *(*reader)->connection;
    const auto take = [&](std::int64_t captured_at) {
      if (!state.oldest_waiting || captured_at < state.oldest_waiting->nanoseconds) state.oldest_waiting = Timestamp{captured_at};
    };
    if (row.pending > 0) {
      journal::Statement statement(db, "SELECT seq, kind, captured_at FROM events WHERE seq>?1 ORDER BY seq");
      statement.bind(stored(row.cursor));
      while (statement.step()) {
        if (!row.wants(statement.text(1)) || row.ahead.contains(loaded(statement.integer(0)))) continue;
        take(statement.integer(2));
        break;
      }
    }
    if (row.parked > 0) {
      journal::Statement statement(db,
                                   "SELECT e.captured_at FROM exceptions x JOIN events e ON e.seq=x.seq WHERE x.sink=?1 AND "
                                   "x.state=1 ORDER BY x.seq LIMIT 1");
      if (statement.bind(id).step()) take(statement.integer(0));
    }
    db.take_error();
  }
  return usage;
}

bool Journal::full() const { return impl_->full; }

bool Journal::flush(SteadyTime deadline) {
  if (impl_->options.read_only) return true;
  const std::uint64_t upto = impl_->queue.with([](const Queue& q) { return q.queued; });
  impl_->queue.with_notify([](Queue& q) { ++q.flushing; });
  const bool done = impl_->queue.wait_until(std::stop_token{}, impl_->real_deadline(deadline),
                                            [&](const Queue& q) { return q.done >= upto && q.pruned >= upto; });
  impl_->queue.with([](Queue& q) { --q.flushing; });
  return done;
}

}  // namespace scriptorium
