#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/journal/sink_row.h"

namespace scriptorium::journal {

// What every sink has and is still to get: cursors, counters, absences. It decides and counts, and
// says which rows of `exceptions` must change; the writer stores them. No database, clock or lock.
//
// Everything that a transaction changes is one copyable struct. begin() keeps a copy, rollback()
// restores it. The copy is cheap because rows are shared until they change: the first change of a
// row in a transaction clones it. rows() publishes the same rows to readers, for whom they never
// change.
// Threads: one (the writer's). What rows() returns may go to any thread.
class SinkLedger {
 public:
  void begin() { before_ = now_; }
  void rollback() { now_ = before_; }

  SinkRows rows() const { return {now_.rows.begin(), now_.rows.end()}; }
  bool empty() const { return now_.rows.empty(); }
  std::uint64_t last_seq() const { return now_.last_seq; }
  const SinkRow* find(SinkId id) const;
  const SinkRow* find_named(const std::string& name) const;
  // Rows whose cursor, count of acknowledged events or last success this transaction changed.
  std::vector<const SinkRow*> to_store() const;

  // Loading, at open.
  void add(SinkRow row);
  void count_exception(SinkId sink, const EventSummary& event, State state);
  // No sequence up to here is ever given out again, even if all events are gone.
  void start_after(std::uint64_t seq);
  // Every sink has passed what is up to here.
  std::uint64_t passed_by_all() const;

  // Events

  std::uint64_t next_seq() { return ++now_.last_seq; }
  // Counts the event for every sink that is still to get it.
  void count_pending(const EventSummary& event);
  // Its bytes are now only in an archive. `parked_by`: the sinks that have it parked.
  void moved_to_archive(const EventSummary& event, const std::vector<SinkId>& parked_by);
  // It is removed before every sink that was filled with it has it. `exceptions`: its rows there.
  // Returns those that have not got it and are not configured, so that no new event reaches them.
  std::vector<SinkId> withdrawn(const EventSummary& event,
                                const std::map<SinkId, State>& exceptions);
  // Whether a sink that is not configured keeps it.
  bool is_kept_for_absent(const EventSummary& event) const;
  // Everything up to here is settled by all sinks that are configured. What an absent sink keeps is
  // decided event by event. 0 while there is no sink: then everything stays.
  std::uint64_t lowest_cursor() const;

  // Settlement

  // What must happen to the event's row in `exceptions`.
  enum class ExceptionChange { kNone, kPark, kBury, kErase };
  struct Settled {
    ExceptionChange exception = ExceptionChange::kNone;
    bool acknowledged = false;  // now, by this settlement
  };
  // `stored`: the state of its row in `exceptions`; only considered up to the cursor, beyond it
  // `ahead` knows. Settling an event twice changes nothing the second time.
  Settled settle(SinkId sink, const EventSummary& event, Outcome outcome,
                 std::optional<State> stored, Timestamp now);
  struct Passed {
    // Rows of acknowledged events in (after, upto] are no longer needed.
    std::optional<std::uint64_t> erase_after;
    std::uint64_t upto = 0;
    // Acknowledged beyond the cursor: each needs a row of its own.
    std::vector<std::uint64_t> to_store;
  };
  // Moves the cursor forward, at most to the last sequence, never back.
  Passed pass(SinkId sink, std::uint64_t cursor);

  // An event that others wait for, which this sink is to get as one to be tried again.
  void park(SinkId sink, const EventSummary& event);
  // The same for one of its dead letters.
  void retry_dead(SinkId sink, const EventSummary& event);
  // True: it lies beyond the cursor, so that its row must say that it is settled. False: its row is
  // no longer needed.
  bool discard_dead(SinkId sink, std::uint64_t seq);

  // Configuration

  struct Registered {
    SinkId id = 0;
    bool is_new = false;         // it gets everything that the journal still holds
    bool returned = false;       // it was absent until now
    bool kinds_changed = false;  // all three: the caller stores the row and recounts
  };
  Registered register_sink(const std::string& name, const std::vector<std::string>& kinds,
                           SinkId id_if_new);
  void remove(SinkId id) { now_.rows.erase(id); }
  // Sinks of other names become absent; returns those that were not absent before.
  std::vector<SinkId> retire_others(const std::vector<std::string>& configured);

  // Sinks that wait for nothing, but whose cursor is behind the last event: their kinds may leave
  // out the newest events, which they must not hold, or the newest are dead letters.
  std::vector<SinkId> idle() const;
  void pass_idle(SinkId id);

  // Counts a sink's events afresh: restart_count(), then recount() for every event beyond its
  // cursor. `parked_in_archive`: of its parked events, those that only an archive holds.
  void restart_count(SinkId id, std::uint64_t parked_in_archive);
  void recount(SinkId id, const EventSummary& event);

 private:
  struct Books {
    std::map<SinkId, std::shared_ptr<SinkRow>> rows;
    std::uint64_t last_seq = 0;
  };
  SinkRow& change(SinkId id);

  Books now_, before_;
};

}  // namespace scriptorium::journal
