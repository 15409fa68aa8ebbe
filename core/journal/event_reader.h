#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/api/event.h"
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
  // Of a row that begins with content_columns(). kCorrupt names the damaged part. kVanished if an
  // archive holds the event: see is_in_archive() and locator().
  Result<std::shared_ptr<const Event>> load(const Statement& row);
  static bool is_in_archive(const Statement& row) { return row.integer(2) == kInArchive; }
  // The locator of an event in its archive, of a row that begins with event_columns().
  Result<Event> locator(const Statement& row);
  // The event without its files' bytes, of any row.
  Result<Event> without_bytes(const Statement& row);
  // The event as for_owner() reduces it.
  Result<std::shared_ptr<const Event>> load_for_owner(const Statement& row);

 private:
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

}  // namespace scriptorium::journal
