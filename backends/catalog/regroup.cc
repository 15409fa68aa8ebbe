#include "backends/catalog/regroup.h"

#include <algorithm>
#include <memory>
#include <tuple>

#include "backends/catalog/block.h"
#include "backends/catalog/store_contents.h"
#include "backends/catalog/words.h"

namespace scriptorium::catalog {
namespace {

std::int64_t kind_number(ContentKind kind) { return static_cast<std::int64_t>(kind); }

// The text of a block's words, as it must be given to remove them.
void remove_words(Connection& db, std::int64_t block, const Block& unpacked) {
  if (db.integer("SELECT 1 FROM script_blocks WHERE id = ? AND NOT young", block)) {
    db.run("INSERT INTO words(words, rowid, w) VALUES('delete', ?, ?)", block,
           words_of(unpacked).list);
  }
  db.run("DELETE FROM pairs WHERE id = ?", block);
  db.run("DELETE FROM places WHERE id = ?", block);
  db.run("DELETE FROM script_blocks WHERE id = ?", block);
}

struct Live {
  std::int64_t id = 0;
  std::string_view bytes;
};

struct Span {
  std::int64_t newest = INT64_MIN;
  std::int64_t oldest = INT64_MAX;
  void add(std::int64_t to, std::int64_t from) {
    newest = std::max(newest, to);
    oldest = std::min(oldest, from);
  }
};

// Of the jobs that use these scripts.
Span span_of(Connection& db, const std::vector<Live>& scripts) {
  Span span;
  sqlite::Statement times(db, "SELECT max(time), min(time) FROM jobs WHERE script = ?");
  for (const Live& script : scripts) {
    if (times.bind(script.id).step() && !times.is_null(0))
      span.add(times.integer(0), times.integer(1));
    times.reset();
  }
  return span.newest < span.oldest ? Span{0, 0} : span;
}

void add_block(Connection& db, std::int64_t id, const Regrouping& regrouping,
               const std::vector<Live>& contents) {
  std::vector<std::string_view> bytes;
  std::vector<std::int64_t> ids;
  std::size_t raw = 0;
  for (const Live& content : contents) {
    bytes.push_back(content.bytes);
    ids.push_back(content.id);
    raw += content.bytes.size();
  }
  const bool scripts = regrouping.kind == ContentKind::kScript;
  const std::string data = pack_block(bytes, kFinishedLevel);
  const std::string packed_ids = pack_ids(ids);
  db.run(
      "INSERT INTO blocks(id, owner, kind, raw, count, garbage, ids, data) "
      "VALUES(?, ?, ?, ?, ?, 0, ?, ?)",
      id, regrouping.owner, kind_number(regrouping.kind), raw, contents.size(),
      sqlite::Large{packed_ids}, sqlite::Large{data});
  sqlite::Statement move(db, "UPDATE contents SET block = ?, place = ? WHERE id = ?");
  for (std::size_t place = 0; place < ids.size(); ++place) move.run(id, place, ids[place]);
  if (!scripts) return;
  auto block = Block::unpack(data);
  if (!block) return db.fail(block.error());
  const BlockWords words = words_of(*block);
  const Span span = span_of(db, contents);
  db.run("INSERT INTO words(rowid, w) VALUES(?, ?)", id, words.list);
  db.run("INSERT INTO pairs VALUES(?, ?)", id, sqlite::Blob{words.filter});
  db.run("INSERT INTO places VALUES(?, ?)", id, sqlite::Blob{words.places});
  db.run("INSERT INTO script_blocks(id, owner, newest, oldest, young) VALUES(?, ?, ?, ?, 0)", id,
         regrouping.owner, span.newest, span.oldest);
}

// The sources' contents that are still in use, in the order in which they came.
class Unpacked {
 public:
  explicit Unpacked(Connection& db) : db_(db), pending_(db) {}

  // False: it cannot be unpacked.
  bool add(const Source& source) {
    std::vector<std::int64_t> ids;
    auto block = source.pending ? pending_.read(source.id) : read_block(source.id, ids);
    // It is gone: nothing to move.
    if (!block && block.error().kind() == ErrorKind::kVanished) return db_.ok();
    if (!block) return false;
    blocks_.push_back(std::make_unique<Block>(*std::move(block)));
    const Block& unpacked = *blocks_.back();
    if (source.pending) {
      live_.push_back({source.id, unpacked[0]});
      return true;
    }
    sqlite::Statement find(db_, "SELECT place FROM contents WHERE id = ? AND block = ?");
    for (const std::int64_t id : ids) {
      if (find.bind(id, source.id).step() && find.number(0) < unpacked.size())
        live_.push_back({id, unpacked[find.number(0)]});
      find.reset();
    }
    return true;
  }
  const Block& last() const { return *blocks_.back(); }
  std::size_t blocks() const noexcept { return blocks_.size(); }
  std::vector<Live>& live() noexcept { return live_; }

