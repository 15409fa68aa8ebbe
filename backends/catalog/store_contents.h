#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/catalog/block.h"
#include "backends/catalog/recent.h"
#include "backends/catalog/schema.h"
#include "core/api/kit/sqlite/connection.h"
#include "core/base/result.h"
#include "core/base/time.h"

namespace scriptorium::catalog {

// `contents.key` of a SHA-256 (32 bytes).
std::int64_t content_key(std::string_view sha) noexcept;

// Reads rows of `pending`.
// Threads: one at a time. Fails: kVanished if there is no such row; kCorrupt for one that is
// damaged or whose base is; else as the connection, whose error is taken.
class PendingReader {
 public:
  explicit PendingReader(sqlite::Connection& db);

  // A block of this one content.
  Result<Block> read(std::int64_t content) { return read(content, 0); }

 private:
  Result<Block> read(std::int64_t content, int depth);

  sqlite::Connection& db_;
  sqlite::Statement select_;
};

// Packs again, by themselves, the pending contents whose base this one is, so that it can be
// removed. Within the caller's transaction; an error is the connection's.
void release_pending(sqlite::Connection& db, std::int64_t content);

// Reads contents of one segment, pending or sealed. Keeps the last block, since neighbours are
// often read together.
// Threads: one at a time. Fails: kCorrupt for what is damaged; kVanished if there is no such
// content; else as the connection, whose error is taken.
class ContentReader {
 public:
  explicit ContentReader(sqlite::Connection& db);

  Result<std::string> read(std::int64_t content);
  // After another process may have rewritten blocks.
  void forget() {
    block_ = 0;
    unpacked_.reset();
  }

 private:
  sqlite::Connection& db_;
  sqlite::Statement place_;
  PendingReader pending_;
  sqlite::Statement block_data_;
  std::int64_t block_ = 0;  // that `unpacked_` is
  std::optional<Block> unpacked_;
};

// Whose pending contents of one kind.
struct PendingKey {
  ContentKind kind = ContentKind::kScript;
  std::int64_t owner = 0;
  auto operator<=>(const PendingKey&) const = default;
};
struct HashOfPendingKey {
  std::size_t operator()(const PendingKey& key) const noexcept {
    return static_cast<std::size_t>(key.owner) * 4 + static_cast<std::size_t>(key.kind);
  }
};
struct PendingSum {
  std::uint64_t raw = 0;        // bytes
  std::int64_t last_added = 0;  // the newest content's id
  // Contents against which others are packed: of a family, of kind 0 of none; the family 0 has the
  // first. Of one owner they are few.
  std::vector<std::pair<std::uint64_t, std::int64_t>> bases;
  std::int64_t base_of(std::uint64_t family) const noexcept;  // 0: none
};
using PendingSums = std::unordered_map<PendingKey, PendingSum, HashOfPendingKey>;

// Writes contents within the caller's transaction. Errors stick to the connection.
// Threads: one at a time.
class ContentWriter {
 public:
  explicit ContentWriter(sqlite::Connection& db);

  // Returns contents.id: of the owner's same script, if there is one. `sha256`: 64 hex digits.
  // `family`: 0 for none; scripts of one are packed against each other.
  std::int64_t add_script(std::int64_t owner, std::string_view bytes, std::string_view sha256,
                          std::uint64_t family, Timestamp job_time);
  std::int64_t add(std::int64_t owner, ContentKind kind, std::string_view bytes,
                   Timestamp job_time);
  // Removes a content that nothing names any more. Its block keeps the bytes, as garbage.
  void remove(std::int64_t content);

  // What is pending, by owner and kind, and the sum of each kind.
  const PendingSums& pending() const noexcept { return pending_; }
  // Those that have at least kBlockBytes.
  const std::set<PendingKey>& full() const noexcept { return full_; }
  std::uint64_t pending_bytes(ContentKind kind) const noexcept {
    return totals_[static_cast<std::size_t>(kind)];
  }
  // The sealer took everything of this key from `pending`.
  void note_sealed(PendingKey key);
  // Reads the sums again: at first, and when another process may have changed the table.
  void load_sums();

 private:
  std::int64_t insert(PendingKey key, std::string_view bytes, std::string_view sha,
                      std::uint64_t family, Timestamp job_time);
  void insert_pending(std::int64_t id, PendingKey key, PendingSum& sum, std::string_view bytes,
                      std::uint64_t family, Timestamp job_time);
  // The bytes of a base; null if they cannot be read.
  const std::string* bytes_of(std::int64_t base);
  const std::string* remember(std::int64_t base, std::string_view bytes);
  void forget_bases(PendingKey key);
  void subtract(PendingKey key, std::uint64_t raw);
  void used_again(std::int64_t content, std::optional<std::int64_t> block, Timestamp job_time);

  sqlite::Connection& db_;
  sqlite::Statement find_script_;
  sqlite::Statement insert_;
  sqlite::Statement insert_pending_;
  sqlite::Statement pending_used_;
  sqlite::Statement block_used_;
  sqlite::Statement select_;
  sqlite::Statement delete_;
  sqlite::Statement select_pending_;
  sqlite::Statement delete_pending_;
  sqlite::Statement add_garbage_;
  PendingSums pending_;
  std::set<PendingKey> full_;
  std::array<std::uint64_t, 3> totals_{};
  PendingReader read_pending_;
  RecentMap<std::int64_t, std::string> small_bases_;
  RecentMap<std::int64_t, std::string> large_bases_;
};

}  // namespace scriptorium::catalog
