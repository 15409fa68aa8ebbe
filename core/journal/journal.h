#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/logger.h"
#include "core/base/result.h"
#include "core/journal/journal_types.h"

namespace scriptorium {

// Durable record of every event and of each sink's answer to it: SQLite in WAL mode with
// synchronous=FULL, one writer thread that commits in groups. docs/journal.md describes the format
// and its version.
//
// Owns:    the files journal.db, -wal, -shm and bad.* in its directory; the writer thread. Events
//          are shared, not copied.
// Threads: open() before any other thread exists; everything else from any thread.
// Disk:    what append() and settle() promise holds after their callback: it then survives a power
//          cut.
// Fails:   kExhausted (disk full; the writer keeps what it was given and tries again, with
//          usage().last_error set),
//          kCorrupt (damage found after open(): the event becomes a dead letter of every sink that
//          was still to get it).
class Journal {
 public:
  using Options = journal::Options;
  using OpenReport = journal::OpenReport;
  using Append = journal::Append;
  using Admission = journal::Admission;
  using Unresolved = journal::Unresolved;
  using Resolved = journal::Resolved;
  using Unverified = journal::Unverified;
  using LaterOwner = journal::LaterOwner;
  using SinkId = journal::SinkId;
  using Item = journal::Item;
  using Settle = journal::Settle;
  using Archive = journal::Archive;
  using Releasable = journal::Releasable;
  using Fill = journal::Fill;
  using DeadLetter = journal::DeadLetter;
  using SinkState = journal::SinkState;
  using OverShare = journal::OverShare;
  using Usage = journal::Usage;

  // A journal of a newer format is refused untouched (kInvalidConfig: file, found, needed, remedy).
  // A damaged journal is moved to bad.<time>/ and what can be read goes into a new one: the start
  // succeeds.
  static Result<std::unique_ptr<Journal>> open(const Options& options, Logger& log,
                                               const Clock& clock);
  ~Journal();  // commits what is queued, if the disk allows it
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  const OpenReport& open_report() const noexcept;
  // Reads everything: structure, references and the content of each event. kCorrupt says what is
  // wrong. Takes as long as reading the file; open() itself only checks the structure.
  Result<void> verify() const;

  // Sources

  // The key by which the journal recognises an entry with this original id (original_id() in
  // core/capture/assemble.h), whatever event is made of it. "" if opened for reading only.
  std::string capture_key(std::string_view original_id) const;
  // Queues an event for the next group commit. Waits while the queue holds too many bytes or full()
  // is true; false only if `stop` was requested before the event was taken. A capture key that a
  // mark has, or an id that the journal holds, changes nothing but the mark, which keeps naming the
  // event that was made of its entry.
  bool append(Append item, const std::stop_token& stop);
  // As append(), but waits only while the writer thread catches up, never for a sink or a disk.
  // `item` is moved from only if it was taken. A refused event stays where it came from and may be
  // offered again once on_room() has called.
  Admission offer(Append& item, const std::stop_token& stop = {});
  // Takes an event although there is no room for it, for a source that ends and would lose it.
  // False: kMostBeyondLimit is used up too, however often the daemon was restarted.
  static constexpr std::uint64_t kMostBeyondLimit = 64U << 20;
  bool append_beyond_limit(Append item);
  // True if an event of this entry was refused and would be refused again, so that reading the
  // entry is useless. Considers source, entry and mtime_ns only.
  bool refuses(const std::string& source, const CaptureMark& mark) const;
  // `call` runs, on any thread, whenever something that was refused to this source may be taken
  // now. It must be quick and must not call the journal; writing to an eventfd is best. An empty
  // `call` ends this; on_room() then returns when no call is running.
  void on_room(const std::string& source, std::function<void()> call);
  // Several events and a source's position in one transaction; returns when both are durable.
  Result<void> append_all(const std::string& source,
                          std::vector<std::shared_ptr<const Event>> events,
                          std::optional<std::string> position, const std::stop_token& stop);
  std::optional<std::string> position(const std::string& source) const;

