#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/catalog/store_contents.h"

namespace scriptorium::catalog {

// Limits of what waits to be sealed in a segment, before compression; above them, owners whose
// newest content is the oldest are sealed early, in smaller blocks. Every search reads the scripts
// that wait, and no search reads records. An environment that waits is a short row beside the
// owner's first one, and small blocks of them take twice the room, so they may wait until 2,000
// owners have most of a block. A record that waits takes twice the room of one in a small block,
// which is worth the packing that is saved.
inline constexpr std::uint64_t kMostPendingScripts = 8 << 20;
inline constexpr std::uint64_t kMostPendingEnvironments = 96 << 20;
inline constexpr std::uint64_t kMostPendingRecords = 64 << 20;
// A young block of an owner is packed once more together with what is sealed after it, unless it is
// more than so many times as large: each content is then packed three or four times until its block
// has kBlockBytes.
inline constexpr std::size_t kMergedTimes = 2;
// Blocks that one transaction may make, so that its commit stays short.
inline constexpr std::size_t kBlocksPerStep = 48;

// Turns pending contents into blocks, with the words and word pairs of scripts, within the caller's
// transaction. Errors stick to the connection.
// Threads: one at a time.
class Sealer {
 public:
  Sealer(sqlite::Connection& db, ContentWriter& contents);

  // Seals whole blocks, and what exceeds the limits. Makes at most kBlocksPerStep blocks; true:
  // there is more to do.
  bool seal_due();
  // Seals everything, likewise in steps.
  bool seal_all();
  // To be called at first, and after a change by another connection.
  void load_young_blocks();

 private:
  struct YoungBlock {
    std::int64_t id = 0;
    std::size_t raw = 0;
  };
  struct Pending {
    std::int64_t id = 0;
    std::int64_t newest = 0;
    std::int64_t oldest = 0;
    std::string bytes;
  };
  // What one block is made of.
  struct Batch {
    std::vector<std::int64_t> ids;
    std::vector<std::string> contents;
    std::size_t raw = 0;
    std::int64_t newest = std::numeric_limits<std::int64_t>::min();
    std::int64_t oldest = std::numeric_limits<std::int64_t>::max();
    std::vector<std::int64_t> merged;  // young blocks that it takes along
  };
  // Everything of an owner that waits.
  void seal(PendingKey key, std::size_t& blocks_left);
  bool read_pending(PendingKey key, std::vector<Pending>& into);
  // Puts the contents of the owner's young blocks before the batch: those that are small, or all of
  // them if it is then full.
  void take_young_blocks(PendingKey key, Batch& batch);
  bool take_young_block(PendingKey key, const YoungBlock& young, Batch& batch);
  void remove_merged(PendingKey key, const Batch& batch);
  std::int64_t write_block(PendingKey key, const Batch& batch);
  bool seal_quietest(ContentKind kind, std::uint64_t limit, std::size_t& blocks_left);

  sqlite::Connection& db_;
  ContentWriter& contents_;
  sqlite::Statement select_;
  sqlite::Statement delete_;
  sqlite::Statement insert_block_;
  sqlite::Statement place_;
  sqlite::Statement insert_script_block_;
  sqlite::Statement insert_words_;
  sqlite::Statement insert_places_;
  sqlite::Statement insert_pairs_;
  sqlite::Statement select_block_;
  sqlite::Statement select_script_block_;
  sqlite::Statement delete_block_;
  sqlite::Statement delete_script_block_;
  sqlite::Statement delete_pairs_;
  // Of each kind, who was quiet the longest when the list was made: the newest content's id. The
  // first is last; who has a newer content since then is passed over.
  std::array<std::vector<std::pair<std::int64_t, PendingKey>>, 3> quietest_;
  // The newest last.
  std::map<PendingKey, std::vector<YoungBlock>> young_blocks_;
};

}  // namespace scriptorium::catalog
