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
#include "core/journal/capture_mark.h"

namespace scriptorium {

// Durable record of every event and of each sink's answer to it: SQLite in WAL mode with
// synchronous=FULL, one writer thread that commits in groups. The format, with its version, is
// docs/journal.md.
//
// Owns:    the files journal.db, -wal, -shm and bad.* in its directory; the writer thread. Events
// are shared, not copied. Threads: open() before any other thread exists; everything else from any
// thread. Disk:    what append() and settle() promise holds after their callback: then it survives
// a power cut. Fails:   kExhausted (disk full; the writer keeps what it was given and tries again,
// with usage().last_error set),
//          kCorrupt (damage found later than open: the event becomes a dead letter of every sink
//          that had it to come).
class Journal {
 public:
  struct Options {
    std::string directory;                             // made with mode 0700 if missing
    std::uint64_t max_bytes = std::uint64_t{1} << 30;  // journal_max_bytes: above it full() is true
    std::uint64_t cache_bytes = 16U << 20;  // recent events kept in memory for sinks that keep up
    bool read_only = false;                 // for commands while no daemon runs; no writer thread
    std::int64_t user_share_percent = 25;   // of max_bytes; offer() lets no user have more
  };
  // What open() found and did; to be logged.
  struct OpenReport {
    bool created = false;
    std::string quarantined;  // where the damaged journal was put; "" = none was
    std::uint64_t salvaged_events = 0;
    std::uint64_t lost_events =
        0;               // that were seen to be in the damaged file and could not be read
    std::string damage;  // what the check said, in words
  };
  // A journal of a newer format is refused untouched (kInvalidConfig: file, found, needed, remedy).
  // Damage is moved to bad.<time>/ and what can be read goes into a new journal: start succeeds.
  static Result<std::unique_ptr<Journal>> open(const Options& options, Logger& log,
                                               const Clock& clock);
  ~Journal();  // commits what was given to it, if the disk lets it
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  const OpenReport& open_report() const noexcept;
  // Reads everything: structure, references and the content of each event. kCorrupt says what is
  // wrong. Takes as long as reading the file; open() itself only checks the structure.
  Result<void> verify() const;

  // ---- sources
  // -----------------------------------------------------------------------------------------------
  struct Append {
    std::string source;                  // instance name
    std::shared_ptr<const Event> event;  // with all bytes
    bool resolve_first = false;          // no sink sees it before resolved() was called for it
    std::optional<CaptureMark> mark;     // replaces the mark of the same entry
    // Called on the writer thread once the event is durable (or was already there: `fresh` false).
    // Must be quick and must not call the journal. Not called if the process ends first.
    std::function<void(bool fresh)> durable;
  };
  // Queues an event for the next group commit. Never fails; waits, or gives up at `stop` (false),
  // while the queue holds too many bytes or full() is true. An id that the journal holds or whose
  // mark stands changes nothing but the mark.
  bool append(Append item, const std::stop_token& stop);
  // What the journal says of an event that is offered to it.
  enum class Admission {
    kTaken,  // as append(): queued, `durable` will be called
    kFull,  // no room for it now: the journal is full or cannot be written, or the room left is for
            // smaller events
    kOverShare,  // its user holds user_share of the journal, or it is first to be asked whose it is
  };
  // As append(), but waits for the writer thread alone, while that only has to catch up, and never
  // for a sink or a disk. `item` is moved from only if it was taken; what was refused may be
  // offered again once on_room() has called, and until then stays where it came from.
  Admission offer(Append& item, const std::stop_token& stop = {});
  // True if an event of this entry was refused and would be again: it need not be read for that.
  // Looks at source, entry and mtime_ns only.
  bool refuses(const std::string& source, const CaptureMark& mark) const;
  // `call` is called, from any thread, whenever something that was refused to this source may be
  // taken now. It must be quick and must not call the journal: best it writes to an eventfd. Empty:
  // no more calls; returns when none is under way.
  void on_room(const std::string& source, std::function<void()> call);
  // Several events and a source's position in one transaction; returns when that is durable.
  Result<void> append_all(const std::string& source,
                          std::vector<std::shared_ptr<const Event>> events,
                          std::optional<std::string> position, const std::stop_token& stop);
  std::optional<std::string> position(const std::string& source) const;

