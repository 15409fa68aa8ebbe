#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "backends/catalog/recent.h"
#include "backends/catalog/store_contents.h"
#include "core/api/event.h"
#include "core/api/kit/sqlite/connection.h"
#include "core/base/result.h"

namespace scriptorium::catalog {

// The events of a segment, made from its contents alone: an event's record names the script and the
// environment by their hashes. Neither rows nor indexes are needed, and damaged blocks are left
// out. Nobody else changes the segment meanwhile.
//
// Owns:    an index of all contents, about 24 bytes each; borrows the connection.
// Threads: one at a time.
class Salvage {
 public:
  explicit Salvage(sqlite::Connection& db) : db_(db), pending_(db), blocks_(kMostBlocks) {}

  // Finds all contents; calls progress(done, of), and ends where it returns false. Fails only for
  // what may be better at the next try.
  Result<void> find_contents(const std::function<bool(std::uint64_t, std::uint64_t)>& progress);

  // Records that find_contents() found, those of former versions of an event included.
  std::uint64_t records() const noexcept { return records_.size(); }
  // Each event, the submissions first, else in the order in which they came; until use() returns
  // false. A script or environment that is not here any more has null bytes. An event that another
  // one has replaced is left out.
  Result<void> for_each(const std::function<Result<bool>(Event&&)>& use);

  // The parts that could not be read: "block 17".
  const std::vector<std::string>& damaged() const noexcept { return damaged_; }

 private:
  static constexpr std::size_t kMostBlocks = 256;

  // A content of a block, or a pending one, whose `block` is negative.
  struct Place {
    std::int64_t block = 0;
    std::uint32_t place = 0;
  };
  struct Content {
    std::int64_t key = 0;  // content_key() of its hash
    Place place;
  };
  struct Record {
    std::int64_t content = 0;  // contents.id, which says when it came
    Place place;
    bool is_submission = false;
  };

  void take_block(std::int64_t id, std::int64_t kind, std::string_view ids, const Block& block);
  void take(std::int64_t kind, std::int64_t content, Place place, std::string_view bytes);
  void note_unreadable(const char* table);
  const Block* block_of(Place place);  // valid until the next call; null if it cannot be read
  Bytes find_file(const EventFile& file);

  sqlite::Connection& db_;
  PendingReader pending_;
  RecentMap<std::int64_t, Block> blocks_;
  Block large_;
  std::unordered_set<std::int64_t> named_;  // contents that a row names as records
  std::vector<Content> files_;              // by key
  std::vector<Record> records_;
  std::unordered_set<std::string> replaced_;  // ids of events
  std::vector<std::string> damaged_;
};

}  // namespace scriptorium::catalog
