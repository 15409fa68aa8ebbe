#include "core/journal/journal_reader.h"

#include <algorithm>
#include <utility>

#include "core/journal/codec.h"

namespace scriptorium::journal {
namespace {

constexpr std::size_t kFewestRows = 64;
// Metadata of an event in bytes, up to which they are not counted in a batch.
constexpr std::uint64_t kUsualMeta = 8U << 10;

// About the memory that an event of this row takes once it is loaded.
std::uint64_t size_of(std::uint64_t bytes, std::string_view meta) {
  const std::uint64_t texts = Codec::content_size(meta);
  return bytes + (texts > kUsualMeta ? texts : 0);
}

// The same of an event in memory.
std::uint64_t size_of(const Event& event) {
  const std::uint64_t bytes = event.bytes_size(), memory = event.memory_size();
  return memory > bytes + kUsualMeta ? memory : bytes;
}

}  // namespace

// The items of one read(), within its limits. The first fits always.
class JournalReader::Batch {
 public:
  Batch(std::size_t max_events, std::uint64_t max_bytes)
      : max_events_(max_events), max_bytes_(max_bytes) {}

  bool is_full() const { return items.size() >= max_events_; }
  bool fits(std::uint64_t size) const {
    return items.empty() || (!is_full() && bytes_ + size <= max_bytes_);
  }
  void add(Item item, std::uint64_t size) {
    bytes_ += size;
    items.push_back(std::move(item));
  }
  std::size_t rows_at_once() const {
    return std::min(std::max(max_events_, kFewestRows), kMostRows);
  }

  std::vector<Item> items;
  std::vector<std::size_t> to_fetch;  // places in `items` that hold only a locator