  std::vector<CaptureMark> marks(const std::string& source) const;  // all of them; at start
  void set_mark(const std::string& source, CaptureMark mark);       // queued; no event with it
  void forget_marks(const std::string& source, std::vector<std::string> entries);  // queued

  // ---- owner resolution
  // --------------------------------------------------------------------------------------
  struct Unresolved {
    std::uint64_t ticket = 0;
    std::shared_ptr<const Event>
        event;  // ids, times, job id and user; of the files only a short script's bytes
    std::optional<CaptureMark> mark;
  };
  // Up to `limit` events of this source that wait for resolution, with ticket > after, oldest
  // first; fewer where they take much memory. Those whose resolution is queued are left out.
  std::vector<Unresolved> unresolved(const std::string& source, std::uint64_t after,
                                     std::size_t limit) const;
  // Until there is one with ticket > after or a question of owner_questions(), a stop, or the
  // deadline; true if there is.
  bool wait_unresolved(const std::string& source, std::uint64_t after, const std::stop_token& stop,
                       SteadyTime deadline) const;
  struct Resolved {
    std::uint64_t ticket = 0;
    std::shared_ptr<const Event>
        event;  // what the scheduler said of `job` and `user`; all else stays as it was captured
  };
  void resolved(std::vector<Resolved> events);  // queued; sinks see them after the commit
  // Entries that wait in the spool until it is known whose they are (kOverShare): as unresolved(),
  // with ticket 0. To be asked like those, and answered by answer_owner(); an unverified user means
  // that nobody could say.
  std::vector<Unresolved> owner_questions(const std::string& source, std::size_t limit) const;
  void answer_owner(const std::string& source, const std::string& event_id, const User& user);
  std::uint64_t unresolved_count(const std::string& source) const;

  // ---- owners that become known later
  // ------------------------------------------------------------------------ What resolved() let go
  // without a verified owner is kept in mind, to be asked about again: the last kMostUnverified, or
  // fewer so that they take at most an eighth of max_bytes. One whose metadata stay above 4 KiB
  // without the lists from its script is not.

  static constexpr std::uint64_t kMostUnverified = 50'000;
  struct Unverified {
    std::uint64_t number = 0;
    Timestamp noted_at;                  // when it became visible
    std::shared_ptr<const Event> event;  // without bytes
  };
  // Up to `limit` that are due at `now`, the longest due first; source "" = of all sources.
  Result<std::vector<Unverified>> unverified(const std::string& source, Timestamp now,
                                             std::size_t limit) const;
  std::uint64_t unverified_count(const std::string& source) const;
  struct LaterOwner {
    std::uint64_t number = 0;
    std::optional<Timestamp> due;  // when it is asked about again; nothing: never more
  };
  Result<void> change_unverified(std::vector<LaterOwner> changes);
  // All of a source are due now; returns how many.
  Result<std::uint64_t> hasten_unverified(const std::string& source);
  // In one transaction `event`, which says what it `replaces`, becomes visible to all sinks, and
  // the other needs no owner any more. Taken also while the journal is full, so only to be called
  // while it is not.
  Result<void> replace_unverified(std::uint64_t number, const std::string& source,
                                  std::shared_ptr<const Event> event);
  // Whether this sink, which has `event` still to come, also gets the one that replaces it, and so
  // needs only that.
  bool is_replaced(std::uint32_t sink, const Event& event) const;

