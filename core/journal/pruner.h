#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/time.h"
#include "core/journal/event_table.h"
#include "core/journal/sink_ledger.h"
#include "core/journal/sink_tables.h"

namespace scriptorium::journal {

// Removes events that no sink needs any more: those up to the lowest cursor that no exception names
// and no absent sink keeps. Each removal touches pages all over the indices, and many together
// touch hardly more of them than a few; so it waits until there is much to remove, or a while has
// passed. Threads: the writer's. Borrows everything it is given.
class Pruner {
 public:
  Pruner(Connection& connection, EventTable& events, ExceptionTable& exceptions,
         const SinkLedger& ledger)
      : connection_(connection), events_(events), exceptions_(exceptions), ledger_(ledger) {}

  void begin();
  void rollback(SteadyTime now);

  void want() { now_.more = true; }  // there may be something to remove
  // It lost an exception, so nothing may hold it any more although the pruner has passed it.
  void reconsider(std::uint64_t seq) { reconsidered_.push_back(seq); }
  void reconsider_none() { reconsidered_.clear(); }
  // Everything after `seq` is to be considered again: who holds what has changed.
  void restart_after(std::uint64_t seq) { now_.upto = std::min(now_.upto, seq); }
  void settled(std::uint64_t bytes) { settled_bytes_ += bytes; }

  enum class Extent {
    kReconsidered,  // only what lost an exception: a command is tried once, so it does no more
    kIfMuch,        // and the rest, once there is much of it
    kAll,           // however little it is
  };
  // `urgent`: a caller waits for this commit, so it removes only a little.
  void prune(Extent extent, bool urgent, SteadyTime now);

  bool has_more() const { return now_.more; }  // to be removed in the next transaction
  // Since when it leaves events that nothing needs; empty: it does not.
  std::optional<SteadyTime> deferred_since() const { return deferred_since_; }

 private:
  struct Progress {
    std::uint64_t upto = 0;  // everything up to here was removed, or is held by an exception
    bool more = false;
  };
  void prune_reconsidered(std::uint64_t lowest);
  void prune_chunk(std::uint64_t lowest, std::int64_t most);

  Connection& connection_;
  EventTable& events_;
  ExceptionTable& exceptions_;
  const SinkLedger& ledger_;
  Progress now_, before_;
  std::optional<SteadyTime> deferred_since_;
  std::uint64_t settled_bytes_ = 0;  // since the last removal; approximate, a rollback keeps it
  std::vector<std::uint64_t> reconsidered_;
};

}  // namespace scriptorium::journal
