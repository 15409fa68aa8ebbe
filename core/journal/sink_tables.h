#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/journal/sink_row.h"
#include "core/journal/sqlite.h"

// The rows of `sinks`, `exceptions` and `fills`.
// Threads: the writer's. Each class borrows the connection.
namespace scriptorium::journal {

// A row of a damaged journal may differ from its checksum.
struct StoredSink {
  SinkRow row;  // without counters
  bool sum_matches = false;
};
constexpr const char* kSinkColumns =
    "id, name, kinds, cursor, acknowledged, last_success, absences, sum";
StoredSink sink_of_row(const Statement& row);
struct StoredException {
  SinkId sink = 0;
  State state = State::kParked;
  Settle settle;
  bool sum_matches = false;
};
constexpr const char* kExceptionColumns =
    "sink, seq, state, reason, attempts, first_attempt, last_attempt, sum";
StoredException exception_of_row(const Statement& row);

class SinkTable {
 public:
  explicit SinkTable(Connection& connection);
  std::vector<SinkRow> load();
  // Of a new sink. Never one that was removed: events may still be there that were for that one,
  // and until this process ends a plugin that hung may answer for it. Reads all events.
  SinkId next_id();
  void insert(const SinkRow& row);
  void store_progress(const SinkRow& row);  // cursor, acknowledged, last success
  void store_settings(const SinkRow& row);  // kinds, absences
  void remove(const SinkRow& row);
  void set_fill(const Fill& fill);
  bool is_fill_at(const Fill& fill) const;  // the very same, and under way

 private:
  Connection& connection_;
  Statement store_progress_;
  SinkId last_removed_ = 0;  // the highest
};

class ExceptionTable {
 public:
  explicit ExceptionTable(Connection& connection);

  struct Row {
    SinkId sink = 0;
    State state = State::kParked;
    EventSummary event;
    std::string event_id;
  };
  // By sink and event: all rows, or those in one state. `event_id` is empty if the event is gone.
  void each(std::optional<State> state, const std::function<void(const Row&)>& take);

  std::optional<State> state(SinkId sink, std::uint64_t seq);
  bool any_of(std::uint64_t seq);
  std::vector<SinkId> parked_by(std::uint64_t seq);
  std::map<SinkId, State> of_event(std::uint64_t seq);
  std::uint64_t parked_in_archive(SinkId sink);
  std::vector<std::uint64_t> events_of(SinkId sink);
  std::set<std::uint64_t> events_between(std::uint64_t after, std::uint64_t upto);

  void put(SinkId sink, const Settle& settle, State state);
  // That it is settled, as an event beyond the cursor.
  void put_settled(SinkId sink, std::uint64_t seq);
  void park(SinkId sink, std::uint64_t seq);  // a dead letter, with reason and attempts as they are
  void erase(SinkId sink, std::uint64_t seq);
  void erase_settled(SinkId sink, std::uint64_t after, std::uint64_t upto);
  void erase_event(std::uint64_t seq);
  void erase_sink(SinkId sink);

 private:
  Connection& connection_;
  Statement state_, put_, erase_, erase_settled_, between_, any_of_, parked_by_;
};

}  // namespace scriptorium::journal
