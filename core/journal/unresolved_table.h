#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/journal/content_store.h"
#include "core/journal/journal_types.h"

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
  struct Row {
    std::uint64_t ticket = 0;
    std::string source, kind, job_id, id, meta;
    std::int64_t captured_at = 0;
    std::uint64_t bytes = 0;
    Content content;
  };

  UnresolvedTable(Connection& connection, Codec& codec);

  void begin() { before_ = now_; }
  void rollback() { now_ = before_; }
  const Counts& counts() const { return now_; }

  bool contains(const std::string& id);
  std::uint64_t insert(const Append& item, const Content& content);  // returns its ticket
  std::optional<Row> find(std::uint64_t ticket);
  void remove(const Row& row);

 private:
  Codec& codec_;
  Statement find_id_, insert_, find_, delete_;
  Counts now_, before_;
};

}  // namespace scriptorium::journal
