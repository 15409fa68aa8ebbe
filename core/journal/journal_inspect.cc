// Journal: what commands and the status look at.
#include <algorithm>
#include <utility>

#include "core/base/text.h"
#include "core/journal/event_row.h"
#include "core/journal/journal_impl.h"
#include "core/journal/schema.h"

namespace scriptorium {
namespace {

using journal::Connection;
using journal::Id;
using journal::IdInto;
using journal::ReaderPool;
using journal::Shared;
using journal::SinkRow;
using journal::Statement;

constexpr std::size_t kMostFound = 10'000;
constexpr std::size_t kFewestDigits = 8;  // of a shortened id
constexpr std::size_t kIdDigits = 64;

std::string cluster_of(ReaderPool::Reader& reader, std::string_view frame) {
  const auto meta = reader.codec.decompress(frame);
  if (!meta) return "";  // damaged: that may be the very reason why it is a dead letter
  if (const auto event = event_from_json(*meta)) return event->cluster;
  Event locator;
  return journal::decode_locator(*meta, locator) ? locator.cluster : "";
}

// When the first event was captured that the sink is still to get; empty: there is none. What a
// fill sends has waited for as long as the fill, however old it is, and does not count.
std::optional<Timestamp> oldest_pending(Connection& db, const SinkRow& row) {
  if (row.pending == 0) return std::nullopt;
  Statement rows(
      db, "SELECT captured_at, seq, kind FROM events WHERE seq>?1 AND target=0 ORDER BY seq");
  rows.bind(row.cursor);
  while (rows.step()) {
    if (row.wants(rows.text(2), rows.number(1), 0) && !row.ahead.contains(rows.number(1)))
      return Timestamp{rows.integer(0)};
  }
  return std::nullopt;
}

std::optional<Timestamp> oldest_parked(Connection& db, const SinkRow& row) {
  if (row.parked == 0) return std::nullopt;
  const auto time = db.integer(
      "SELECT e.captured_at FROM exceptions x JOIN events e ON e.seq=x.seq WHERE x.sink=?1 AND "
      "x.state=1 AND e.target=0 ORDER BY x.seq LIMIT 1",
      row.id);
  return time ? std::optional(Timestamp{*time}) : std::nullopt;
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

// The rows whose id is `event_id`, or begins with it if that was shortened; at most two.
Statement rows_with_id(Connection& db, const std::string& select, const std::string& event_id) {
  const bool shortened = event_id.size() >= kFewestDigits && event_id.size() < kIdDigits &&
                         event_id.find_first_not_of("0123456789abcdef") == std::string::npos;
  Statement rows(db,
                 select + (shortened ? "id BETWEEN ?2 AND ?3 OR id=?1 LIMIT 2" : "id=?1 LIMIT 2"));
  if (!shortened) {
    rows.bind(Id{event_id});
    return rows;
  }
  const std::size_t missing = kIdDigits - event_id.size();
  rows.bind(event_id, Id{event_id + std::string(missing, '0')},
            Id{event_id + std::string(missing, 'f')});
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
  rows.bind(sink, limit);
  while (rows.step()) {
    DeadLetter& letter = letters.emplace_back();
    rows.read(letter.sink, letter.sequence, letter.reason, letter.attempts, letter.first_attempt,
              letter.last_attempt, IdInto{letter.event_id}, letter.kind, letter.job_id,
              letter.bytes);
    letter.cluster = cluster_of(**reader, rows.text(10));
  }
  if (auto error = db.take_error()) return *std::move(error);
  return letters;
}

std::vector<Journal::Fill> Journal::fills() const {
  std::vector<Fill> fills;
  auto reader = impl_->readers.lease();
  if (!reader) return fills;
  Statement rows(*(*reader)->connection,
                 "SELECT sink, archive, since, position, sent, present, skipped, total, state FROM "
                 "fills ORDER BY sink");
  while (rows.step()) {
    Fill& fill = fills.emplace_back();
    rows.read(fill.sink, fill.archive, fill.since, fill.position, fill.sent, fill.present,
              fill.skipped, fill.total, fill.state);
  }
  return fills;
}

Result<std::vector<std::shared_ptr<const Event>>> Journal::find(std::string_view job_id,
                                                                std::size_t limit) const {
  std::vector<std::shared_ptr<const Event>> events;
  std::vector<std::shared_ptr<const Event>> locators;
  auto reader = impl_->readers.lease();
  if (!reader) return reader.error();
  Connection& db = *(*reader)->connection;
  for (const std::string& query :
       {journal::kSelectEvents + std::string("job_id=?1 ORDER BY seq LIMIT ?2"),
        journal::kSelectUnresolved + std::string("job_id=?1 ORDER BY ticket LIMIT ?2")}) {
    if (events.size() >= limit) break;
    Statement rows(db, query);
    rows.bind(job_id, std::min(limit - events.size(), kMostFound));
    while (rows.step()) {
      if (auto found = (*reader)->events.load(rows))
        (found->in_archive ? locators : events).push_back(std::move(found->event));
    }
  }
  if (auto error = db.take_error()) return *std::move(error);
  for (const auto& locator : locators) {
    auto event = impl_->reader.fetch(*locator);
    if (event && events.size() < limit) events.push_back(*std::move(event));
  }
  return events;
}

Result<std::shared_ptr<const Event>> Journal::event(const std::string& event_id) const {
  auto reader = impl_->readers.lease();
  if (!reader) return reader.error();
  for (const char* select : {journal::kSelectEvents, journal::kSelectUnresolved}) {
    Statement rows = rows_with_id(*(*reader)->connection, select, event_id);
    if (!rows.step()) continue;
    const auto found = (*reader)->events.load(rows);
    if (!found) return found.error().with_context("journal");
    if (rows.step())
      return Error{ErrorKind::kPermanent,
                   "event id " + event_id + ": several events begin so; give more digits"};
    rows.reset();
    if (found->in_archive) return impl_->reader.fetch(*found->event);
    return found->event;
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
  usage.user_share_bytes = user_share_bytes();
  usage.over_share = over_share();
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
