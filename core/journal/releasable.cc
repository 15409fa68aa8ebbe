// Which events the journal may leave to an archive.
#include <algorithm>
#include <utility>

#include "core/journal/journal_reader.h"
#include "core/journal/schema.h"

namespace scriptorium::journal {
namespace {

// The archive, and the sinks that may still need what it has.
class Holders {
 public:
  // Empty if the archive is not registered.
  static std::optional<Holders> of(const SinkRows& sinks, const std::string& archive,
                                   Connection& db) {
    Holders holders(db);
    for (const auto& [id, row] : sinks) {
      if (row->name == archive && row->registered) {
        holders.archive_ = row;
      } else {
        holders.others_.push_back(row);
      }
    }
    if (!holders.archive_) return std::nullopt;
    return holders;
  }

  // No event that the archive has and another sink needs lies outside of (low, high].
  std::uint64_t low() const {
    std::uint64_t low = archive_->cursor;
    for (const auto& row : others_) low = std::min(low, row->parked > 0 ? 0 : row->cursor);
    return low;
  }
  std::uint64_t high() const {
    const auto& ahead = archive_->ahead;
    return ahead.empty() ? archive_->cursor : std::max(archive_->cursor, ahead.rbegin()->first);
  }

  bool is_releasable(std::string_view kind, std::uint64_t seq, SinkId target) {
    return archive_->wants(kind, seq, target) && is_acknowledged(seq) &&
           is_needed(kind, seq, target);
  }

  bool is_acknowledged(std::uint64_t seq) {
    if (seq > archive_->cursor) {
      const auto ahead = archive_->ahead.find(seq);
      return ahead != archive_->ahead.end() && ahead->second.state == State::kSettled;
    }
    return !open_.first(archive_->id, seq);
  }

 private:
  explicit Holders(Connection& db)
      : open_(db, "SELECT 1 FROM exceptions WHERE sink=?1 AND seq=?2 AND state<>3"),
        parked_(db, "SELECT 1 FROM exceptions WHERE seq=?1 AND state=1") {}

  bool is_needed(std::string_view kind, std::uint64_t seq, SinkId target) {
    return std::ranges::any_of(others_,
                               [&](const auto& row) {
                                 return seq > row->cursor && row->wants(kind, seq, target) &&
                                        !row->ahead.contains(seq);
                               }) ||
           parked_.first(seq);
  }

  std::shared_ptr<const SinkRow> archive_;
  std::vector<std::shared_ptr<const SinkRow>> others_;
  Statement open_, parked_;
};

// The event of a sequence, without its bytes; null: it is not there, or damaged.
std::shared_ptr<const Event> load_bare(ReaderPool::Reader& reader, std::uint64_t seq) {
  std::shared_ptr<const Event> event;
  Statement& row = reader.row;
  if (row.bind(seq).step()) {
    if (EventReader::is_in_archive(row)) {
      if (auto loaded = reader.events.load(row)) event = loaded->event;
    } else if (auto bare = reader.events.without_bytes(row)) {
      event = std::make_shared<const Event>(*std::move(bare));
    }
  }
  row.reset();
  return event;
}

}  // namespace

Result<std::vector<Releasable>> JournalReader::releasable(const std::string& archive,
                                                          std::uint64_t& after, std::size_t limit) {
  std::vector<Releasable> result;
  const SinkRows sinks = shared_.with([](const Shared& s) { return s.sinks; });
  auto lease = pool_.lease();
  if (!lease) return lease.error();
  ReaderPool::Reader& reader = **lease;
  auto holders = Holders::of(sinks, archive, *reader.connection);
  if (!holders) return result;
  const std::uint64_t high = holders->high();
  after = std::max(after, holders->low());
  Statement& scan = reader.scan;
  scan.bind(after, kMostRows);
  while (result.size() < limit && scan.step()) {
    const std::uint64_t seq = scan.number(3);
    if (seq > high) break;
    after = seq;
    if (EventReader::is_in_archive(scan) ||
        !holders->is_releasable(scan.text(4), seq, static_cast<SinkId>(scan.integer(6))))
      continue;
    auto event = reader.events.without_bytes(scan);
    if (!event) continue;  // damaged: the sink that reads it makes it a dead letter
    const auto owned = shared_.with([&](const Shared& s) { return s.replaced_by(*event); });
    result.push_back(
        {seq, std::make_shared<const Event>(*std::move(event)), scan.number(5),
         owned && holders->is_acknowledged(*owned) ? load_bare(reader, *owned) : nullptr});
  }
  scan.reset();
  if (auto error = reader.connection->take_error()) return *std::move(error);
  return result;
}

}  // namespace scriptorium::journal
