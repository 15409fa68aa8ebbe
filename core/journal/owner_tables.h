#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/journal/codec.h"
#include "core/journal/event_table.h"
#include "core/journal/journal_types.h"
#include "core/journal/sqlite.h"

namespace scriptorium::journal {

// What waits for owner resolution, of one source.
struct UnresolvedCount {
  std::uint64_t events = 0;
  std::uint64_t last_ticket = 0;
};

// The rows of `unresolved`: events whose owner is still to be asked for. Keeps count of them.
// Threads: the writer's. Borrows everything it is given.
class UnresolvedTable {
 public:
  struct Counts {
    std::map<std::string, UnresolvedCount, std::less<>> by_source;
    std::uint64_t events = 0;
    std::uint64_t bytes = 0;  // as stored
    std::uint64_t last_ticket = 0;
  };

  explicit UnresolvedTable(Connection& connection);

  void begin() { before_ = now_; }
  void rollback() { now_ = before_; }
  const Counts& counts() const { return now_; }

  bool contains(const std::string& id);
  // `entry`: its spool entry, if it has a mark.
  void insert(const StoredEvent& row, const std::optional<std::string>& entry);
  std::optional<StoredEvent> find(std::uint64_t ticket);
  void remove(const StoredEvent& row);

 private:
  Statement find_id_, insert_, find_, delete_;
  Counts now_, before_;
};

// The rows of `unverified` and `replaced`: events that were published without a verified owner,
// until somebody can name it, and those that another event then replaces.
// Threads: the writer's. Borrows the connection and the codec.
class UnverifiedTable {
 public:
  UnverifiedTable(Connection& connection, Codec& codec, std::uint64_t max_bytes);

  // Remembers it, unless its metadata are too large, and forgets the oldest above the limit.
  void note(const std::string& source, const Event& event, Timestamp now);
  void change(const std::vector<LaterOwner>& changes);
  std::uint64_t hasten(const std::string& source, Timestamp now);
  void forget(std::uint64_t number);

  // That `seq` replaces the event `id`; false if the journal no longer holds that one.
  bool replace(const std::string& id, std::uint64_t seq);
  // Forgets replaced events that no sink waits for any more; returns the rest, with what replaces
  // each.
  std::vector<std::pair<std::string, std::uint64_t>> load_replaced();

 private:
  Connection& connection_;
  Codec& codec_;
  const std::uint64_t most_;
  Statement note_;
  std::uint64_t noted_ = 0;  // in this run
};

}  // namespace scriptorium::journal
