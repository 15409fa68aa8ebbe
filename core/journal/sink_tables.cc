#include "core/journal/sink_tables.h"

#include <algorithm>

#include "core/journal/event_row.h"

namespace scriptorium::journal {
namespace {

std::int64_t sum_of(const SinkRow& row) {
  return sink_sum(row.name, row.kinds, static_cast<std::int64_t>(row.cursor),
                  encode_absences(row.absences));
}

std::int64_t sum_of(SinkId sink, std::uint64_t seq, State state) {
  return exception_sum(sink, static_cast<std::int64_t>(seq), state);
}

}  // namespace

SinkTable::SinkTable(Connection& connection)
    : connection_(connection),
      store_progress_(connection,
                      "UPDATE sinks SET cursor=?2, acknowledged=?3, last_success=?4, sum=?5 "
                      "WHERE id=?1") {}

std::vector<SinkRow> SinkTable::load() {
  std::vector<SinkRow> sinks;
  Statement rows(connection_, ("SELECT id, name, kinds, cursor, acknowledged, last_success, " +
                               column_or(connection_, "sinks", "absences", "''") + " FROM sinks")
                                  .c_str());
  while (rows.step()) {
    SinkRow& row = sinks.emplace_back();
    row.id = static_cast<SinkId>(rows.integer(0));
    row.name = rows.text(1);
    row.kinds = rows.text(2);
    row.patterns = split_kinds(row.kinds);
    row.cursor = rows.number(3);
    row.acknowledged = rows.number(4);
    if (!rows.is_null(5)) row.last_success = Timestamp{rows.integer(5)};
    row.absences = decode_absences(rows.text(6));
  }
  return sinks;
}

SinkId SinkTable::next_id() {
  return static_cast<SinkId>(connection_.number("SELECT max(id) FROM sinks") + 1);
}

void SinkTable::insert(const SinkRow& row) {
  Statement statement(connection_,
                      "INSERT INTO sinks(id,name,kinds,cursor,acknowledged,last_success,sum) "
                      "VALUES(?1,?2,?3,0,0,NULL,?4)");
  statement.run(row.id, row.name, row.kinds, sum_of(row));
}

void SinkTable::store_progress(const SinkRow& row) {
  store_progress_.run(row.id, row.cursor, row.acknowledged, row.last_success, sum_of(row));
}

void SinkTable::store_kinds(const SinkRow& row) {
  Statement statement(connection_, "UPDATE sinks SET kinds=?2, sum=?3 WHERE id=?1");
  statement.run(row.id, row.kinds, sum_of(row));
}

void SinkTable::store_absences(const SinkRow& row) {
  Statement statement(connection_, "UPDATE sinks SET absences=?2, sum=?3 WHERE id=?1");
  statement.run(row.id, encode_absences(row.absences), sum_of(row));
}

void SinkTable::remove(const SinkRow& row) {
  Statement sink(connection_, "DELETE FROM sinks WHERE id=?1");
  sink.run(row.id);
  Statement fill(connection_, "DELETE FROM fills WHERE sink=?1");
  fill.run(row.name);
}

void SinkTable::set_fill(const Fill& fill) {
  Statement statement(
      connection_,
      "INSERT OR REPLACE INTO fills(sink,archive,since,position,sent,present,skipped,total,state) "
      "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)");
  statement.run(fill.sink, fill.archive, fill.since, fill.position, fill.sent, fill.present,
                fill.skipped, fill.total, fill.state);
}

ExceptionTable::ExceptionTable(Connection& connection)
    : connection_(connection),
      state_(connection, "SELECT state FROM exceptions WHERE sink=?1 AND seq=?2"),
      put_(connection,
           "INSERT INTO exceptions(sink,seq,state,reason,attempts,first_attempt,last_attempt,sum) "
           "VALUES(?1,?2,?3,?4,?5,?6,?7,?8) ON CONFLICT(sink,seq) DO UPDATE SET state=?3, "
           "reason=?4, attempts=?5, last_attempt=?7, sum=?8"),
      erase_(connection, "DELETE FROM exceptions WHERE sink=?1 AND seq=?2"),
      erase_settled_(connection,
                     "DELETE FROM exceptions WHERE sink=?1 AND seq>?2 AND seq<=?3 AND state=3"),
      between_(connection, "SELECT DISTINCT seq FROM exceptions WHERE seq>?1 AND seq<=?2"),
      any_of_(connection, "SELECT 1 FROM exceptions WHERE seq=?1"),
      parked_by_(connection, "SELECT sink FROM exceptions WHERE seq=?1 AND state=1") {}

void ExceptionTable::each(std::optional<State> state, const std::function<void(const Row&)>& take) {
  const std::string pack = has_packs(connection_) ? "e.pack" : "0";
  Statement rows(connection_, ("SELECT x.sink, x.seq, x.state, e.bytes, " + pack +
                               ", e.id FROM exceptions x LEFT JOIN events e ON e.seq=x.seq "
                               "WHERE ?1 IS NULL OR x.state=?1 ORDER BY x.sink, x.seq")
                                  .c_str());
  if (state) rows.bind(*state);
  while (rows.step()) {
    take({.sink = static_cast<SinkId>(rows.integer(0)),
          .state = static_cast<State>(rows.integer(2)),
          .event = {.seq = rows.number(1),
                    .bytes = rows.number(3),
                    .kind = "",
                    .in_archive = rows.integer(4) == kInArchive},
          .event_id = rows.id(5)});
  }
}

std::optional<State> ExceptionTable::state(SinkId sink, std::uint64_t seq) {
  std::optional<State> result;
  if (state_.bind(sink, seq).step()) result = static_cast<State>(state_.integer(0));
  state_.reset();
  return result;
}

bool ExceptionTable::any_of(std::uint64_t seq) {
  const bool found = any_of_.bind(seq).step();
  any_of_.reset();
  return found;
}

std::vector<SinkId> ExceptionTable::parked_by(std::uint64_t seq) {
  std::vector<SinkId> sinks;
  parked_by_.bind(seq);
  while (parked_by_.step()) sinks.push_back(static_cast<SinkId>(parked_by_.integer(0)));
  return sinks;
}

std::uint64_t ExceptionTable::parked_in_archive(SinkId sink) {
  Statement count(connection_,
                  "SELECT count(*) FROM exceptions x JOIN events e ON e.seq=x.seq WHERE x.sink=?1 "
                  "AND x.state=1 AND e.pack=-1");
  return count.bind(sink).step() ? count.number(0) : 0;
}

std::vector<std::uint64_t> ExceptionTable::events_of(SinkId sink) {
  std::vector<std::uint64_t> events;
  Statement rows(connection_, "SELECT seq FROM exceptions WHERE sink=?1");
  rows.bind(sink);
  while (rows.step()) events.push_back(rows.number(0));
  return events;
}

std::set<std::uint64_t> ExceptionTable::events_between(std::uint64_t after, std::uint64_t upto) {
  std::set<std::uint64_t> events;
  between_.bind(after, upto);
  while (between_.step()) events.insert(between_.number(0));
  return events;
}

void ExceptionTable::put(SinkId sink, const Settle& settle, State state) {
  put_.run(sink, settle.sequence, state, settle.reason, settle.attempts, settle.first_attempt,
           settle.last_attempt, sum_of(sink, settle.sequence, state));
}

void ExceptionTable::put_settled(SinkId sink, std::uint64_t seq) {
  put(sink, {.sequence = seq, .outcome = Outcome::kAcknowledged}, State::kSettled);
}

void ExceptionTable::park(SinkId sink, std::uint64_t seq) {
  Statement park(connection_, "UPDATE exceptions SET state=1, sum=?3 WHERE sink=?1 AND seq=?2");
  park.run(sink, seq, sum_of(sink, seq, State::kParked));
}

void ExceptionTable::erase(SinkId sink, std::uint64_t seq) { erase_.run(sink, seq); }

void ExceptionTable::erase_settled(SinkId sink, std::uint64_t after, std::uint64_t upto) {
  erase_settled_.run(sink, after, upto);
}

void ExceptionTable::erase_event(std::uint64_t seq) {
  Statement erase(connection_, "DELETE FROM exceptions WHERE seq=?1");
  erase.run(seq);
}

void ExceptionTable::erase_sink(SinkId sink) {
  Statement erase(connection_, "DELETE FROM exceptions WHERE sink=?1");
  erase.run(sink);
}

}  // namespace scriptorium::journal
