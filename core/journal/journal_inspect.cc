// Journal: what commands and the status look at.
#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/text.h"
#include "core/journal/event_row.h"
#include "core/journal/journal_impl.h"
#include "core/journal/schema.h"

namespace scriptorium {
namespace {

using journal::Connection;
using journal::EventReader;
using journal::Id;
using journal::ReaderPool;
using journal::Shared;
using journal::SinkRow;
using journal::Statement;

constexpr std::size_t kMostFound = 10'000;
constexpr std::size_t kFewestDigits = 8;  // of a shortened id
constexpr std::size_t kIdDigits = 64;

std::int64_t to_limit(std::size_t limit) {
  return static_cast<std::int64_t>(
      std::min<std::size_t>(limit, std::numeric_limits<std::int64_t>::max()));
}

std::string cluster_of(ReaderPool::Reader& reader, std::string_view frame) {
  const auto meta = reader.codec.decompress(frame);
  if (!meta) return "";  // damaged: that may be the very reason why it is a dead letter
  if (const auto event = event_from_json(*meta)) return event->cluster;
  Event locator;
  return journal::decode_locator(*meta, locator) ? locator.cluster : "";
}

// When the first event was captured that the sink is still to get; empty: there is none.
std::optional<Timestamp> oldest_pending(Connection& db, const SinkRow& row) {
  if (row.pending == 0) return std::nullopt;
  Statement rows(
      db, ("SELECT seq, kind, captured_at, " + journal::column_or(db, "events", "target", "0") +
           " FROM events WHERE seq>?1 ORDER BY seq")
              .c_str());
  rows.bind(row.cursor);
  while (rows.step()) {
    if (row.wants(rows.text(1), rows.number(0), static_cast<Journal::SinkId>(rows.integer(3))) &&
        !row.ahead.contains(rows.number(0)))
      return Timestamp{rows.integer(2)};
  }
  return std::nullopt;
}

std::optional<Timestamp> oldest_parked(Connection& db, const SinkRow& row) {
  if (row.parked == 0) return std::nullopt;
  Statement statement(db,
                      "SELECT e.captured_at FROM exceptions x JOIN events e ON e.seq=x.seq WHERE "
                      "x.sink=?1 AND x.state=1 ORDER BY x.seq LIMIT 1");
  if (!statement.bind(row.id).step()) return std::nullopt;
  return Timestamp{statement.integer(0)};
}

Journal::SinkState state_of(const SinkRow& row) {
  return {.name = row.name,
          .registered = row.registered,
          .kinds = row.patterns,
          .waiting = row.pending + row.parked,
          .waiting_bytes = row.pending_bytes + row.parked_bytes,
          .parked = row.parked,
          .in_archive = row.in_archive,
          .dead = row.dead,
          .acknowledged = row.acknowledged,
          .oldest_waiting = std::nullopt,
          .last_success = row.last_success};
}

// The rows of a table whose id is `event_id`, or begins with it if that was shortened; at most two.
Statement rows_with_id(ReaderPool::Reader& reader, const std::string& table,
                       const std::string& event_id) {
  const bool shortened = event_id.size() >= kFewestDigits && event_id.size() < kIdDigits &&
                         event_id.find_first_not_of("0123456789abcdef") == std::string::npos;
  const std::string sql =
      "SELECT " + (table == "events" ? reader.columns : reader.content) + " FROM " + table +
      (shortened ? " WHERE id BETWEEN ?1 AND ?2 OR id=?3" : " WHERE id=?1") + " LIMIT 2";
  Statement rows(*reader.connection, sql.c_str());
  if (!shortened) {
    rows.bind(Id{event_id});
    return rows;
  }
  const std::size_t missing = kIdDigits - event_id.size();
  rows.bind(Id{event_id + std::string(missing, '0')});
  rows.bind(Id{event_id + std::string(missing, 'f')});
  rows.bind(event_id);
  return rows;
}

}  // namespace

Result<std::vector<Journal::DeadLetter>> Journal::dead_letters(
    const std::optional<std::string>& sink, std::size_t limit) const {
  std::vector<DeadLetter> letters;
  auto reader = impl_->readers.lease();
  if (!reader) return reader.error();
  Connection& db = *(*reader)->connection;
  Statement rows(
      db,
      "SELECT s.name, x.seq, x.reason, x.attempts, x.first_attempt, x.last_attempt, e.id, e.kind, "
      "e.job_id, e.bytes, e.meta FROM exceptions x JOIN sinks s ON s.id=x.sink LEFT JOIN events e "
      "ON e.seq=x.seq WHERE x.state=2 AND (?1 IS NULL OR s.name=?1) ORDER BY s.name, x.seq LIMIT "
      "?2");
  rows.bind(sink, to_limit(limit));
  while (rows.step()) {
    letters.push_back({.sink = std::string(rows.text(0)),
                       .sequence = rows.number(1),
                       .event_id = rows.id(6),
                       .kind = std::string(rows.text(7)),
                       .cluster = cluster_of(**reader, rows.text(10)),
                       .job_id = std::string(rows.text(8)),
                       .reason = std::string(rows.text(2)),
                       .attempts = static_cast<std::uint32_t>(rows.integer(3)),
                       .first_attempt = {rows.integer(4)},
                       .last_attempt = {rows.integer(5)},
                       .bytes = rows.number(9)});
  }
  if (auto error = db.take_error()) return *std::move(error);
  return letters;
}

std::vector<Journal::Fill> Journal::fills() const {
  std::vector<Fill> fills;
  auto reader = impl_->readers.lease();
  if (!reader || !journal::has_table(*(*reader)->connection, "fills")) return fills;
  Statement rows(*(*reader)->connection,
                 "SELECT sink, archive, since, position, sent, present, skipped, total, state FROM "
                 "fills ORDER BY sink");
  while (rows.step()) {
    fills.push_back({.sink = std::string(rows.text(0)),
                     .archive = std::string(rows.text(1)),
                     .since = {rows.integer(2)},
                     .position = std::string(rows.text(3)),
                     .sent = rows.number(4),
                     .present = rows.number(5),
                     .skipped = rows.number(6),
                     .total = rows.number(7),
                     .state = static_cast<Fill::State>(rows.integer(8))});
  }
  return fills;
}

Result<std::vector<std::shared_ptr<const Event>>> Journal::find(std::string_view job_id,
                                                                std::size_t limit) const {
  std::vector<std::shared_ptr<const Event>> events;
  std::vector<Event> locators;
  auto reader = impl_->readers.lease();
  if (!reader) return reader.error();
  Connection& db = *(*reader)->connection;
  for (const std::string& query :
       {(*reader)->columns + " FROM events WHERE job_id=?1 ORDER BY seq LIMIT ?2",
        (*reader)->content + " FROM unresolved WHERE job_id=?1 ORDER BY ticket LIMIT ?2"}) {
    if (events.size() >= limit) break;
    Statement rows(db, ("SELECT " + query).c_str());
    rows.bind(job_id, std::min(limit - events.size(), kMostFound));
    while (rows.step()) {
      if (EventReader::is_in_archive(rows)) {
        if (auto locator = (*reader)->events->locator(rows))
          locators.push_back(*std::move(locator));
      } else if (auto event = (*reader)->events->load(rows)) {
        events.push_back(*std::move(event));
      }
    }
  }
  if (auto error = db.take_error()) return *std::move(error);
  for (const Event& locator : locators) {
    auto event = impl_->reader.fetch(locator);
    if (event && events.size() < limit) events.push_back(*std::move(event));
  }
  return events;
}

Result<std::shared_ptr<const Event>> Journal::event(const std::string& event_id) const {
  auto reader = impl_->readers.lease();
  if (!reader) return reader.error();
  for (const char* table : {"events", "unresolved"}) {
    Statement rows = rows_with_id(**reader, table, event_id);
    if (!rows.step()) continue;
    std::optional<Event> locator;
    auto event = (*reader)->events->load(rows);
    if (EventReader::is_in_archive(rows)) {
      auto found = (*reader)->events->locator(rows);
      if (!found) return found.error().with_context("journal");
      locator = *std::move(found);
    } else if (!event) {
      return event.error().with_context("journal");
    }
    if (rows.step())
      return Error{ErrorKind::kPermanent,
                   "event id " + event_id + ": several events begin so; give more digits"};
    rows.reset();
    if (locator) return impl_->reader.fetch(*locator);
    return event;
  }
  if (auto failed = (*reader)->connection->take_error()) return *std::move(failed);
  return Error{ErrorKind::kVanished, "event " + printable(event_id) + " is not in the journal"};
}

Journal::Usage Journal::usage() const {
  Usage usage;
  journal::SinkRows sinks;
  impl_->shared.with([&](const Shared& s) {
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
  usage.full = full();
  auto reader = impl_->readers.lease();
  for (const auto& [id, row] : sinks) {
    SinkState& state = usage.sinks.emplace_back(state_of(*row));
    if (!reader) continue;
    Connection& db = *(*reader)->connection;
    for (const auto& oldest : {oldest_pending(db, *row), oldest_parked(db, *row)}) {
      if (oldest && (!state.oldest_waiting || *oldest < *state.oldest_waiting))
        state.oldest_waiting = oldest;
    }
    db.take_error();
  }
  return usage;
}

}  // namespace scriptorium