  // ---- sinks
  // -------------------------------------------------------------------------------------------------
  using SinkId = std::uint32_t;
  // Before its first read(), in every run. A new sink gets every event that the journal still
  // holds; one that comes back after retire_other_sinks() gets what waited for it, and what becomes
  // visible from now on. `kinds`: which kinds it wants; a pattern per item, "job.*" allowed. Events
  // that no sink still needs are removed.
  Result<SinkId> register_sink(const std::string& name, std::vector<std::string> kinds);
  // Once all configured sinks are registered, and after each change of the configuration: sinks of
  // other names keep what waits for them and get nothing that becomes visible from now on.
  Result<void> retire_other_sinks(std::vector<std::string> configured);
  // Sinks that the journal knows and that are not registered in this run: they keep their events
  // until removed.
  std::vector<std::string> unregistered_sinks() const;
  // With what waits for it and its dead letters. kPermanent: it is registered, or there is none of
  // that name.
  Result<void> remove_sink(const std::string& name);

  struct Item {
    std::uint64_t sequence = 0;
    std::shared_ptr<const Event> event;  // null: damaged in the journal, already made a dead letter
    std::uint32_t attempts = 0;          // so far, of a retried one
  };
  // The next events for a sink after `after`, in order, at most `max_events` and about `max_bytes`
  // (at least one). Includes none that were settled, dead or parked as retry (those come from
  // parked()).
  Result<std::vector<Item>> read(SinkId sink, std::uint64_t after, std::size_t max_events,
                                 std::uint64_t max_bytes) const;
  // Events that settle() left as retry, beyond `after`, oldest first, but for those that `skip`
  // says are known; for the start, and for `deadletters retry`. At most `limit` and about
  // `max_bytes` (at least one).
  Result<std::vector<Item>> parked(
      SinkId sink, std::size_t limit, std::uint64_t after = 0,
      std::uint64_t max_bytes = std::uint64_t{32} << 20,
      const std::function<bool(std::uint64_t sequence)>& skip = {}) const;
  std::uint64_t parked_generation(SinkId sink) const;  // changes when a dead letter was put back
  std::uint64_t cursor(SinkId sink)
      const;  // all up to here are settled, dead or parked: the `after` of a first read()
  // Until an event after `after` stands ready, a dead letter was put back (parked_generation
  // differs), a stop, or the deadline; true if there may be something to do.
  bool wait(SinkId sink, std::uint64_t after, std::uint64_t parked_generation,
            const std::stop_token& stop, SteadyTime deadline) const;

  struct Settle {
    std::uint64_t sequence = 0;
    Outcome outcome = Outcome::kRetry;  // kRetry parks it: the cursor may pass
    std::string reason;
    std::uint32_t attempts = 0;
    Timestamp first_attempt;
    Timestamp last_attempt;
  };
  // Queued for the next group commit. `cursor`: the highest sequence that read() gave out so far
  // such that everything up to it is in this or an earlier settle().
  void settle(SinkId sink, std::vector<Settle> settlements, std::uint64_t cursor);

  // ---- archives
  // ----------------------------------------------------------------------------------------------
  // A sink that does not keep up must not fill the journal while an archive holds the same events:
  // release() then keeps only what finds them there, and read() and parked() fetch them back.
  // Order, cursors and counts stay as they are.

  // Gives back an event by what finds it (ReadableSink::fetch()). Fails: kVanished and kCorrupt
  // make it a dead letter of the sink that reads it; anything else, and a journal without an
  // archive, make the sink wait. Called by threads that read.
  using Archive = std::function<Result<std::shared_ptr<const Event>>(const Event& locator)>;
  void set_archive(Archive archive);
  struct Releasable {
    std::uint64_t sequence = 0;
    std::shared_ptr<const Event> event;  // without bytes
    std::uint64_t bytes = 0;
  };
  // Up to `limit` events after `after`, oldest first, whose bytes the journal holds, which the sink
  // `archive` has acknowledged and which another sink still needs. `after` becomes where to go on;
  // the end is reached when it stays what it was.
  Result<std::vector<Releasable>> releasable(const std::string& archive, std::uint64_t& after,
                                             std::size_t limit) const;
  // The caller has fetched each of them from the archive and found it whole. Returns after the
  // commit.
  Result<void> release(const std::vector<Releasable>& events);
  // Until more than `bytes` are in use, or a stop.
  bool wait_above(std::uint64_t bytes, const std::stop_token& stop) const;

