#include "core/journal/sink_tables.h"

#include <algorithm>

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

StoredSink sink_of_row(const Statement& stored) {
  StoredSink sink;
  SinkRow& row = sink.row;
  std::int64_t acknowledged = 0, sum = 0;
  std::string absences;
  stored.read(row.id, row.name, row.kinds, row.cursor, acknowledged, row.last_success, absences,
              sum);
  row.acknowledged = static_cast<std::uint64_t>(std::max<std::int64_t>(acknowledged, 0));
  row.patterns = split_kinds(row.kinds);
  row.absences = decode_absences(absences);
  sink.sum_matches = sum == sink_sum(row.name, row.kinds, stored.integer(3), absences);
  return sink;
}

StoredException exception_of_row(const Statement& row) {
  StoredException x;
  std::int64_t sum = 0;
  row.read(x.sink, x.settle.sequence, x.state, x.settle.reason, x.settle.attempts,
           x.settle.first_attempt, x.settle.last_attempt, sum);
  x.sum_matches = sum == exception_sum(row.integer(0), row.integer(1), x.state);
  return x;
}

SinkTable::SinkTable(Connection& connection)
    : connection_(connection),
      store_progress_(connection,
                      "UPDATE sinks SET cursor=?2, acknowledged=?3, last_success=?4, sum=?5 "
                      "WHERE id=?1") {}

std::vector<SinkRow> SinkTable::load() {
  std::vector<SinkRow> sinks;
  Statement rows(connection_, std::string("SELECT ") + kSinkColumns + " FROM sinks");
  while (rows.step()) sinks.push_back(sink_of_row(rows).row);
  return sinks;
}

SinkId SinkTable::next_id() {
  const std::uint64_t there = connection_.number("SELECT max(id) FROM sinks");
  const std::uint64_t targeted =
      connection_.number("SELECT max(target) FROM events WHERE target<>?1", kNoSink);
  return static_cast<SinkId>(std::max({there, targeted, std::uint64_t{last_removed_}}) + 1);
}

void SinkTable::insert(const SinkRow& row) {
  connection_.run(
      "INSERT INTO sinks(id,name,kinds,cursor,acknowledged,last_success,absences,sum) "
      "VALUES(?1,?2,?3,?4,?5,?6,?7,?8)",
      row.id, row.name, row.kinds, row.cursor, row.acknowledged, row.last_success,
      encode_absences(row.absences), sum_of(row));
}

void SinkTable::store_progress(const SinkRow& row) {
  store_progress_.run(row.id, row.cursor, row.acknowledged, row.last_success, sum_of(row));
}

void SinkTable::store_settings(const SinkRow& row) {
  connection_.run("UPDATE sinks SET kinds=?2, absences=?3, sum=?4 WHERE id=?1", row.id, row.kinds,
                  encode_absences(row.absences), sum_of(row));
}

void SinkTable::remove(const SinkRow& row) {
  last_removed_ = std::max(last_removed_, row.id);
  connection_.run("DELETE FROM sinks WHERE id=?1", row.id);
  connection_.run("DELETE FROM fills WHERE sink=?1", row.name);
}

void SinkTable::set_fill(const Fill& fill) {
  connection_.run(
      "INSERT OR REPLACE INTO fills(sink,archive,since,position,sent,present,skipped,total,state) "
      "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)",
      fill.sink, fill.archive, fill.since, fill.position, fill.sent, fill.present, fill.skipped,
      fill.total, fill.state);
}

bool SinkTable::is_fill_at(const Fill& fill) const {
  if (!fill.is_under_way()) return false;
  Statement rows(
      connection_,
      "SELECT 1 FROM fills WHERE sink=?1 AND archive=?2 AND since=?3 AND position=?4 AND "
      "sent=?5 AND present=?6 AND skipped=?7 AND total=?8 AND state=?9");
  rows.bind(fill.sink, fill.archive, fill.since, fill.position, fill.sent, fill.present,
            fill.skipped, fill.total, fill.state);
  return rows.step();
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
  Statement rows(connection_,
                 "SELECT x.sink, x.seq, x.state, e.bytes, coalesce(e.target,0), e.pack=-1, "
                 "e.id FROM exceptions x LEFT JOIN events e ON e.seq=x.seq WHERE ?1 IS NULL OR "
                 "x.state=?1 ORDER BY x.sink, "
                 "x.seq");
  rows.bind(state);
  while (rows.step()) {
    Row row;
    EventSummary& event = row.event;
    rows.read(row.sink, event.seq, row.state, event.bytes, event.target, event.in_archive,
              IdInto{row.event_id});
    take(row);
  }
}

std::optional<State> ExceptionTable::state(SinkId sink, std::uint64_t seq) {
  const auto found = state_.first(sink, seq);
  return found ? std::optional(static_cast<State>(*found)) : std::nullopt;
}

bool ExceptionTable::any_of(std::uint64_t seq) { return any_of_.first(seq).has_value(); }

std::vector<SinkId> ExceptionTable::parked_by(std::uint64_t seq) {
  std::vector<SinkId> sinks;
  parked_by_.bind(seq);
  while (parked_by_.step()) sinks.push_back(static_cast<SinkId>(parked_by_.integer(0)));
  return sinks;
}

std::map<SinkId, State> ExceptionTable::of_event(std::uint64_t seq) {
  std::map<SinkId, State> states;
  Statement rows(connection_, "SELECT sink, state FROM exceptions WHERE seq=?1");
  rows.bind(seq);
  while (rows.step())
    states[static_cast<SinkId>(rows.integer(0))] = static_cast<State>(rows.integer(1));
  return states;
}

std::uint64_t ExceptionTable::parked_in_archive(SinkId sink) {
  return connection_.number(
      "SELECT count(*) FROM exceptions x JOIN events e ON e.seq=x.seq WHERE x.sink=?1 AND "
      "x.state=1 AND e.pack=-1",
      sink);
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
  connection_.run("UPDATE exceptions SET state=1, sum=?3 WHERE sink=?1 AND seq=?2", sink, seq,
                  sum_of(sink, seq, State::kParked));
}

void ExceptionTable::erase(SinkId sink, std::uint64_t seq) { erase_.run(sink, seq); }

void ExceptionTable::erase_settled(SinkId sink, std::uint64_t after, std::uint64_t upto) {
  erase_settled_.run(sink, after, upto);
}

void ExceptionTable::erase_event(std::uint64_t seq) {
  connection_.run("DELETE FROM exceptions WHERE seq=?1", seq);
}

void ExceptionTable::erase_sink(SinkId sink) {
  connection_.run("DELETE FROM exceptions WHERE sink=?1", sink);
}

}  // namespace scriptorium::journal
