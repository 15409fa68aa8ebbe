#include "backends/catalog/store_contents.h"

#include <algorithm>
#include <vector>

#include "core/base/text.h"

namespace scriptorium::catalog {
namespace {

// Contents beyond this are neither a base nor packed against one.
constexpr std::size_t kMostBaseBytes = std::size_t{64} << 10;
// Bases whose bytes are in memory, and the largest of the small ones: 24 MiB of each at most.
constexpr std::size_t kMostSmallBases = 4'096;
constexpr std::size_t kMostSmallBytes = std::size_t{6} << 10;
constexpr std::size_t kMostLargeBases = 384;
// A base of a family has the owner's first base; there are no longer chains.
constexpr int kMostBaseDepth = 2;

}  // namespace

std::int64_t content_key(std::string_view sha) noexcept {
  std::uint64_t key = 0;
  for (std::size_t i = 0; i < 8 && i < sha.size(); ++i)
    key = (key << 8) | static_cast<unsigned char>(sha[i]);
  return static_cast<std::int64_t>(key);
}

// ---- reading

PendingReader::PendingReader(sqlite::Connection& db)
    : db_(db), select_(db, "SELECT base, data FROM pending WHERE id = ?") {}

Result<Block> PendingReader::read(std::int64_t content, int depth) {
  const auto fail = [&](const std::string& what) -> Error {
    return {ErrorKind::kCorrupt, "content " + std::to_string(content) + ": " + what};
  };
  if (!select_.bind(content).step()) {
    if (auto error = db_.take_error()) return *std::move(error);
    if (depth > 0) return fail("is missing, and others are packed against it");
    return Error{ErrorKind::kVanished, "content " + std::to_string(content) + " is not pending"};
  }
  std::optional<std::int64_t> base;
  select_.read(base);
  const std::string data(select_.text(1));
  select_.reset();
  std::optional<Result<Block>> prefix;
  if (base) {
    if (depth >= kMostBaseDepth) return fail("is packed against too many others");
    prefix.emplace(read(*base, depth + 1));
    if (!*prefix) return prefix->error();
  }
  auto block =
      Block::unpack(data, std::size_t{1} << 30, prefix ? (**prefix)[0] : std::string_view{});
  if (!block) return fail(block.error().message());
  if (block->size() != 1) return fail("its pending bytes are not one content");
  return block;
}

void release_pending(sqlite::Connection& db, std::int64_t content) {
  std::vector<std::int64_t> dependents;
  {
    sqlite::Statement select(db,
                             "SELECT d.id FROM pending b JOIN pending d ON d.kind = b.kind AND "
                             "d.owner = b.owner AND d.base = b.id WHERE b.id = ?");
    select.bind(content);
    while (select.step()) dependents.push_back(select.integer(0));
  }
  if (dependents.empty()) return;
  PendingReader reader(db);
  for (const std::int64_t dependent : dependents) {
    const auto block = reader.read(dependent);
    if (!block) return db.fail(block.error());
    const std::string packed = pack_block({(*block)[0]}, kPendingLevel);
    db.run("UPDATE pending SET base = NULL, data = ? WHERE id = ?", sqlite::Large{packed},
           dependent);
  }
}

ContentReader::ContentReader(sqlite::Connection& db)
    : db_(db),
      place_(db, "SELECT block, place FROM contents WHERE id = ?"),
      pending_(db),
      block_data_(db, "SELECT data FROM blocks WHERE id = ?") {}

Result<std::string> ContentReader::read(std::int64_t content) {
  const auto fail = [&](const std::string& what) -> Error {
    if (auto error = db_.take_error()) return *std::move(error);
    return {ErrorKind::kCorrupt, "content " + std::to_string(content) + ": " + what};
  };
  std::optional<std::int64_t> block;
  std::int64_t place = 0;
  if (!place_.bind(content).step()) {
    if (auto error = db_.take_error()) return *std::move(error);
    return Error{ErrorKind::kVanished, "there is no content " + std::to_string(content)};
  }
  place_.read(block, place);
  place_.reset();
  if (!block) {
    const auto unpacked = pending_.read(content);
    if (unpacked) return std::string((*unpacked)[0]);
    if (unpacked.error().kind() == ErrorKind::kVanished)
      return fail("is neither pending nor in a block");
    return unpacked.error();
  }
  if (block_ != *block || !unpacked_) {
    forget();
    if (!block_data_.bind(*block).step())
      return fail("its block " + std::to_string(*block) + " is missing");
    auto unpacked = Block::unpack(block_data_.text(0));
    block_data_.reset();
    if (!unpacked) return unpacked.error().with_context("block " + std::to_string(*block));
    unpacked_.emplace(*std::move(unpacked));
    block_ = *block;
  }
  if (place < 0 || static_cast<std::size_t>(place) >= unpacked_->size())
    return fail("its block " + std::to_string(*block) + " has no such place");
  return std::string((*unpacked_)[static_cast<std::size_t>(place)]);
}

// ---- writing

std::int64_t PendingSum::base_of(std::uint64_t family) const noexcept {
  for (const auto& [of, base] : bases) {
    if (of == family) return base;
  }
  return 0;
}

ContentWriter::ContentWriter(sqlite::Connection& db)
    : db_(db),
      find_script_(db, "SELECT id, block, sha FROM contents WHERE key = ? AND owner = ?"),
      insert_(db, "INSERT INTO contents(owner, kind, key, sha) VALUES(?, ?, ?, ?)"),
      insert_pending_(db,
                      "INSERT INTO pending(id, owner, kind, base, raw, newest, oldest, data) "
                      "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7)"),
      pending_used_(db,
                    "UPDATE pending SET newest = max(newest, ?2), oldest = min(oldest, ?2) "
                    "WHERE id = ?1 AND (newest < ?2 OR oldest > ?2)"),
      block_used_(db,
                  "UPDATE script_blocks SET newest = max(newest, ?2), oldest = min(oldest, ?2) "
                  "WHERE id = ?1 AND (newest < ?2 OR oldest > ?2)"),
      select_(db, "SELECT owner, kind, block FROM contents WHERE id = ?"),
      delete_(db, "DELETE FROM contents WHERE id = ?"),
      select_pending_(db, "SELECT raw FROM pending WHERE id = ?"),
      delete_pending_(db, "DELETE FROM pending WHERE id = ?"),
      add_garbage_(db, "UPDATE blocks SET garbage = garbage + 1 WHERE id = ?"),
      read_pending_(db),
      small_bases_(kMostSmallBases),
      large_bases_(kMostLargeBases) {}

std::int64_t ContentWriter::add_script(std::int64_t owner, std::string_view bytes,
                                       std::string_view sha256, std::uint64_t family,
                                       Timestamp job_time) {
  const std::string sha = hex_decode(sha256).value_or(std::string(sha256));
  find_script_.bind(content_key(sha), owner);
  while (find_script_.step()) {
    if (find_script_.text(2) != sha) continue;
    const std::int64_t id = find_script_.integer(0);
    std::optional<std::int64_t> block;
    if (!find_script_.is_null(1)) block = find_script_.integer(1);
    find_script_.reset();
    used_again(id, block, job_time);
    return id;
  }
  return insert({ContentKind::kScript, owner}, bytes, sha, family, job_time);
}

std::int64_t ContentWriter::add(std::int64_t owner, ContentKind kind, std::string_view bytes,
                                Timestamp job_time) {
  return insert({kind, owner}, bytes, {}, 0, job_time);
}

std::int64_t ContentWriter::insert(PendingKey key, std::string_view bytes, std::string_view sha,
                                   std::uint64_t family, Timestamp job_time) {
  insert_.bind(key.owner, key.kind);
  if (sha.empty()) {
    insert_.bind(nullptr, nullptr);
  } else {
    insert_.bind(content_key(sha), sqlite::Blob{sha});
  }
  if (!insert_.run()) return 0;
  const std::int64_t id = db_.last_insert_id();
  PendingSum& sum = pending_[key];
  insert_pending(id, key, sum, bytes, family, job_time);
  sum.raw += bytes.size();
  sum.last_added = id;
  if (sum.raw >= kBlockBytes) full_.insert(key);
  totals_[static_cast<std::size_t>(key.kind)] += bytes.size();
  return id;
}

// Near copies have one family. The first script of a family is packed against the owner's first
// pending one: they share at least what a site's scripts have in common.
void ContentWriter::insert_pending(std::int64_t id, PendingKey key, PendingSum& sum,
                                   std::string_view bytes, std::uint64_t family,
                                   Timestamp job_time) {
  const bool may_have_base = bytes.size() <= kMostBaseBytes;
  std::int64_t base = may_have_base ? sum.base_of(family) : 0;
  const bool is_base = may_have_base && base == 0;
  if (is_base) {
    base = sum.base_of(0);
    if (base == 0) sum.bases.emplace_back(0, id);
    if (family != 0) sum.bases.emplace_back(family, id);
  }
  const std::string* const prefix = base != 0 ? bytes_of(base) : nullptr;
  const std::string packed =
      pack_block({bytes}, kPendingLevel, prefix != nullptr ? *prefix : std::string_view{});
  if (is_base) remember(id, bytes);
  insert_pending_.bind(id, key.owner, key.kind);
  if (prefix != nullptr) {
    insert_pending_.bind(base);
  } else {
    insert_pending_.bind(nullptr);
  }
  insert_pending_.bind(bytes.size());
  if (key.kind == ContentKind::kScript) {
    insert_pending_.bind(job_time);
  } else {
    insert_pending_.bind(nullptr);
  }
  insert_pending_.run(sqlite::Large{packed});
}

const std::string* ContentWriter::bytes_of(std::int64_t base) {
  if (const std::string* known = small_bases_.find(base)) return known;
  if (const std::string* known = large_bases_.find(base)) return known;
  const auto block = read_pending_.read(base);
  if (!block) return nullptr;  // damaged: nothing is packed against it
  return remember(base, (*block)[0]);
}

const std::string* ContentWriter::remember(std::int64_t base, std::string_view bytes) {
  auto& bases = bytes.size() <= kMostSmallBytes ? small_bases_ : large_bases_;
  return &bases.insert(base, std::string(bytes));
}

void ContentWriter::forget_bases(PendingKey key) {
  const auto found = pending_.find(key);
  if (found == pending_.end()) return;
  for (const auto& [family, base] : found->second.bases) {
    small_bases_.erase(base);
    large_bases_.erase(base);
  }
  found->second.bases.clear();
}

void ContentWriter::used_again(std::int64_t content, std::optional<std::int64_t> block,
                               Timestamp job_time) {
  if (block) {
    block_used_.run(*block, job_time);
  } else {
    pending_used_.run(content, job_time);
  }
}

void ContentWriter::remove(std::int64_t content) {
  if (!select_.bind(content).step()) return;
  PendingKey key;
  std::optional<std::int64_t> block;
  select_.read(key.owner, key.kind, block);
  select_.reset();
  if (block) {
    add_garbage_.run(*block);
  } else if (const auto raw = select_pending_.first(content)) {
    release_pending(db_, content);
    forget_bases(key);
    delete_pending_.run(content);
    subtract(key, static_cast<std::uint64_t>(*raw));
  }
  delete_.run(content);
}

void ContentWriter::note_sealed(PendingKey key) {
  forget_bases(key);
  const auto found = pending_.find(key);
  if (found != pending_.end()) subtract(key, found->second.raw);
}

void ContentWriter::subtract(PendingKey key, std::uint64_t raw) {
  const auto found = pending_.find(key);
  if (found == pending_.end()) return;
  std::uint64_t& total = totals_[static_cast<std::size_t>(key.kind)];
  total -= std::min(raw, total);
  found->second.raw -= std::min(raw, found->second.raw);
  if (found->second.raw < kBlockBytes) full_.erase(key);
  if (found->second.raw == 0) pending_.erase(found);
}

void ContentWriter::load_sums() {
  pending_.clear();
  full_.clear();
  totals_ = {};
  small_bases_.clear();
  large_bases_.clear();
  sqlite::Statement select(
      db_, "SELECT kind, owner, sum(raw), max(id) FROM pending GROUP BY kind, owner");
  while (select.step()) {
    PendingKey key;
    PendingSum sum;
    select.read(key.kind, key.owner, sum.raw, sum.last_added);
    if (static_cast<std::size_t>(key.kind) >= totals_.size()) continue;
    totals_[static_cast<std::size_t>(key.kind)] += sum.raw;
    pending_.emplace(key, sum);
    if (sum.raw >= kBlockBytes) full_.insert(key);
  }
  // Of families it is not known any more which they were.
  sqlite::Statement bases(
      db_,
      "SELECT kind, owner, min(id) FROM pending WHERE base IS NULL AND raw <= ? GROUP BY 1, 2");
  bases.bind(kMostBaseBytes);
  while (bases.step()) {
    PendingKey key;
    std::int64_t id = 0;
    bases.read(key.kind, key.owner, id);
    if (const auto found = pending_.find(key); found != pending_.end())
      found->second.bases.emplace_back(0, id);
  }
}

}  // namespace scriptorium::catalog
