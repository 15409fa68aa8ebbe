#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/delivery.h"
#include "core/api/event.h"
#include "core/api/logger.h"
#include "core/base/result.h"

namespace scriptorium {

// Which spool entry an event came from, kept for as long as the entry exists, so that neither a restart nor a rescan
// captures it twice. `entry` is the adapter's key ("hash.1/job.11").
struct CaptureMark {
  std::string entry;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t mtime_ns = 0;  // of the file that holds the script
  std::uint64_t size = 0;     // of the script as it was kept
  std::string file;           // that file's name within the entry
  std::string event_id;
};

// Durable record of every event and of each sink's answer to it: SQLite in WAL mode with synchronous=FULL, one writer
// thread that commits in groups. The format, with its version, is docs/journal.md.
//
// Owns:    the files journal.db, -wal, -shm and bad.* in its directory; the writer thread. Events are shared, not copied.
// Threads: open() before any other thread exists; everything else from any thread.
// Disk:    what append() and settle() promise holds after their callback: then it survives a power cut.
// Fails:   kExhausted (disk full; the writer keeps what it was given and tries again, with usage().last_error set),
//          kCorrupt (damage found later than open: the event becomes a dead letter of every sink that had it to come).
class Journal {
 public:
  struct Options {
    std::string directory;                             // made with mode 0700 if missing
    std::uint64_t max_bytes = std::uint64_t{1} << 30;  // journal_max_bytes: above it full() is true
    std::uint64_t cache_bytes = 8U << 20;              // recent events kept in memory for sinks that keep up
    bool read_only = false;                            // for commands while no daemon runs; no writer thread
  };
  // What open() found and did; to be logged.
  struct OpenReport {
    bool created = false;
    std::string quarantined;  // where the damaged journal was put; "" = none was
    std::uint64_t salvaged_events = 0;
    std::uint64_t lost_events = 0;  // that were seen to be in the damaged file and could not be read
    std::string damage;             // what the check said, in words
  };
  // A journal of a newer format is refused untouched (kInvalidConfig: file, found, needed, remedy). Damage is moved
  // to bad.<time>/ and what can be read goes into a new journal: start succeeds.
  static Result<std::unique_ptr<Journal>> open(const Options& options, Logger& log, const Clock& clock);
  ~Journal();  // commits what was given to it, if the disk lets it
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  const OpenReport& open_report() const noexcept;
  // Reads everything: structure, references and the content of each event. kCorrupt says what is wrong. Takes as long as
  // reading the file; open() itself only checks the structure.
  Result<void> verify() const;

  // ---- sources -----------------------------------------------------------------------------------------------
  struct Append {
    std::string source;                  // instance name
    std::shared_ptr<const Event> event;  // with all bytes
    bool resolve_first = false;          // no sink sees it before resolved() was called for it
    std::optional<CaptureMark> mark;     // replaces the mark of the same entry
    // Called on the writer thread once the event is durable (or was already there: `fresh` false). Must be quick and
    // must not call the journal. Not called if the process ends first.
    std::function<void(bool fresh)> durable;
  };
  // Queues an event for the next group commit. Never fails; waits, or gives up at `stop` (false), while the queue
  // holds too many bytes or full() is true. An id that the journal holds or whose mark stands changes nothing but the mark.
  bool append(Append item, const std::stop_token& stop);
  // Several events and a source's position in one transaction; returns when that is durable.
  Result<void> append_all(const std::string& source, std::vector<std::shared_ptr<const Event>> events,
                          std::optional<std::string> position, const std::stop_token& stop);
  std::optional<std::string> position(const std::string& source) const;

  std::vector<CaptureMark> marks(const std::string& source) const;                 // all of them; at start
  void set_mark(const std::string& source, CaptureMark mark);                      // queued; no event with it
  void forget_marks(const std::string& source, std::vector<std::string> entries);  // queued

  // ---- owner resolution --------------------------------------------------------------------------------------
  struct Unresolved {
    std::uint64_t ticket = 0;
    std::shared_ptr<const Event> event;
    std::optional<CaptureMark> mark;
  };
  // Up to `limit` events of this source that wait for resolution, with ticket > after, oldest first.
  std::vector<Unresolved> unresolved(const std::string& source, std::uint64_t after, std::size_t limit) const;
  // Until there is one with ticket > after, a stop, or the deadline; true if there is.
  bool wait_unresolved(const std::string& source, std::uint64_t after, const std::stop_token& stop, SteadyTime deadline) const;
  struct Resolved {
    std::uint64_t ticket = 0;
    std::shared_ptr<const Event> event;  // the same id and files, with what the scheduler said
  };
  void resolved(std::vector<Resolved> events);  // queued; sinks see them after the commit
  std::uint64_t unresolved_count(const std::string& source) const;

