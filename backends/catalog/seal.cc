#include "backends/catalog/seal.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "backends/catalog/words.h"
#include "core/base/fault_point.h"

namespace scriptorium::catalog {
Sealer::Sealer(sqlite::Connection& db, ContentWriter& contents)
    : db_(db),
      contents_(contents),
      select_(db,
              "SELECT id, base, newest, oldest, data FROM pending WHERE kind = ? AND owner = ? "
              "ORDER BY id"),
      delete_(db, "DELETE FROM pending WHERE kind = ? AND owner = ?"),
      insert_block_(db,
                    "INSERT INTO blocks(owner, kind, raw, count, garbage, ids, data) "
                    "VALUES(?, ?, ?, ?, 0, ?, ?)"),
      place_(db, "UPDATE contents SET block = ?, place = ? WHERE id = ?"),
      insert_script_block_(db, "INSERT INTO script_blocks VALUES(?, ?, ?, ?, ?)"),
      insert_words_(db, "INSERT INTO words(rowid, w) VALUES(?, ?)"),
      insert_places_(db, "INSERT INTO places VALUES(?, ?)"),
      insert_pairs_(db, "INSERT INTO pairs VALUES(?, ?)"),
      select_block_(db, "SELECT garbage, ids, data FROM blocks WHERE id = ?"),
      select_script_block_(db, "SELECT newest, oldest FROM script_blocks WHERE id = ?"),
      delete_block_(db, "DELETE FROM blocks WHERE id = ?"),
      delete_script_block_(db, "DELETE FROM script_blocks WHERE id = ?"),
      delete_pairs_(db, "DELETE FROM pairs WHERE id = ?") {}

bool Sealer::seal_due() {
  std::size_t left = kBlocksPerStep;
  const std::vector<PendingKey> full(contents_.full().begin(), contents_.full().end());
  for (const PendingKey key : full) {
    if (left == 0 || !db_.ok()) return db_.ok();
    seal(key, left);
  }
  return seal_quietest(ContentKind::kScript, kMostPendingScripts, left) ||
         seal_quietest(ContentKind::kEnvironment, kMostPendingEnvironments, left) ||
         seal_quietest(ContentKind::kRecord, kMostPendingRecords, left);
}

bool Sealer::seal_all() {
  std::size_t left = kBlocksPerStep;
  std::vector<PendingKey> waiting;
  for (const auto& [key, sum] : contents_.pending()) {
    if (sum.raw > 0) waiting.push_back(key);
  }
  std::sort(waiting.begin(), waiting.end());
  for (const PendingKey key : waiting) {
    if (left == 0 || !db_.ok()) return db_.ok();
    seal(key, left);
  }
  return false;
}

bool Sealer::seal_quietest(ContentKind kind, std::uint64_t limit, std::size_t& blocks_left) {
  auto& list = quietest_[static_cast<std::size_t>(kind)];
  bool is_new = false;
  while (contents_.pending_bytes(kind) > limit && db_.ok()) {
    if (blocks_left == 0) return true;
    if (list.empty()) {
      if (std::exchange(is_new, true)) return false;
      for (const auto& [key, sum] : contents_.pending()) {
        if (key.kind == kind && sum.raw > 0) list.emplace_back(sum.last_added, key);
      }
      std::sort(list.rbegin(), list.rend());
      continue;
    }
    const auto [last_added, key] = list.back();
    list.pop_back();
    const auto sum = contents_.pending().find(key);
    if (sum != contents_.pending().end() && sum->second.last_added == last_added)
      seal(key, blocks_left);
  }
  return false;
}

void Sealer::seal(PendingKey key, std::size_t& blocks_left) {
  std::vector<Pending> all;
  if (!read_pending(key, all) || all.empty()) return;
  std::uint64_t left = 0;
  for (const Pending& one : all) left += one.bytes.size();
  Batch batch;
  for (Pending& one : all) {
    batch.ids.push_back(one.id);
    batch.newest = std::max(batch.newest, one.newest);
    batch.oldest = std::min(batch.oldest, one.oldest);
    batch.raw += one.bytes.size();
    left -= one.bytes.size();
    batch.contents.push_back(std::move(one.bytes));
    // What is left over makes no block of its own after a full one.
    if (&one != &all.back() && (batch.raw < kBlockBytes || left < kBlockBytes)) continue;
    take_young_blocks(key, batch);
    const std::int64_t block = write_block(key, batch);
    remove_merged(key, batch);
    if (batch.raw < kBlockBytes) young_blocks_[key].push_back({block, batch.raw});
    if (blocks_left > 0) --blocks_left;
    batch = {};
  }
  delete_.run(key.kind, key.owner);
  if (db_.ok()) contents_.note_sealed(key);
}

// Everything that waits, the oldest first, since others may be packed against it.
bool Sealer::read_pending(PendingKey key, std::vector<Pending>& into) {
  std::unordered_map<std::int64_t, std::size_t> places;
  select_.bind(key.kind, key.owner);
  while (select_.step()) {
    std::optional<std::int64_t> base;
    Pending one;
    std::optional<std::int64_t> newest;
    std::optional<std::int64_t> oldest;
    select_.read(one.id, base, newest, oldest);
    const auto prefix = base ? places.find(*base) : places.end();
    auto unpacked = base && prefix == places.end()
                        ? Result<Block>(Error{ErrorKind::kCorrupt, "its base is missing"})
                        : Block::unpack(select_.text(4), std::size_t{1} << 30,
                                        base ? std::string_view(into[prefix->second].bytes)
                                             : std::string_view{});
    if (unpacked && unpacked->size() != 1)
      unpacked = Error{ErrorKind::kCorrupt, "is not one content"};
    if (!unpacked) {
      select_.reset();
      db_.fail(unpacked.error().with_context("pending content " + std::to_string(one.id)));
      return false;
    }
    one.newest = newest.value_or(0);
    one.oldest = oldest.value_or(0);
    one.bytes = (*unpacked)[0];
    places.emplace(one.id, into.size());
    into.push_back(std::move(one));
  }
  return db_.ok();
}

void Sealer::load_young_blocks() {
  young_blocks_.clear();
  quietest_ = {};
  sqlite::Statement select(db_,
                           "SELECT s.owner, s.id, b.raw FROM script_blocks s JOIN blocks b ON b.id "
                           "= s.id WHERE s.young ORDER BY s.id");
  while (select.step()) {
    young_blocks_[{ContentKind::kScript, select.integer(0)}].push_back(
        {select.integer(1), static_cast<std::size_t>(select.integer(2))});
  }
  sqlite::Statement others(db_,
                           "SELECT kind, owner, id, raw FROM blocks WHERE kind <> ? AND raw < ? "
                           "ORDER BY id");
  others.bind(ContentKind::kScript, kBlockBytes);
  while (others.step()) {
    PendingKey key;
    YoungBlock young;
    others.read(key.kind, key.owner, young.id, young.raw);
    young_blocks_[key].push_back(young);
  }
}

void Sealer::take_young_blocks(PendingKey key, Batch& batch) {
  const auto found = young_blocks_.find(key);
  if (found == young_blocks_.end()) return;
  std::vector<YoungBlock>& young = found->second;
  std::size_t sum = batch.raw;
  for (const YoungBlock& one : young) sum += one.raw;
  const bool all = sum >= kBlockBytes;
  while (!young.empty() && batch.raw < kBlockBytes &&
         (all || young.back().raw <= kMergedTimes * batch.raw)) {
    take_young_block(key, young.back(), batch);
    young.pop_back();
  }
  if (young.empty()) young_blocks_.erase(found);
}

// One that is damaged or has garbage stays as it is.
bool Sealer::take_young_block(PendingKey key, const YoungBlock& young, Batch& batch) {
  if (!select_block_.bind(young.id).step()) return false;
  const bool has_garbage = select_block_.integer(0) != 0;
  const auto ids = unpack_ids(select_block_.text(1));
  const auto block = Block::unpack(select_block_.text(2));
  select_block_.reset();
  if (has_garbage || !ids || !block || ids->size() != block->size()) return false;
  if (key.kind == ContentKind::kScript) {
    if (!select_script_block_.bind(young.id).step()) return false;
    batch.newest = std::max(batch.newest, select_script_block_.integer(0));
    batch.oldest = std::min(batch.oldest, select_script_block_.integer(1));
    select_script_block_.reset();
  }
  std::vector<std::string> contents;
  for (std::size_t place = 0; place < block->size(); ++place)
    contents.emplace_back((*block)[place]);
  batch.ids.insert(batch.ids.begin(), ids->begin(), ids->end());
  batch.contents.insert(batch.contents.begin(), std::make_move_iterator(contents.begin()),
                        std::make_move_iterator(contents.end()));
  batch.raw += young.raw;
  batch.merged.push_back(young.id);
  return true;
}

// After the new block is written: else the new one would get the id of the old one, which readers
// keep unpacked.
void Sealer::remove_merged(PendingKey key, const Batch& batch) {
  for (const std::int64_t block : batch.merged) {
    if (key.kind == ContentKind::kScript) {
      delete_pairs_.run(block);
      delete_script_block_.run(block);
    }
    delete_block_.run(block);
  }
}

std::int64_t Sealer::write_block(PendingKey key, const Batch& batch) {
  const std::vector<std::string_view> views(batch.contents.begin(), batch.contents.end());
  const bool scripts = key.kind == ContentKind::kScript;
  const bool young = batch.raw < kBlockBytes;
  const std::string packed = pack_block(views, kSealedLevel);
  const std::string packed_ids = pack_ids(batch.ids);
  insert_block_.run(key.owner, key.kind, batch.raw, batch.ids.size(), sqlite::Large{packed_ids},
                    sqlite::Large{packed});
  const std::int64_t block = db_.last_insert_id();
  for (std::size_t place = 0; place < batch.ids.size(); ++place) {
    place_.run(block, place, batch.ids[place]);
  }
  if (scripts) {
    const auto unpacked = Block::unpack(packed);
    if (!unpacked) {
      db_.fail(unpacked.error());
      return block;
    }
    insert_script_block_.run(block, key.owner, batch.newest, batch.oldest, young);
    if (young) {
      const std::string filter = filter_of_words(*unpacked);
      insert_pairs_.run(block, sqlite::Large{filter});
    } else {
      const BlockWords words = words_of(*unpacked);
      insert_words_.run(block, words.list);
      insert_pairs_.run(block, sqlite::Large{words.filter});
      insert_places_.run(block, sqlite::Large{words.places});
    }
  }
  FAULT_POINT("catalog.block_written");
  return block;
}

}  // namespace scriptorium::catalog
