#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/journal/codec.h"
#include "core/journal/journal_types.h"
#include "core/journal/sqlite.h"

namespace scriptorium::journal {

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