  std::vector<CaptureMark> marks(const std::string& source) const;  // all of them; at start
  void set_mark(const std::string& source, CaptureMark mark);       // queued; no event with it
  void forget_marks(const std::string& source, std::vector<std::string> entries);  // queued

  // Owner resolution

  // Up to `limit` events of this source that wait for resolution, with ticket > after, oldest
  // first; fewer if they are large. Omits those whose resolution is queued.
  std::vector<Unresolved> unresolved(const std::string& source, std::uint64_t after,
                                     std::size_t limit) const;
  // Waits until there is one with ticket > after or a question of owner_questions(), a stop, or the
  // deadline; true if there is.
  bool wait_unresolved(const std::string& source, std::uint64_t after, const std::stop_token& stop,
                       SteadyTime deadline) const;
  void resolved(std::vector<Resolved> events);  // queued; sinks see them after the commit
  // Entries that wait in the spool until their owner is known (kOverShare): as unresolved(), with
  // ticket 0. To be asked for like those, and answered by answer_owner(); an unverified user means
  // that the scheduler could not name one.
  std::vector<Unresolved> owner_questions(const std::string& source, std::size_t limit) const;
  void answer_owner(const std::string& source, const std::string& event_id, const User& user);
  std::uint64_t unresolved_count(const std::string& source) const;

  // Owners that become known later. The journal remembers which events resolved() published without
  // a verified owner, so that the scheduler can be asked again: the last kMostUnverified, or fewer,
  // so that they take at most an eighth of max_bytes. It does not remember an event whose metadata
  // exceed 4 KiB even without the lists from its script.

  static constexpr std::uint64_t kMostUnverified = 50'000;
  // Up to `limit` that are due at `now`, the longest due first; source "" = of all sources.
  Result<std::vector<Unverified>> unverified(const std::string& source, Timestamp now,
                                             std::size_t limit) const;
  // `noted_since`: only those that became visible at this time or later.
  std::uint64_t unverified_count(const std::string& source, Timestamp noted_since = {}) const;
  // The numbers of those that were noted after the one with the number `after`, in order.
  std::vector<std::uint64_t> unverified_numbers(const std::string& source,
                                                std::uint64_t after) const;
  Result<void> change_unverified(std::vector<LaterOwner> changes);
  // Makes all of a source due now; returns how many there are.
  Result<std::uint64_t> hasten_unverified(const std::string& source);
  // In one transaction, `event`, which names what it `replaces`, becomes visible to all sinks, and
  // the replaced one no longer needs an owner. Taken even while the journal is full, so call it
  // only while it is not.
  Result<void> replace_unverified(std::uint64_t number, const std::string& source,
                                  std::shared_ptr<const Event> event);
  // Whether this sink, which is still to get `event`, will also get the event that replaces it, and
  // therefore needs only that.
  bool is_replaced(std::uint32_t sink, const Event& event) const;

  // Sinks

  // Call before the first read(), in every run. A new sink gets every event that the journal still
  // holds; one that returns after retire_other_sinks() gets what waited for it, and what becomes
  // visible from now on. `kinds`: the kinds it wants, one pattern per item; "job.*" is allowed.
  // Removes events that no sink needs any more.
  Result<SinkId> register_sink(const std::string& name, std::vector<std::string> kinds);
  // Call once all configured sinks are registered, and after each change of the configuration:
  // sinks of other names keep what waits for them and get nothing that becomes visible from now on.
  Result<void> retire_other_sinks(std::vector<std::string> configured);
  // Sinks in the journal that are not registered in this run. They keep their events until removed.
  std::vector<std::string> unregistered_sinks() const;
  // Removes the sink with its waiting events and dead letters. kPermanent: it is registered, or
  // there is no such sink.
  Result<void> remove_sink(const std::string& name);

