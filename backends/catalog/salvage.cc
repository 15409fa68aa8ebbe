#include "backends/catalog/salvage.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "backends/catalog/schema.h"
#include "backends/catalog/segments.h"
#include "core/base/sha256.h"
#include "core/base/text.h"

namespace scriptorium::catalog {
namespace {

// No row is smaller, so a file has no more of them, and numbers beyond are damage.
constexpr std::uint64_t kLeastRowBytes = 16;
constexpr std::int64_t kRowsPerNews = 500;
// One of a content that is larger than usual blocks is not kept.
constexpr std::size_t kLargeBlock = std::size_t{512} << 10;

std::int64_t key_of(std::string_view sha256) {
  return content_key(hex_decode(sha256).value_or(""));
}

// Up to which number the rows of a table may go. A damaged page may well state less than there is.
std::int64_t last_row(sqlite::Connection& db, const char* table, bool intact) {
  if (intact) return db.integer(std::string("SELECT max(id) FROM ") + table).value_or(0);
  const std::uint64_t bytes = db.number("PRAGMA page_count") * db.number("PRAGMA page_size");
  return static_cast<std::int64_t>(bytes / kLeastRowBytes);
}

// Damage ends a row, anything else the call.
Result<void> pass_over_damage(sqlite::Connection& db) {
  auto error = db.take_error();
  if (!error || is_damage(*error)) return {};
  return *std::move(error);
}

bool is_kept(const EventFile& file) { return file.name == "script" || file.name == "environment"; }

}  // namespace

// A kind that is damaged hides no record which a row names, and no file from its hash.
void Salvage::take(std::int64_t kind, std::int64_t content, Place place, std::string_view bytes) {
  const bool is_record =
      kind == static_cast<std::int64_t>(ContentKind::kRecord) || named_.contains(content);
  const auto event = is_record ? event_from_json(bytes) : Error{ErrorKind::kCorrupt, ""};
  if (!event) {
    files_.push_back({key_of(sha256_hex(bytes)), place});
    return;
  }
  for (const auto& former : {event->replaces, event->supersedes}) {
    if (former) replaced_.insert(*former);
  }
  records_.push_back({content, place, event->kind == "job.script"});
}

void Salvage::take_block(std::int64_t id, std::int64_t kind, std::string_view ids,
                         const Block& block) {
  const auto contents = unpack_ids(ids);
  const bool known = contents && contents->size() == block.size();
  if (!known)
    damaged_.push_back("block " + std::to_string(id) + ": its list of contents is damaged");
  for (std::size_t at = 0; at < block.size(); ++at)
    take(kind, known ? (*contents)[at] : id, {id, static_cast<std::uint32_t>(at)}, block[at]);
}

Result<void> Salvage::find_contents(
    const std::function<bool(std::uint64_t, std::uint64_t)>& progress) {
  for (const char* sql :
       {"SELECT record FROM jobs WHERE record NOT NULL", "SELECT record FROM later"}) {
    sqlite::Statement select(db_, sql);
    while (select.step()) named_.insert(select.integer(0));
    if (auto passed = pass_over_damage(db_); !passed) return passed;
  }
  const bool intact = db_.text("PRAGMA quick_check(1)") == "ok";
  if (auto passed = pass_over_damage(db_); !passed) return passed;
  const std::int64_t blocks = last_row(db_, "blocks", intact);
  const std::int64_t pending = last_row(db_, "pending", intact);
  if (auto passed = pass_over_damage(db_); !passed) return passed;
  const auto all = static_cast<std::uint64_t>(blocks + pending);
  // One by one: a damaged page of the table then hides only what it has.
  sqlite::Statement select(db_, "SELECT kind, ids, data FROM blocks WHERE id = ?");
  for (std::int64_t id = 1; id <= blocks; ++id) {
    if (id % kRowsPerNews == 0 && !progress(static_cast<std::uint64_t>(id), all)) return {};
    const bool there = select.bind(id).step();
    if (there) {
      const auto block = Block::unpack(select.text(2));
      if (block) {
        take_block(id, select.integer(0), select.text(1), *block);
      } else {
        damaged_.push_back("block " + std::to_string(id) + ": " + block.error().message());
      }
    }
    select.reset();
    if (!db_.ok()) note_unreadable("blocks");
    if (auto passed = pass_over_damage(db_); !passed) return passed;
  }
  sqlite::Statement kind_of(db_, "SELECT kind FROM pending WHERE id = ?");
  for (std::int64_t id = 1; id <= pending; ++id) {
    if (id % kRowsPerNews == 0 && !progress(static_cast<std::uint64_t>(blocks + id), all))
      return {};
    const auto kind = kind_of.first(id);
    const bool readable = db_.ok();
    if (auto passed = pass_over_damage(db_); !passed) return passed;
    if (!readable) note_unreadable("pending");
    if (!kind) continue;
    const auto block = pending_.read(id);
    if (block) {
      take(*kind, id, {-id, 0}, (*block)[0]);
    } else if (is_damage(block.error())) {
      damaged_.push_back(block.error().message());
    } else {
      return block.error();
    }
  }
  std::sort(files_.begin(), files_.end(),
            [](const Content& a, const Content& b) { return a.key < b.key; });
  std::sort(records_.begin(), records_.end(), [](const Record& a, const Record& b) {
    return std::tuple(!a.is_submission, a.content) < std::tuple(!b.is_submission, b.content);
  });
  return {};
}

// Which rows a damaged page had is not known, so they are named once.
void Salvage::note_unreadable(const char* table) {
  const std::string what = "rows of " + std::string(table) + " that cannot be read";
  if (std::find(damaged_.begin(), damaged_.end(), what) == damaged_.end()) damaged_.push_back(what);
}

const Block* Salvage::block_of(Place place) {
  if (const Block* known = blocks_.find(place.block)) return known;
  auto block = [&]() -> Result<Block> {
    if (place.block < 0) return pending_.read(-place.block);
    sqlite::Statement select(db_, "SELECT data FROM blocks WHERE id = ?");
    if (!select.bind(place.block).step()) return Error{ErrorKind::kCorrupt, "is gone"};
    return Block::unpack(select.text(0));
  }();
  if (!block) return nullptr;
  if (block->all().size() <= kLargeBlock) return &blocks_.insert(place.block, *std::move(block));
  large_ = *std::move(block);
  return &large_;
}

Bytes Salvage::find_file(const EventFile& file) {
  const std::int64_t key = key_of(file.sha256);
  const auto begin =
      std::lower_bound(files_.begin(), files_.end(), key,
                       [](const Content& content, std::int64_t of) { return content.key < of; });
  for (auto at = begin; at != files_.end() && at->key == key; ++at) {
    const Block* const block = block_of(at->place);
    if (block == nullptr || at->place.place >= block->size()) continue;
    const std::string_view bytes = (*block)[at->place.place];
    if (bytes.size() == file.size && sha256_hex(bytes) == file.sha256)
      return make_bytes(std::string(bytes));
  }
  return nullptr;
}

Result<void> Salvage::for_each(const std::function<Result<bool>(Event&&)>& use) {
  for (const Record& record : records_) {
    const Block* const block = block_of(record.place);
    if (auto passed = pass_over_damage(db_); !passed) return passed;
    if (block == nullptr) continue;
    auto event = event_from_json((*block)[record.place.place]);
    if (!event || replaced_.contains(event->id)) continue;
    for (EventFile& file : event->files) {
      if (is_kept(file)) file.bytes = find_file(file);
    }
    if (auto passed = pass_over_damage(db_); !passed) return passed;
    const auto more = use(*std::move(event));
    if (!more) return more.error();
    if (!*more) return {};
  }
  return {};
}

}  // namespace scriptorium::catalog
