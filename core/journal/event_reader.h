#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/api/event.h"
#include "core/base/guarded.h"
#include "core/base/result.h"
#include "core/journal/codec.h"
#include "core/journal/event_row.h"
#include "core/journal/sqlite.h"

namespace scriptorium::journal {

// How thoroughly an event is checked when it is read. Every part is checked by zstd's checksum and
// its size; kSha256 also compares each file's sha256, which takes as long as everything else.
enum class Proof { kChecksum, kSha256 };

// Reads whole events from rows of `events` and `unresolved`.
// Threads: one at a time. Borrows connection and codec, which must outlive it.
class EventReader {
 public:
  EventReader(Connection& connection, Codec& codec, Proof proof = Proof::kChecksum);
  struct Loaded {
    std::shared_ptr<const Event> event;
    bool in_archive = false;  // `event` is only what finds it there (decode_locator())
  };
  // Of a row of kSelectEvents or kSelectUnresolved, as below. kCorrupt names the damaged part.
  Result<Loaded> load(const Statement& row);
  static bool is_in_archive(const Statement& row) { return row.integer(2) == kInArchive; }
  // The event without its files' bytes.
  Result<Event> without_bytes(const Statement& row);
  // The event as for_owner() reduces it.
  Result<std::shared_ptr<const Event>> load_for_owner(const Statement& row);

 private:
  Result<Event> locator(const Statement& row);
  Result<std::string> pack(std::int64_t id);
  Result<Bytes> blob(std::int64_t id, const EventFile& file);
  Result<void> load_files(const Statement& row, Event& event);
  // Takes the connection's error after a row of `what` was not found.
  Error not_found(const std::string& what);

  Connection& connection_;
  Codec& codec_;
  const Proof proof_;
  Statement pack_, blob_;
};

// Connections for reading, opened when needed; a few are kept.
// Threads: lease() from any thread; what it returns belongs to the caller. The pool outlives it.
class ReaderPool {
 public:
  struct Reader {
    explicit Reader(std::unique_ptr<Connection> opened);

    std::unique_ptr<Connection> connection;
    Codec codec;
    EventReader events;
    Statement scan;    // of kSelectEvents: after ?1, at most ?2
    Statement row;     // the same, one event
    Statement parked;  // seq and attempts of a sink's parked events after ?2
    Statement size;    // bytes and meta of one event
  };
  // Its end closes every statement, so that no snapshot of the database is held.
  class Lease {
   public:
    Lease(ReaderPool& pool, std::unique_ptr<Reader> reader)
        : pool_(&pool), reader_(std::move(reader)) {}
    Lease(Lease&&) noexcept = default;
    ~Lease();
    Reader* operator->() const noexcept { return reader_.get(); }
    Reader& operator*() const noexcept { return *reader_; }

   private:
    ReaderPool* pool_;
    std::unique_ptr<Reader> reader_;
  };

  ReaderPool(std::string file, Connection::Mode mode) : file_(std::move(file)), mode_(mode) {}
  Result<Lease> lease();

 private:
  static constexpr std::size_t kKept = 4;
  Result<std::unique_ptr<Reader>> open() const;

  std::string file_;
  Connection::Mode mode_;
  Guarded<std::vector<std::unique_ptr<Reader>>> idle_;
};

}  // namespace scriptorium::journal