  // The next events for a sink after `after`, in order, at most `max_events` and about `max_bytes`
  // (at least one). Omits events that were settled, dead or parked as retry (parked() has those).
  Result<std::vector<Item>> read(SinkId sink, std::uint64_t after, std::size_t max_events,
                                 std::uint64_t max_bytes) const;
  // Events that settle() parked as retry, beyond `after`, oldest first, except those that `skip`
  // accepts; for the start, and for `deadletters retry`. At most `limit` and about `max_bytes` (at
  // least one).
  Result<std::vector<Item>> parked(
      SinkId sink, std::size_t limit, std::uint64_t after = 0,
      std::uint64_t max_bytes = std::uint64_t{32} << 20,
      const std::function<bool(std::uint64_t sequence)>& skip = {}) const;
  // Changes whenever a dead letter is returned to delivery.
  std::uint64_t parked_generation(SinkId sink) const;
  // Everything up to here is settled, dead or parked: the `after` of a first read().
  std::uint64_t cursor(SinkId sink) const;
  // Waits until an event after `after` is ready, a dead letter was returned to delivery
  // (parked_generation differs), a stop, or the deadline; true if there may be something to do.
  bool wait(SinkId sink, std::uint64_t after, std::uint64_t parked_generation,
            const std::stop_token& stop, SteadyTime deadline) const;
  // Queued for the next group commit. `cursor`: the highest sequence that read() returned so far
  // such that everything up to it is in this or an earlier settle().
  void settle(SinkId sink, std::vector<Settle> settlements, std::uint64_t cursor);

  // Archives. A sink that does not keep up must not fill the journal while an archive holds the
  // same events: release() then keeps only their locators, and read() and parked() fetch the events
  // from the archive. Order, cursors and counts are unaffected.

  void set_archive(Archive archive);
  // Up to `limit` events after `after`, oldest first, whose bytes the journal holds, which the sink
  // `archive` has acknowledged and which another sink still needs. `after` becomes the place to
  // continue from; if it does not change, the end is reached.
  Result<std::vector<Releasable>> releasable(const std::string& archive, std::uint64_t& after,
                                             std::size_t limit) const;
  // The caller has fetched each of them from the archive and verified it. Returns after the commit.
  Result<void> release(const std::vector<Releasable>& events);
  // Waits until more than `bytes` are in use, an entry was refused because of its user's share (by
  // offer() or refuses(), since the last call), or a stop. For one thread.
  bool wait_for_release(std::uint64_t bytes, const std::stop_token& stop);
  // The users whose entries wait because of their share; "" for those whose owner is not known yet.
  std::vector<OverShare> over_share() const;
  std::uint64_t user_share_bytes() const;

  std::uint64_t used_bytes() const;

  std::vector<Fill> fills() const;
  Result<void> set_fill(const Fill& fill);  // replaces the one of the same sink
  // The events of one page, and the fill's progress from `before` on, in one transaction. Of
  // `locators` an archive holds the rest, `whole` are kept as they are. Omits events that the sink
  // has or is to get. kPermanent: the sink is not registered, or the fill is not at `before` any
  // more, as it was stopped or replaced meanwhile.
  Result<void> fill(const Fill& before, const Fill& progress,
                    std::vector<std::shared_ptr<const Event>> locators,
                    std::vector<std::shared_ptr<const Event>> whole = {});

  // Dead letters

  Result<std::vector<DeadLetter>> dead_letters(const std::optional<std::string>& sink,
                                               std::size_t limit) const;
  // Ids may be shortened as long as they are unique (at least 8 digits); "" = all of the sink. Both
  // return how many letters they changed. An event that no sink may get (Append::dead) is not
  // retried: kPermanent, unless there are others.
  Result<std::uint64_t> retry_dead(const std::optional<std::string>& sink,
                                   const std::string& event_id);
  Result<std::uint64_t> discard_dead(const std::optional<std::string>& sink,
                                     const std::string& event_id);

  // Inspection

  Result<std::vector<std::shared_ptr<const Event>>> find(std::string_view job_id,
                                                         std::size_t limit) const;
  // kVanished if the journal does not hold it.
  Result<std::shared_ptr<const Event>> event(const std::string& event_id) const;
  Usage usage() const;
  bool full() const;
  // True once the file's structure was found damaged. Nothing more is written then, and what was
  // queued is lost as at a crash; the next open() quarantines the file and salvages what can be
  // read.
  bool damaged() const;
  // Waits until everything that was queued before the call is on disk; false at the deadline.
  bool flush(SteadyTime deadline);

 private:
  class Impl;
  explicit Journal(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace scriptorium