 private:
  std::size_t max_events_;
  std::uint64_t max_bytes_;
  std::uint64_t bytes_ = 0;
};

void JournalReader::set_archive(Archive archive) {
  auto shared = archive ? std::make_shared<const Archive>(std::move(archive)) : nullptr;
  archive_.with([&](auto& a) { a = std::move(shared); });
}

Result<std::shared_ptr<const Event>> JournalReader::fetch(const Event& locator) const {
  const auto ask = archive_.with([](const auto& a) { return a; });
  if (!ask) return Error{ErrorKind::kTransient, "no archive is configured that holds what waits"};
  auto event = (*ask)(locator);
  if (event && (*event)->id != locator.id) event = Error{ErrorKind::kCorrupt, "another event"};
  if (event) return event;
  const ErrorKind kind = event.error().kind();
  if (kind != ErrorKind::kVanished && kind != ErrorKind::kCorrupt) return event;
  return Error{ErrorKind::kPermanent, "gone from the archive: " + event.error().message()};
}

Result<Item> JournalReader::checked(SinkId sink, std::uint64_t seq, std::uint32_t attempts,
                                    Result<std::shared_ptr<const Event>> event) {
  if (event) return Item{seq, *std::move(event), attempts};
  const bool only_in_archive = event.error().kind() == ErrorKind::kPermanent;
  if (event.error().kind() != ErrorKind::kCorrupt && !only_in_archive) return event.error();
  Item item{seq, nullptr, attempts};
  findings_.unreadable(sink, item, (only_in_archive ? "" : "journal: ") + event.error().message(),
                       only_in_archive);
  return item;
}

Result<std::vector<Item>> JournalReader::read(SinkId sink, std::uint64_t after,
                                              std::size_t max_events, std::uint64_t max_bytes) {
  Batch batch(max_events, max_bytes);
  std::uint64_t last_seq = 0;
  std::shared_ptr<const SinkRow> row;
  const bool answered = read_recent(sink, after, batch, last_seq, row);
  if (!row) return Error{ErrorKind::kPermanent, "journal: no such sink"};
  if (answered) return std::move(batch.items);
  auto read = read_stored(*row, after, batch);
  if (read) read = fetch_archived(sink, batch);
  if (!read) return read.error();
  if (batch.items.empty()) note_scanned(*row, after, last_seq);
  return std::move(batch.items);
}

bool JournalReader::read_recent(SinkId sink, std::uint64_t& after, Batch& batch,
                                std::uint64_t& last_seq, std::shared_ptr<const SinkRow>& row) {
  return shared_.with([&](Shared& s) {
    const auto it = s.sinks.find(sink);
    if (it == s.sinks.end()) return true;
    row = it->second;
    after = std::max(after, row->cursor);
    last_seq = s.last_seq;
    if (after < row->last_wanted) {
      if (!s.events.covers(after)) return false;
      for (auto at = s.events.after(after); at != s.events.end() && !batch.is_full(); ++at) {
        if (!at->event) return !batch.items.empty();  // only the database knows this one
        if (!row->wants(at->event->kind, at->number, 0) || row->ahead.contains(at->number))
          continue;
        const std::uint64_t size = size_of(*at->event);
        if (!batch.fits(size)) break;
        batch.add({at->number, at->event, 0}, size);
      }
    }
    if (batch.items.empty()) s.scanned[sink] = {after, last_seq};
    return true;
  });
}

Result<void> JournalReader::read_stored(const SinkRow& row, std::uint64_t after, Batch& batch) {
  auto lease = pool_.lease();
  if (!lease) return lease.error();
  ReaderPool::Reader& reader = **lease;
  Statement& scan = reader.scan;
  const std::size_t chunk = batch.rows_at_once();
  for (bool more = true; more && !batch.is_full();) {
    std::size_t rows = 0;
    scan.bind(after, chunk);
    while (more && scan.step()) {
      ++rows;
      after = scan.number(3);
      auto taken = take_row(reader, row, batch);
      if (!taken) {
        scan.reset();
        return batch.items.empty() ? Result<void>(taken.error()) : Result<void>();
      }
      more = *taken && !batch.is_full();
    }
    scan.reset();
    if (auto error = reader.connection->take_error()) {
      if (error->kind() == ErrorKind::kCorrupt) findings_.damaged(error->message());
      return *std::move(error);
    }
    more = more && rows == chunk;
  }
  return {};
}

Result<bool> JournalReader::take_row(ReaderPool::Reader& reader, const SinkRow& row, Batch& batch) {
  const Statement& scan = reader.scan;
  const std::uint64_t seq = scan.number(3);
  if (!row.wants(scan.text(4), seq, static_cast<SinkId>(scan.integer(6))) ||
      row.ahead.contains(seq))
    return true;
  const std::uint64_t size = size_of(scan.number(5), scan.text(0));
  if (!batch.fits(size)) return false;
  Result<std::shared_ptr<const Event>> event =
      shared_.with([&](Shared& s) { return s.events.find(seq); });
  if (*event == nullptr) {
    const auto loaded = reader.events.load(scan);
    if (!loaded) {
      event = loaded.error();
    } else {
      event = loaded->event;
      if (loaded->in_archive) batch.to_fetch.push_back(batch.items.size());
    }
  }
  auto item = checked(row.id, seq, 0, std::move(event));
  if (!item) return item.error();
  batch.add(*std::move(item), size);
  return true;
}

Result<void> JournalReader::fetch_archived(SinkId sink, Batch& batch) {
  for (const std::size_t index : batch.to_fetch) {
    auto item = fetched(sink, batch.items[index]);
    if (!item) {
      batch.items.resize(index);
      return batch.items.empty() ? Result<void>(item.error()) : Result<void>();
    }
    batch.items[index] = *std::move(item);
  }
  return {};
}

// The archive may have moved it to its owner, and would have to look for it in every folder.
Result<Item> JournalReader::fetched(SinkId sink, const Item& item) {
  if (shared_.with([&](const Shared& s) { return s.is_replaced(sink, *item.event); })) {
    findings_.needless(sink, item);
    return Item{item.sequence, nullptr, item.attempts};
  }
  return checked(sink, item.sequence, item.attempts, fetch(*item.event));
}

void JournalReader::note_scanned(const SinkRow& row, std::uint64_t after, std::uint64_t last_seq) {
  shared_.with([&](Shared& s) {
    const SinkRow* const now = s.sink(row.id);
    if (now != nullptr && now->kinds == row.kinds) s.scanned[row.id] = {after, last_seq};
  });
}

Result<std::vector<Item>> JournalReader::parked(SinkId sink, std::size_t limit, std::uint64_t after,
                                                std::uint64_t max_bytes,
                                                const std::function<bool(std::uint64_t)>& skip) {
  std::vector<Item> items;
  auto lease = pool_.lease();
  if (!lease) return lease.error();
  ReaderPool::Reader& reader = **lease;
  const std::vector<Parked> rows = parked_rows(reader, sink, limit, after, skip);
  if (auto error = reader.connection->take_error()) return *std::move(error);
  std::uint64_t bytes = 0;
  for (const Parked& row : rows) {
    if (reader.size.bind(row.seq).step())
      bytes += size_of(reader.size.number(0), reader.size.text(1));
    reader.size.reset();
    if (bytes > max_bytes && !items.empty()) break;
    auto loaded = load(reader, row.seq);
    if (!loaded && loaded.error().kind() == ErrorKind::kVanished) continue;
    auto item = !loaded ? checked(sink, row.seq, row.attempts, loaded.error())
                : loaded->in_archive
                    ? fetched(sink, {row.seq, loaded->event, row.attempts})
                    : checked(sink, row.seq, row.attempts, std::move(loaded->event));
    if (!item) {
      if (!items.empty()) return items;
      return item.error();
    }
    items.push_back(*std::move(item));
  }
  return items;
}

std::vector<JournalReader::Parked> JournalReader::parked_rows(
    ReaderPool::Reader& reader, SinkId sink, std::size_t limit, std::uint64_t after,
    const std::function<bool(std::uint64_t)>& skip) {
  std::vector<Parked> rows;
  reader.parked.bind(sink, after);
  while (rows.size() < limit && reader.parked.step()) {
    const std::uint64_t seq = reader.parked.number(0);
    if (!skip || !skip(seq))
      rows.push_back({seq, static_cast<std::uint32_t>(reader.parked.integer(1))});
  }
  reader.parked.reset();
  return rows;
}

Result<EventReader::Loaded> JournalReader::load(ReaderPool::Reader& reader, std::uint64_t seq) {
  if (auto event = shared_.with([&](Shared& s) { return s.events.find(seq); }))
    return EventReader::Loaded{std::move(event)};
  Statement& row = reader.row;
  if (!row.bind(seq).step()) {
    if (auto error = reader.connection->take_error()) return *std::move(error);
    return Error{ErrorKind::kVanished, "journal: event " + std::to_string(seq) + " is not there"};
  }
  auto loaded = reader.events.load(row);
  row.reset();
  return loaded;
}

}  // namespace scriptorium::journal
