#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/api/delivery.h"
#include "core/api/event.h"
#include "core/journal/capture_mark.h"

// What goes into the journal and comes out of it. Callers use these types through class Journal,
// which names each of them (Journal::Append is journal::Append).
namespace scriptorium::journal {

using SinkId = std::uint32_t;
// As the sink that an event is for: none will ever get it.
constexpr SinkId kNoSink = ~SinkId{0};

struct Options {
  std::string directory;                             // created with mode 0700 if missing
  std::uint64_t max_bytes = std::uint64_t{1} << 30;  // journal_max_bytes: above it full() is true
  std::uint64_t cache_bytes = 16U << 20;  // recent events kept in memory for sinks that keep up
  bool read_only = false;                 // for commands while no daemon runs; no writer thread
  std::int64_t user_share_percent = 25;   // of max_bytes; offer() lets no user have more
};

// What open() found and did, for the caller to log.
struct OpenReport {
  bool created = false;
  std::string quarantined;  // directory of the damaged journal; "" = the journal was intact
  std::uint64_t salvaged_events = 0;
  std::uint64_t lost_events = 0;  // seen in the damaged file, but not readable
  std::string damage;             // what the check reported, in words
};

struct Append {
  std::string source;                  // instance name
  std::shared_ptr<const Event> event;  // with all bytes
  bool resolve_first = false;          // sinks see it only after resolved() was called for it
  std::optional<CaptureMark> mark;     // replaces the mark of the same entry
  // CaptureSecret::key_of() the original id: the event is a duplicate if a mark has it. "" =
  // nothing was removed from the event, so its id is the original one.
  std::string capture_key;
  // Why no sink may ever get the event: it becomes a dead letter of every sink that would have got
  // it, which can be discarded but not retried, and no later sink gets it. Not resolved first.
  std::optional<std::string> dead;
  // Called on the writer thread once the event is durable (`fresh` is false if the journal held it
  // already). Must be quick and must not call the journal. Not called if the process ends first.
  std::function<void(bool fresh)> durable;
};

// The journal's answer to an event that is offered to it.
enum class Admission {
  kTaken,  // as append(): queued, `durable` will be called
  // No room for it now: the journal is full or cannot be written, or the room left is reserved for
  // smaller events.
  kFull,
  kOverShare,  // its user holds a full user share, or the scheduler must be asked for its owner
};

struct Unresolved {
  std::uint64_t ticket = 0;
  // Ids, times, job id and user; of the files only the bytes of a short script.
  std::shared_ptr<const Event> event;
  std::optional<CaptureMark> mark;
};

struct Resolved {
  std::uint64_t ticket = 0;
  // The job and user as the scheduler named them; everything else stays as it was captured.
  std::shared_ptr<const Event> event;
};

struct Unverified {
  std::uint64_t number = 0;
  Timestamp noted_at;                  // when it became visible to sinks
  std::shared_ptr<const Event> event;  // without bytes
};

struct LaterOwner {
  std::uint64_t number = 0;
  std::optional<Timestamp> due;  // when to ask for it again; empty: never
};

struct Item {
  std::uint64_t sequence = 0;
  // Null: it is settled. Damaged in the journal, so a dead letter, or another event replaces it.
  std::shared_ptr<const Event> event;
  std::uint32_t attempts = 0;  // so far, of a retried delivery
};

struct Settle {
  std::uint64_t sequence = 0;
  Outcome outcome = Outcome::kRetry;  // kRetry parks the event: the cursor may pass it
  std::string reason;
  std::uint32_t attempts = 0;
  Timestamp first_attempt;
  Timestamp last_attempt;
};

struct Releasable {
  std::uint64_t sequence = 0;
  std::shared_ptr<const Event> event;  // without bytes
  std::uint64_t bytes = 0;
  // As what the archive has it by now: the event that replaces it, as its owner became known. Null:
  // as itself.
  std::shared_ptr<const Event> owned;
};

// Fetches an event from an archive by its locator (ReadableSink::fetch()). kVanished and kCorrupt
// make the event a dead letter of the sink that reads it; after any other error, and without an
// archive, the sink waits. Called by the threads that read.
using Archive = std::function<Result<std::shared_ptr<const Event>>(const Event& locator)>;

// The progress of a sink that is filled from an archive. Its events wait for it like others, but
// for it alone.
struct Fill {
  enum class State { kCounting = 0, kFilling = 1, kDone = 2, kStopped = 3 };
  std::string sink, archive;
  Timestamp since;
  std::string position;       // in the archive's listing
  std::uint64_t sent = 0;     // given to the sink
  std::uint64_t present = 0;  // which the sink had, or was to get anyway
  std::uint64_t skipped = 0;  // records of the archive that are damaged or lack parts
  std::uint64_t total = 0;    // as counted at the beginning
  State state = State::kCounting;

  bool is_under_way() const { return state == State::kCounting || state == State::kFilling; }
};

struct DeadLetter {
  std::string sink;
  std::uint64_t sequence = 0;
  std::string event_id, kind, cluster, job_id;
  std::string reason;
  std::uint32_t attempts = 0;
  Timestamp first_attempt, last_attempt;
  std::uint64_t bytes = 0;
};

struct SinkState {
  std::string name;
  bool registered = false;
  std::vector<std::string> kinds;
  std::uint64_t waiting = 0;  // events still to be delivered, parked ones included
  std::uint64_t waiting_bytes = 0;
  std::uint64_t parked = 0;
  std::uint64_t in_archive = 0;  // of those waiting: their bytes must be fetched from an archive
  std::uint64_t dead = 0;
  std::uint64_t acknowledged = 0;           // since the journal was created
  std::optional<Timestamp> oldest_waiting;  // captured_at; without what a fill sends
  std::optional<Timestamp> last_success;
};

// A user whose entries wait in the spool because of the user share. Without user_id: the entries
// for whose owner the scheduler must be asked first.
struct OverShare {
  std::string user_id, user;
  std::uint64_t bytes = 0;    // that the user holds in the journal
  std::uint64_t waiting = 0;  // entries
  std::uint64_t waiting_bytes = 0;
};

struct Usage {
  std::uint64_t events = 0;
  std::uint64_t bytes = 0;      // pages in use, and -wal
  std::uint64_t wal_bytes = 0;  // the part of `bytes` in -wal
  std::uint64_t limit_bytes = 0;
  bool full = false;
  std::string last_error;  // why the last commit failed; "" = it succeeded
  std::uint64_t user_share_bytes = 0;
  std::vector<OverShare> over_share;
  std::vector<SinkState> sinks;
};

}  // namespace scriptorium::journal