 private:
  // `ids`: of its contents; some may be gone or elsewhere now.
  Result<Block> read_block(std::int64_t id, std::vector<std::int64_t>& ids) {
    sqlite::Statement select(db_, "SELECT data, ids FROM blocks WHERE id = ?");
    if (!select.bind(id).step()) return Error{ErrorKind::kVanished, "is gone"};
    auto block = Block::unpack(select.text(0));
    if (!block) return block;
    auto unpacked = unpack_ids(select.text(1));
    if (!unpacked || unpacked->size() != block->size())
      return Error{ErrorKind::kCorrupt, "its list of contents is damaged"};
    ids = *std::move(unpacked);
    return block;
  }

  Connection& db_;
  PendingReader pending_;
  std::vector<std::unique_ptr<Block>> blocks_;  // live_ points into them
  std::vector<Live> live_;
};

}  // namespace

std::vector<Source> regroup(Connection& db, const Regrouping& regrouping, std::size_t most_bytes) {
  std::vector<Source> damaged;
  const bool scripts = regrouping.kind == ContentKind::kScript;
  // A number that was never used: a reader may still know what the old ones held.
  std::int64_t next = db.integer("SELECT max(id) FROM blocks").value_or(0) + 1;
  Unpacked unpacked(db);
  std::vector<std::int64_t> pending;
  for (const Source& source : regrouping.sources) {
    const std::size_t before = unpacked.blocks();
    if (!unpacked.add(source)) {
      damaged.push_back(source);
      continue;
    }
    if (unpacked.blocks() == before) continue;
    if (source.pending) {
      pending.push_back(source.id);
      continue;
    }
    if (scripts) remove_words(db, source.id, unpacked.last());
    db.run("DELETE FROM blocks WHERE id = ?", source.id);
  }
  // The last ones first, so that only what remains is packed again.
  for (auto id = pending.rbegin(); id != pending.rend(); ++id) {
    release_pending(db, *id);
    db.run("DELETE FROM pending WHERE id = ?", *id);
  }
  std::vector<Live> group;
  std::size_t bytes = 0;
  for (const Live& content : unpacked.live()) {
    if (!group.empty() && bytes + content.bytes.size() > most_bytes) {
      add_block(db, next++, regrouping, group);
      group.clear();
      bytes = 0;
    }
    group.push_back(content);
    bytes += content.bytes.size();
  }
  if (!group.empty()) add_block(db, next, regrouping, group);
  return damaged;
}

namespace {

struct BlockRow {
  std::int64_t owner = 0;
  std::int64_t kind = 0;
  bool garbage = false;
  Source source;
};

Result<std::vector<BlockRow>> rows_to_regroup(Connection& db, std::size_t most_bytes) {
  std::vector<BlockRow> rows;
  sqlite::Statement blocks(
      db,
      "SELECT owner, kind, garbage, id, raw, young FROM (SELECT *, id IN (SELECT id FROM "
      "script_blocks WHERE young) AS young FROM blocks) WHERE garbage > 0 OR raw < ? OR young");
  blocks.bind(most_bytes / 2);
  while (blocks.step()) {
    // A young block gets its words by being written once more.
    rows.push_back({blocks.integer(0),
                    blocks.integer(1),
                    blocks.integer(2) > 0 || blocks.integer(5) != 0,
                    {false, blocks.integer(3), blocks.integer(4)}});
  }
  sqlite::Statement pending(db, "SELECT owner, kind, id, raw FROM pending");
  while (pending.step()) {
    rows.push_back({pending.integer(0),
                    pending.integer(1),
                    false,
                    {true, pending.integer(2), pending.integer(3)}});
  }
  if (auto error = db.take_error()) return *std::move(error);
  std::sort(rows.begin(), rows.end(), [](const BlockRow& a, const BlockRow& b) {
    return std::tie(a.kind, a.owner, a.source.pending, a.source.id) <
           std::tie(b.kind, b.owner, b.source.pending, b.source.id);
  });
  return rows;
}

// Neighbours of one owner and kind, as many as make one block. A block alone stays, unless it has
// garbage.
std::vector<Regrouping> groups_of(const std::vector<BlockRow>& rows, std::size_t most_bytes) {
  std::vector<Regrouping> groups;
  bool useful = false;
  std::int64_t bytes = 0;
  const auto end_group = [&] {
    if (!groups.empty() && !useful) groups.pop_back();
    useful = false;
    bytes = 0;
  };
  for (const BlockRow& row : rows) {
    const auto kind = static_cast<ContentKind>(row.kind);
    const bool fits = !groups.empty() && !groups.back().sources.empty() &&
                      groups.back().owner == row.owner && groups.back().kind == kind && bytes > 0 &&
                      bytes + row.source.raw <= static_cast<std::int64_t>(most_bytes);
    if (!fits) {
      end_group();
      groups.push_back({row.owner, kind, {}});
    }
    groups.back().sources.push_back(row.source);
    bytes += std::max<std::int64_t>(1, row.source.raw);
    useful = useful || row.garbage || row.source.pending || groups.back().sources.size() > 1;
  }
  end_group();
  return groups;
}

}  // namespace

Result<std::vector<Regrouping>> groups_to_regroup(Connection& db) {
  const auto rows = rows_to_regroup(db, kSealedBlockBytes);
  if (!rows) return rows.error();
  return groups_of(*rows, kSealedBlockBytes);
}

}  // namespace scriptorium::catalog
