#include "backends/catalog/search_pool.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <utility>

namespace scriptorium::catalog {
namespace {

// Of one segment: as many questions at once as a page asks.
constexpr std::size_t kMostIdle = 4;
// A reader waits for nobody, except while the -wal of a daemon that was killed is recovered.
constexpr int kSearchBusyMs = 1'000;
constexpr int kOpsBetweenChecks = 2'000;

}  // namespace

ReaderPool::Lent::Lent(ReaderPool& pool, std::unique_ptr<SearchReader> reader)
    : pool_(&pool), reader_(std::move(reader)) {}

ReaderPool::Lent::~Lent() {
  if (!reader_) return;
  unlimited();
  reader_->end();
  pool_->give_back(std::move(reader_));
}

void ReaderPool::Lent::limit(Budget& budget) {
  sqlite3_progress_handler(
      reader_->db().handle(), kOpsBetweenChecks,
      [](void* of) { return static_cast<Budget*>(of)->is_over() ? 1 : 0; }, &budget);
}

void ReaderPool::Lent::unlimited() {
  sqlite3_progress_handler(reader_->db().handle(), 0, nullptr, nullptr);
}

Result<std::vector<SegmentInfo>> ReaderPool::segments() {
  // Opening it takes longer than all else that a simple question needs.
  IdleCatalog catalog = catalog_.with([](IdleCatalog& idle) { return std::exchange(idle, {}); });
  if (const FileId file = file_id(catalog_file(root_)); !catalog.db || catalog.file != file) {
    auto opened = open_catalog_reader(root_);
    if (!opened) return opened.error();
    catalog = {file, *std::move(opened)};
  }
  std::vector<SegmentInfo> list = list_segments(*catalog.db);
  if (auto error = catalog.db->take_error()) return *std::move(error);
  catalog_.with([&](IdleCatalog& idle) { std::swap(idle, catalog); });
  return list;
}

Result<ReaderPool::Lent> ReaderPool::lend(std::int64_t segment) {
  const FileId file = file_id(segment_file(root_, segment));
  std::vector<std::unique_ptr<SearchReader>> outdated;  // closed outside of the lock
  std::unique_ptr<SearchReader> found = idle_.with([&](auto& idle) {
    std::unique_ptr<SearchReader> reader;
    for (auto [at, end] = idle.equal_range(segment); at != end && !reader;) {
      if (at->second.file == file) {
        reader = std::move(at->second.reader);
      } else {
        outdated.push_back(std::move(at->second.reader));
      }
      at = idle.erase(at);
    }
    return reader;
  });
  if (found) return Lent(*this, std::move(found));
  auto reader = SearchReader::open(root_, segment);
  if (!reader) return reader.error();
  sqlite3_busy_timeout((*reader)->db().handle(), kSearchBusyMs);
  return Lent(*this, *std::move(reader));
}

std::optional<ReaderPool::Lent> ReaderPool::lend_or_note(const SegmentInfo& info,
                                                         std::vector<std::string>& problems) {
  // What leaves a segment is found in others from now on.
  if (is_leaving(info.state)) {
    problems.push_back(segment_name(info.id) +
                       ": is being rewritten; if no command does that now, " +
                       "\"scriptorium catalog check\" says how to continue");
    return std::nullopt;
  }
  auto lent = lend(info.id);
  if (lent) return *std::move(lent);
  // It may have been removed a moment ago.
  if (lent.error().kind() != ErrorKind::kVanished)
    problems.push_back(segment_name(info.id) + ": " + lent.error().message());
  return std::nullopt;
}

void ReaderPool::give_back(std::unique_ptr<SearchReader> reader) {
  // An error may have left the connection in any state.
  if (!reader->db().ok() || reader->db().damaged()) return;
  const std::int64_t segment = reader->segment();
  const FileId file = file_id(segment_file(root_, segment));
  reader->take_problems();
  idle_.with([&](auto& idle) {
    if (idle.count(segment) < kMostIdle) idle.emplace(segment, Idle{file, std::move(reader)});
  });
}

}  // namespace scriptorium::catalog