  // ---- sinks -------------------------------------------------------------------------------------------------
  using SinkId = std::uint32_t;
  // Before its first read(), in every run. A new sink gets every event that the journal still holds. `kinds`: which
  // kinds it wants; a pattern per item, "job.*" allowed. Events that no registered sink still needs are removed.
  Result<SinkId> register_sink(const std::string& name, std::vector<std::string> kinds);
  // Sinks that the journal knows and that were not registered in this run: they keep their events until removed.
  std::vector<std::string> unregistered_sinks() const;
  void remove_sink(const std::string& name);

  struct Item {
    std::uint64_t sequence = 0;
    std::shared_ptr<const Event> event;  // null: damaged in the journal, already made a dead letter
    std::uint32_t attempts = 0;          // so far, of a retried one
  };
  // The next events for a sink after `after`, in order, at most `max_events` and about `max_bytes` (at least one).
  // Includes none that were settled, dead or parked as retry (those come from parked()).
  Result<std::vector<Item>> read(SinkId sink, std::uint64_t after, std::size_t max_events, std::uint64_t max_bytes) const;
  // Events that settle() left as retry, oldest first; for the start, and for `deadletters retry`.
  Result<std::vector<Item>> parked(SinkId sink, std::size_t limit) const;
  std::uint64_t parked_generation(SinkId sink) const;  // changes when a dead letter was put back
  std::uint64_t cursor(SinkId sink) const;  // all up to here are settled, dead or parked: the `after` of a first read()
  // Until an event after `after` stands ready, a dead letter was put back (parked_generation differs), a stop, or the
  // deadline; true if there may be something to do.
  bool wait(SinkId sink, std::uint64_t after, std::uint64_t parked_generation, const std::stop_token& stop,
            SteadyTime deadline) const;

  struct Settle {
    std::uint64_t sequence = 0;
    Outcome outcome = Outcome::kRetry;  // kRetry parks it: the cursor may pass
    std::string reason;
    std::uint32_t attempts = 0;
    Timestamp first_attempt;
    Timestamp last_attempt;
  };
  // Queued for the next group commit. `cursor`: the highest sequence that read() gave out so far such that everything
  // up to it is in this or an earlier settle().
  void settle(SinkId sink, std::vector<Settle> settlements, std::uint64_t cursor);

  // ---- dead letters ------------------------------------------------------------------------------------------
  struct DeadLetter {
    std::string sink;
    std::uint64_t sequence = 0;
    std::string event_id, kind, cluster, job_id;
    std::string reason;
    std::uint32_t attempts = 0;
    Timestamp first_attempt, last_attempt;
    std::uint64_t bytes = 0;
  };
  Result<std::vector<DeadLetter>> dead_letters(const std::optional<std::string>& sink, std::size_t limit) const;
  // Ids may be cut as long as they are unique (at least 8 digits); "" = all of the sink. Returns how many.
  Result<std::uint64_t> retry_dead(const std::optional<std::string>& sink, const std::string& event_id);
  Result<std::uint64_t> discard_dead(const std::optional<std::string>& sink, const std::string& event_id);

  // ---- looking -----------------------------------------------------------------------------------------------
  Result<std::vector<std::shared_ptr<const Event>>> find(std::string_view job_id, std::size_t limit) const;
  Result<std::shared_ptr<const Event>> event(const std::string& event_id) const;  // kVanished if it is not there

  struct SinkState {
    std::string name;
    bool registered = false;
    std::uint64_t waiting = 0;  // events to come, parked ones included
    std::uint64_t waiting_bytes = 0;
    std::uint64_t parked = 0;
    std::uint64_t dead = 0;
    std::uint64_t acknowledged = 0;           // since the journal was made
    std::optional<Timestamp> oldest_waiting;  // captured_at
    std::optional<Timestamp> last_success;
  };
  struct Usage {
    std::uint64_t events = 0;
    std::uint64_t bytes = 0;  // pages in use
    std::uint64_t limit_bytes = 0;
    bool full = false;
    std::string last_error;  // why the last commit failed; "" = it did not
    std::vector<SinkState> sinks;
  };
  Usage usage() const;
  bool full() const;
  // Everything that was queued before the call is on disk when it returns; false at the deadline.
  bool flush(SteadyTime deadline);

 private:
  class Impl;
  explicit Journal(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace scriptorium
