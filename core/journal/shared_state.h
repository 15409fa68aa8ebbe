#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "core/journal/owner_tables.h"
#include "core/journal/recent_events.h"
#include "core/journal/sink_row.h"

namespace scriptorium::journal {

// What the writer publishes after each commit, for every other thread.
struct Shared {
  // No event that the sink is to get lies in (from, to]: a reader has looked.
  struct Scanned {
    std::uint64_t from = 0, to = 0;
  };
  SinkRows sinks;
  std::map<SinkId, Scanned> scanned;
  std::map<std::string, UnresolvedCount, std::less<>> sources;
  RecentEvents events;
  RecentEvents tickets;
  // Events that another replaces, now that their owner is known, while a sink was still to get
  // them: by id, the sequence of the one that replaces it.
  std::unordered_map<std::string, std::uint64_t> replaced;
  std::uint64_t last_seq = 0;
  std::uint64_t event_count = 0;
  std::uint64_t used_bytes = 0;
  std::uint64_t wal_bytes = 0;
  // By user id: stored bytes of the events of verified users.
  std::map<std::string, std::uint64_t> charges;
  std::uint64_t largest_charge = 0;
  std::uint64_t unresolved_bytes = 0;            // stored bytes of all that wait for their owner
  std::map<std::string, std::size_t> questions;  // by source: Shares::question_count()
  bool share_refused = false;                    // an entry, since the last wait_for_release()
  std::string last_error;

  const SinkRow* sink(SinkId id) const;  // null: there is none
  // False: no event after `after` waits for the sink.
  bool may_have_event(const SinkRow& row, std::uint64_t after) const;
  // The sequence of the event that replaces this one.
  std::optional<std::uint64_t> replaced_by(const Event& event) const;
  // Journal::is_replaced().
  bool is_replaced(SinkId sink, const Event& event) const;
  // Unresolved events of a source, and its last ticket.
  UnresolvedCount unresolved(const std::string& source) const;
  std::size_t question_count(const std::string& source) const;
  void change_charges(const std::map<std::string, std::int64_t>& changes);
  // With what every sink has passed, which then leaves `events`.
  void replace_sinks(SinkRows rows);
};

}  // namespace scriptorium::journal
