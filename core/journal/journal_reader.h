#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/guarded.h"
#include "core/journal/event_reader.h"
#include "core/journal/shared_state.h"

namespace scriptorium::journal {

// Events for sinks: from memory where the sink keeps up, else from the database, and from an
// archive where only that has the bytes.
// Threads: any. Borrows everything it is given. The archive is never asked while a snapshot of the
// database is held: it may take its time.
class JournalReader {
 public:
  // What the reader finds and cannot settle itself. Called without a lock held.
  struct Findings {
    // The event cannot be read, or `only_in_archive`, which no longer has it: a dead letter of this
    // sink.
    std::function<void(SinkId, const Item&, const std::string& reason, bool only_in_archive)>
        unreadable;
    // Only an archive has the event, and the sink needs only the one that replaces it: settled.
    std::function<void(SinkId, const Item&)> needless;
    std::function<void(const std::string& why)> damaged;  // the file's structure
  };
  JournalReader(Guarded<Shared>& shared, ReaderPool& pool, Findings findings)
      : shared_(shared), pool_(pool), findings_(std::move(findings)) {}

  void set_archive(Archive archive);
  // The whole event. kPermanent: the archive no longer has it.
  Result<std::shared_ptr<const Event>> fetch(const Event& locator) const;

  // As class Journal describes them.
  Result<std::vector<Item>> read(SinkId sink, std::uint64_t after, std::size_t max_events,
                                 std::uint64_t max_bytes);
  Result<std::vector<Item>> parked(SinkId sink, std::size_t limit, std::uint64_t after,
                                   std::uint64_t max_bytes,
                                   const std::function<bool(std::uint64_t)>& skip);
  Result<std::vector<Releasable>> releasable(const std::string& archive, std::uint64_t& after,
                                             std::size_t limit);

 private:
  static constexpr std::size_t kMostRows = 10'000;  // read under one snapshot of the database
  class Batch;
  struct Parked {
    std::uint64_t seq = 0;
    std::uint32_t attempts = 0;
  };

  // True: memory answered. `row` becomes the sink's accounts, null if there is no such sink.
  bool read_recent(SinkId sink, std::uint64_t& after, Batch& batch, std::uint64_t& last_seq,
                   std::shared_ptr<const SinkRow>& row);
  Result<void> read_stored(const SinkRow& row, std::uint64_t after, Batch& batch);
  // False: the batch is full, or an error stopped it.
  Result<bool> take_row(ReaderPool::Reader& reader, const SinkRow& row, Batch& batch);
  Result<void> fetch_archived(SinkId sink, Batch& batch);
  void note_scanned(const SinkRow& row, std::uint64_t after, std::uint64_t last_seq);

  std::vector<Parked> parked_rows(ReaderPool::Reader& reader, SinkId sink, std::size_t limit,
                                  std::uint64_t after,
                                  const std::function<bool(std::uint64_t)>& skip);
  Result<EventReader::Loaded> load(ReaderPool::Reader& reader, std::uint64_t seq);
  // Of an event that only an archive has. `item` holds its locator.
  Result<Item> fetched(SinkId sink, const Item& item);
  // What was loaded for a sink. An unreadable event becomes a null event, and is reported.
  Result<Item> checked(SinkId sink, std::uint64_t seq, std::uint32_t attempts,
                       Result<std::shared_ptr<const Event>> event);

  Guarded<Shared>& shared_;
  ReaderPool& pool_;
  const Findings findings_;
  Guarded<std::shared_ptr<const Archive>> archive_;
};

}  // namespace scriptorium::journal
