#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/journal/journal_types.h"
#include "core/journal/schema.h"

namespace scriptorium::journal {

// What a sink's accounts need of an event.
struct EventSummary {
  std::uint64_t seq = 0;
  std::uint64_t bytes = 0;
  std::string kind;
  SinkId target = 0;  // the one sink that it is for; 0 = all, kNoSink = none
  bool in_archive = false;
};

// Events in (after, upto] became visible while the sink was not configured: it wants none of them.
struct Absence {
  static constexpr std::uint64_t kOpen = ~std::uint64_t{0};  // as `upto`: it is not configured now
  std::uint64_t after = 0, upto = kOpen;
};

// The accounts of one sink: what it has, and what it is still to get.
struct SinkRow {
  struct Ahead {
    State state = State::kSettled;
    bool stored = false;  // has its row in `exceptions`
  };
  SinkId id = 0;
  std::string name;
  std::string kinds;  // patterns, one a line
  std::vector<std::string> patterns;
  std::vector<Absence> absences;  // in order
  bool registered = false;
  std::uint64_t cursor = 0;
  std::uint64_t acknowledged = 0;
  std::optional<Timestamp> last_success;
  // Counters, computed once at open and then maintained.
  std::uint64_t pending = 0, pending_bytes = 0;  // wanted, beyond the cursor, not in `ahead`
  std::uint64_t parked = 0, parked_bytes = 0;
  std::uint64_t dead = 0;
  std::uint64_t in_archive = 0;   // of pending and parked: those whose bytes only an archive holds
  std::uint64_t last_wanted = 0;  // highest sequence that it wants
  std::uint64_t generation = 0;   // of the parked ones: changes when a dead letter is retried
  // Events beyond the cursor that are settled, parked or dead, so not pending.
  std::map<std::uint64_t, Ahead> ahead;

  bool is_absent() const { return !absences.empty() && absences.back().upto == Absence::kOpen; }
  // `target`: the one sink that the event is for, 0 or kNoSink.
  bool wants(std::string_view kind, std::uint64_t seq, SinkId target) const;
  // Whether the sink is still to get it.
  bool is_pending(const EventSummary& event) const;
};
using SinkRows = std::map<SinkId, std::shared_ptr<const SinkRow>>;

std::string encode_absences(const std::vector<Absence>& absences);  // "120-450 900-"
std::vector<Absence> decode_absences(std::string_view text);
std::string join_kinds(const std::vector<std::string>& kinds);
std::vector<std::string> split_kinds(const std::string& kinds);

}  // namespace scriptorium::journal