  std::uint64_t used_bytes() const;

  // A sink that is filled from an archive. Its events wait for it like others, but only for it.
  struct Fill {
    enum class State { kCounting = 0, kFilling = 1, kDone = 2 };
    std::string sink, archive;
    Timestamp since;
    std::string position;       // in the archive's listing
    std::uint64_t sent = 0;     // given to the sink
    std::uint64_t present = 0;  // that it had or was to get anyway
    std::uint64_t skipped = 0;  // records of the archive that could not be understood
    std::uint64_t total = 0;    // as counted at the beginning
    State state = State::kCounting;
  };
  std::vector<Fill> fills() const;
  Result<void> set_fill(const Fill& fill);  // in place of one for the same sink
  // The events of one page and how far the fill is, in one transaction. Events that the sink has,
  // or is to get, are left out. kPermanent: the sink is not registered.
  Result<void> fill(const Fill& progress, std::vector<std::shared_ptr<const Event>> events);

  // ---- dead letters
  // ------------------------------------------------------------------------------------------
  struct DeadLetter {
    std::string sink;
    std::uint64_t sequence = 0;
    std::string event_id, kind, cluster, job_id;
    std::string reason;
    std::uint32_t attempts = 0;
    Timestamp first_attempt, last_attempt;
    std::uint64_t bytes = 0;
  };
  Result<std::vector<DeadLetter>> dead_letters(const std::optional<std::string>& sink,
                                               std::size_t limit) const;
  // Ids may be cut as long as they are unique (at least 8 digits); "" = all of the sink. Returns
  // how many.
  Result<std::uint64_t> retry_dead(const std::optional<std::string>& sink,
                                   const std::string& event_id);
  Result<std::uint64_t> discard_dead(const std::optional<std::string>& sink,
                                     const std::string& event_id);

  // ---- looking
  // -----------------------------------------------------------------------------------------------
  Result<std::vector<std::shared_ptr<const Event>>> find(std::string_view job_id,
                                                         std::size_t limit) const;
  Result<std::shared_ptr<const Event>> event(
      const std::string& event_id) const;  // kVanished if it is not there

  struct SinkState {
    std::string name;
    bool registered = false;
    std::vector<std::string> kinds;
    std::uint64_t waiting = 0;  // events to come, parked ones included
    std::uint64_t waiting_bytes = 0;
    std::uint64_t parked = 0;
    std::uint64_t in_archive = 0;  // of those to come: will be refilled from an archive
    std::uint64_t dead = 0;
    std::uint64_t acknowledged = 0;           // since the journal was made
    std::optional<Timestamp> oldest_waiting;  // captured_at
    std::optional<Timestamp> last_success;
  };
  // A user whose entries wait in the spool because he holds his share. Without user_id: those of
  // which it is to be asked first.
  struct OverShare {
    std::string user_id, user;
    std::uint64_t bytes = 0;    // that he holds in the journal
    std::uint64_t waiting = 0;  // entries
    std::uint64_t waiting_bytes = 0;
  };
  struct Usage {
    std::uint64_t events = 0;
    std::uint64_t bytes = 0;      // pages in use, and -wal
    std::uint64_t wal_bytes = 0;  // of it
    std::uint64_t limit_bytes = 0;
    bool full = false;
    std::string last_error;  // why the last commit failed; "" = it did not
    std::uint64_t user_share_bytes = 0;
    std::vector<OverShare> over_share;
    std::vector<SinkState> sinks;
  };
  Usage usage() const;
  bool full() const;
  // True once the file's structure was found damaged. Nothing more is written then, and what was
  // queued is given up as at a crash; the next open() puts the file aside and takes over what can
  // be read.
  bool damaged() const;
  // Everything that was queued before the call is on disk when it returns; false at the deadline.
  bool flush(SteadyTime deadline);

 private:
  class Impl;
  explicit Journal(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace scriptorium
