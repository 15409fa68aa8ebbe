#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "core/base/guarded.h"
#include "core/journal/format.h"
#include "core/journal/journal.h"
#include "core/journal/mark_index.h"
#include "core/journal/recent_events.h"
#include "core/journal/shares.h"
#include "core/journal/sqlite.h"

namespace scriptorium::journal {

using SinkId = Journal::SinkId;

// What is known of a sink. The writer owns the true one; after each commit a copy goes into the
// shared state.
struct SinkRow {
  struct Ahead {
    State state = State::kSettled;
    bool stored = false;  // has its row in `exceptions`
  };
  // Events in (after, upto] became visible while the sink was not configured: it wants none of
  // them.
  struct Absence {
    static constexpr std::uint64_t kStill =
        ~std::uint64_t{0};  // as `upto`: it is not configured now
    std::uint64_t after = 0, upto = kStill;
  };
  SinkId id = 0;
  std::string name;
  std::string kinds;  // patterns, one a line
  std::vector<std::string> patterns;
  std::vector<Absence> absences;  // in order
  bool registered = false;
  std::uint64_t cursor = 0;
  std::uint64_t acknowledged = 0;
  std::optional<Timestamp> last_success;
  // Counters, made once at open and then kept.
  std::uint64_t pending = 0, pending_bytes = 0;  // wanted, beyond the cursor, not in `ahead`
  std::uint64_t parked = 0, parked_bytes = 0;
  std::uint64_t dead = 0;
  std::uint64_t in_archive = 0;   // of pending and parked: those whose bytes only an archive holds
  std::uint64_t last_wanted = 0;  // highest sequence that it wants
  std::uint64_t generation = 0;
  std::map<std::uint64_t, Ahead> ahead;  // what lies beyond the cursor and is no longer to come
  // No event to come lies in (scanned_from, scanned_to]; only in the shared copy.
  std::uint64_t scanned_from = 0, scanned_to = 0;

  bool absent() const { return !absences.empty() && absences.back().upto == Absence::kStill; }
  // `target`: of an event that is for one sink only, else 0.
  bool wants(std::string_view kind, std::uint64_t seq, SinkId target) const;
};

std::string encode_absences(const std::vector<SinkRow::Absence>& absences);  // "120-450 900-"
std::vector<SinkRow::Absence> decode_absences(std::string_view text);
std::string join_kinds(const std::vector<std::string>& kinds);
std::vector<std::string> split_kinds(std::string_view kinds);

// A list of things that the writer does in one transaction, in the order they were queued.
struct AppendMany {
  std::string source;
  std::vector<std::shared_ptr<const Event>> events;
  std::optional<std::string> position;
};
struct PutMark {
  std::string source;
  CaptureMark mark;
};
struct ForgetMarks {
  std::string source;
  std::vector<std::string> entries;
};
struct ResolveMany {
  std::vector<Journal::Resolved> events;
};
struct PublishDamaged {  // an unresolved event that cannot be read: its sinks shall see it, as a
                         // dead letter
  std::uint64_t ticket = 0;
};
struct ReleaseMany {  // an archive has proved that it holds these
  struct Item {
    std::uint64_t sequence = 0;
    std::string locator;  // encode_locator()
  };
  std::vector<Item> items;
};
struct SettleMany {
  SinkId sink = 0;
  std::vector<Journal::Settle> settlements;
  std::uint64_t cursor = 0;
};
class Writer;
// Anything else, with a transaction of its own that is tried once. `done` gets the result after
// commit or rollback.
struct Command {
  std::function<Result<std::uint64_t>(Writer&)> run;
  std::function<void(Result<std::uint64_t>)> done;
};
struct Entry {
  std::variant<Journal::Append, AppendMany, PutMark, ForgetMarks, ResolveMany, PublishDamaged,
               ReleaseMany, SettleMany, Command>
      what;
  std::uint64_t bytes = 0;
  bool urgent = true;  // somebody waits for it: no gathering
};

struct Queue {
  std::deque<Entry> entries;
  std::uint64_t bytes = 0;    // of `entries`
  std::uint64_t writing = 0;  // of those that the writer has taken, until they are committed
  std::uint64_t lazy = 0;     // how many of `entries` are settlements or the like
  std::uint64_t urgent = 0;
  std::uint64_t commands = 0;
  std::uint64_t queued = 0;  // ever
  std::uint64_t done = 0;    // committed ever
  std::uint64_t pruned =
      0;  // of those, up to where what they made superfluous was removed, or begun to be
  std::uint64_t flushing = 0;  // flush() calls that wait
  SteadyTime first_lazy;
  bool stuck = false;   // commits fail at the moment
  bool broken = false;  // there will be no commit any more
};

struct SourceState {
  std::uint64_t unresolved = 0;
  std::uint64_t last_ticket = 0;
};

struct Shared {
  std::map<SinkId, SinkRow> sinks;
  std::map<std::string, SourceState, std::less<>> sources;
  RecentEvents events;
  RecentEvents tickets;
  // Events whose owner became known while a sink had them still to come: by id, the number of the
  // one that replaces it.
  std::unordered_map<std::string, std::uint64_t> replaced;
  std::uint64_t last_seq = 0;
  std::uint64_t event_count = 0;
  std::uint64_t used_bytes = 0;
  std::uint64_t wal_bytes = 0;
  std::map<std::string, std::uint64_t>
      charges;  // by user id: what the events of verified users take, as stored
  std::uint64_t largest_charge = 0;
  std::uint64_t unresolved_bytes = 0;            // the same of all that wait for their owner
  std::map<std::string, std::size_t> questions;  // by source: Shares::question_count()
  std::string last_error;
};

// Connections for reading, made when needed, at most a few kept.
class Readers {
 public:
  struct Reader {
    std::unique_ptr<Connection> connection;
    Codec codec;
    std::unique_ptr<EventReader> events;
    std::string content;  // content_columns()
    std::string columns;  // event_columns()
    Statement scan, row, parked, weight;
  };
  class Lease {
   public:
    Lease(Readers& pool, std::unique_ptr<Reader> reader)
        : pool_(&pool), reader_(std::move(reader)) {}
    Lease(Lease&&) noexcept = default;
    ~Lease();
    Reader* operator->() const noexcept { return reader_.get(); }

   private:
    Readers* pool_;
    std::unique_ptr<Reader> reader_;
  };

  Readers(std::string file, Connection::Mode mode) : file_(std::move(file)), mode_(mode) {}
  Result<Lease> lease();

 private:
  static constexpr std::size_t kKept = 4;
  std::string file_;
  Connection::Mode mode_;
  Guarded<std::vector<std::unique_ptr<Reader>>> idle_;
};

struct OpenedDatabase {
  std::unique_ptr<Connection> connection;
  Journal::OpenReport report;
  bool immutable = false;  // read without -wal and -shm: nobody has the file open, and we may not
                           // write beside it
};
// Makes the directory and the file, checks what is there, quarantines and salvages if need be
// (journal_open.cc).
Result<OpenedDatabase> open_database(const Journal::Options& options, Logger& log,
                                     const Clock& clock);
// So that the next open_database() puts the journal aside even if its check finds nothing.
Result<void> ask_for_salvage(const std::string& directory, const std::string& why);
// What is wrong with it, in words; "" = nothing. `whole`: every index, reference and content too,
// which reads all bytes.
std::string verify(Connection& connection, bool whole);

// The one who writes: applies queue entries to the database inside a transaction. Everything here
// belongs to its thread. What a transaction changes in memory is kept apart until it is committed,
// and undone if it is not.
class Writer {
 public:
  Writer(std::unique_ptr<Connection> connection, const Journal::Options& options,
         Guarded<Shared>& shared, const Clock& clock);

  Result<void> load();  // counters and marks, at open
  // All of it or nothing. What no sink needs any more is removed with it, once there is much of it:
  // each removal touches pages all over the indices, and many together touch hardly more of them
  // than a few. `prune`: however little it is.
  Result<void> commit(std::vector<Entry>& batch, bool prune);
  void checkpoint(bool now);
  bool prune_waiting() const noexcept { return prune_waiting_; }  // more to remove at once
  std::optional<SteadyTime> prune_deferred_since() const noexcept { return prune_deferred_since_; }
  // After a commit: the callbacks of its appends.
  struct Callback {
    std::function<void(bool)> durable;
    bool fresh = false;
  };
  std::vector<Callback> take_callbacks() { return std::move(callbacks_); }
  std::uint64_t used_bytes() const noexcept { return used_bytes_; }  // pages in use, and -wal
  std::uint64_t wal_bytes() const noexcept;  // of it, what -wal holds and cannot let go of yet
  bool damaged() const noexcept { return connection_->damaged(); }
  bool uncharged() const noexcept {
    return uncharged_;
  }  // the last commit lowered what somebody holds

  // ---- commands
  Result<std::uint64_t> register_sink(const std::string& name,
                                      const std::vector<std::string>& kinds);
  Result<std::uint64_t> remove_sink(const std::string& name);
  // Sinks of other names get nothing that becomes visible from now on. Returns how many were not
  // retired before.
  Result<std::uint64_t> retire_other_sinks(const std::vector<std::string>& configured);
  Result<std::uint64_t> set_fill(const Journal::Fill& fill);
  Result<std::uint64_t> fill(Journal::Fill progress,
                             const std::vector<std::shared_ptr<const Event>>& events);
  Result<std::uint64_t> change_unverified(const std::vector<Journal::LaterOwner>& changes);
  Result<std::uint64_t> hasten_unverified(const std::string& source, Timestamp now);
  Result<std::uint64_t> replace_unverified(std::uint64_t number, const std::string& source,
                                           const std::shared_ptr<const Event>& event);
  Result<std::uint64_t> change_dead(const std::optional<std::string>& sink,
                                    const std::string& event_id, bool retry);

 private:
  struct Published {
    std::uint64_t seq = 0;
    std::shared_ptr<const Event> event;
  };
  struct PublishedTicket {
    std::uint64_t ticket = 0;
    std::string source;
    std::shared_ptr<const Event> event;
  };
  struct EventInfo {
    std::uint64_t seq = 0;
    std::uint64_t bytes = 0;
    std::string kind;
    SinkId target = 0;
    bool in_archive = false;
  };

  void apply(Journal::Append& item);
  void apply(AppendMany& item);
  void apply(PutMark& item);
  void apply(ForgetMarks& item);
  void apply(ResolveMany& item);
  void apply(PublishDamaged& item);
  void apply(ReleaseMany& item);
  void apply(SettleMany& item);
  void apply(Command&) {}

  bool known(std::string_view source, const std::string& id);
  void put_mark(const std::string& source, const CaptureMark& mark);
  // Where an event's bytes are, as its row says it.
  struct Content {
    std::string blobs;
    std::int64_t pack = 0;
    std::uint64_t stored = 0;  // bytes that the journal grew by for it, its metadata not counted
    std::string owner;         // of an event that goes
  };
  Content store_content(const Event& event);
  static Content content_of_row(const Statement& row, int first);  // blobs, pack, stored, owner
  void release(const Content& content);
  void insert_event(const std::string& source, const std::shared_ptr<const Event>& event,
                    const Content& content);
  void publish_damaged(std::uint64_t ticket);
  void note_unverified(const std::string& source, const Event& event);
  void load_replaced();
  void charge(const std::string& owner, std::int64_t bytes);
  void count_new(std::uint64_t seq, std::string_view kind, std::uint64_t bytes, SinkId target,
                 bool in_archive);
  bool still_to_come(const SinkRow& row, const EventInfo& event) const;
  // Whether a sink that is not configured keeps it.
  bool kept_for_absent(const EventInfo& event) const;
  void store_absences(SinkRow& row);
  // Whether sinks at large have it or are to get it. One that only waits for a sink that is filled
  // does not count, and leaves.
  bool in_events(const std::string& id);
  void remove_fill_event(const EventInfo& event);
  SinkRow& touch(SinkId id);
  void look_up(const std::vector<Journal::Settle>& settlements);
  const EventInfo* info(std::uint64_t seq) const;
  void change_blobs(std::int64_t first, std::int64_t last, std::int64_t change);
  std::optional<State> exception_state(SinkId sink, std::uint64_t seq);
  void put_exception(SinkId sink, const Journal::Settle& settle, State state);
  void erase_exception(SinkId sink, std::uint64_t seq);
  void advance_idle_cursors();
  void recount(SinkRow& row);
  void store_sinks();
  enum class Prune { kCandidates, kIfMuch, kAll };
  void prune(Prune what, std::int64_t most);
  void delete_event(std::uint64_t seq);
  void store_blob_counts();
  void drop_packs();
  void begin_memory();
  void undo_memory();
  void measure();
  void publish();
  std::uint64_t lowest_cursor() const;

  std::unique_ptr<Connection> connection_;
  Guarded<Shared>& shared_;
  const Clock& clock_;
  Codec codec_;

  Statement begin_, commit_, find_event_, find_unresolved_, insert_event_, insert_unresolved_,
      find_blob_, insert_blob_, insert_pack_, drop_packs_, drop_blobs_, change_blobs_, put_mark_,
      forget_mark_, put_position_, take_unresolved_, delete_unresolved_, event_info_,
      exception_state_, put_exception_, erase_exception_, erase_settled_, store_sink_,
      exceptions_in_, exception_of_, prune_scan_, prune_range_, prune_one_, content_of_,
      scan_kinds_, page_count_, free_pages_, parked_by_, release_one_, note_unverified_;

  // True state, and what the open transaction would undo.
  std::map<SinkId, SinkRow> sinks_;
  MarkIndex marks_;
  std::map<std::string, SourceState, std::less<>> sources_;
  std::uint64_t last_seq_ = 0, last_ticket_ = 0, last_blob_ = 0, last_pack_ = 0, event_count_ = 0,
                unresolved_count_ = 0, pruned_ = 0;
  bool prune_waiting_ = false;
  std::optional<SteadyTime> prune_deferred_since_;
  std::uint64_t settled_bytes_ =
      0;                          // since the last removal, about: a roll-back does not count back
  std::vector<EventInfo> infos_;  // of what is being settled, by seq
  struct Before {
    std::map<SinkId, SinkRow> sinks;
    std::vector<SinkId> added;
    std::map<std::string, SourceState, std::less<>> sources;
    std::uint64_t last_seq = 0, last_ticket = 0, last_blob = 0, last_pack = 0, event_count = 0,
                  unresolved_count = 0, pruned = 0;
    std::uint64_t unresolved_bytes = 0;
    bool prune_waiting = false;
  } before_;

  std::vector<Published> published_;
  std::vector<PublishedTicket> published_tickets_;
  std::vector<std::pair<std::string, std::uint64_t>> published_replaced_;
  std::vector<std::uint64_t> resolved_tickets_;
  std::vector<SinkId> removed_sinks_;
  std::vector<Callback> callbacks_;
  std::vector<std::uint64_t> candidates_;  // lost an exception: may be prunable below `pruned_`
  std::unordered_map<std::int64_t, std::int64_t> blob_changes_;
  std::vector<std::int64_t> released_packs_;
  std::map<std::string, std::int64_t> charge_changes_;  // by user id
  std::uint64_t unresolved_bytes_ = 0;
  bool uncharged_ = false;
  std::uint64_t used_bytes_ = 0;
  const std::uint64_t max_bytes_;
  std::uint64_t noted_ = 0;  // by note_unverified()
  std::uint64_t page_size_ = kPageSize;
  const std::uint64_t checkpoint_pages_;
  std::uint64_t checkpointed_at_ = 0;  // pages of -wal at the last checkpoint
  std::uint64_t wal_pages_ = 0;
};

}  // namespace scriptorium::journal

namespace scriptorium {

class Journal::Impl {
 public:
  Impl(Options options, Logger& log, const Clock& clock, journal::OpenedDatabase opened);
  ~Impl();

  Result<void> start();
  void put(journal::Entry entry);
  Result<std::uint64_t> call(std::function<Result<std::uint64_t>(journal::Writer&)> run);
  // Again and again for some seconds; for what fails only if it cannot be written.
  Result<std::uint64_t> insist(const std::function<Result<std::uint64_t>(journal::Writer&)>& run);
  SteadyTime real_deadline(SteadyTime deadline) const;
  void run(const std::stop_token& stop) noexcept;
  std::vector<journal::Entry> take(const std::stop_token& stop);
  void commit(std::vector<journal::Entry> batch, bool prune, const std::stop_token& stop);
  bool must_prune(const journal::Queue& queue) const;
  std::uint64_t queue_limit() const;
  std::uint64_t has_room_below() const;
  bool enqueue(journal::Queue& queue, Append& item, std::uint64_t cost) const;  // false: no room
  // `decide` is called with what the journal holds, under the locks of `shared` and `shares`, in
  // this order.
  template <typename Decide>
  auto with_held(Decide decide) {
    const std::uint64_t queued =
        queue.with([](const journal::Queue& q) { return q.bytes + q.writing; });
    return shared.with([&](const journal::Shared& s) {
      const journal::Shares::Held held{s.used_bytes, s.unresolved_bytes + queued, s.largest_charge,
                                       s.charges};
      return shares.with([&](journal::Shares& all) { return decide(all, held); });
    });
  }
  Admission admit(const Append& item);
  void count_questions(const std::string& source);
  enum Refused : unsigned { kForWant = 1, kForSize = 2, kForShare = 4 };
  void note_refused(const std::string& source, unsigned why);
  void call_for_room(unsigned what);  // those that were refused for one of these
  void update_full();
  bool backlogged();
  // Whoever waits for a result gets none, as if the process had ended here.
  void abandon(const std::string& why);
  void note_damage(const std::string& why);

  Result<std::shared_ptr<const Event>> load(journal::Readers::Lease& reader, std::uint64_t seq);
  // From the archive, which is asked without a snapshot of the database held. What it has no longer
  // is kPermanent.
  Result<std::shared_ptr<const Event>> fetch(const Event& locator) const;
  // What was loaded for a sink; what is damaged, or gone from the archive, becomes a null event and
  // a dead letter.
  Result<Item> checked(SinkId sink, std::uint64_t seq, std::uint32_t attempts,
                       Result<std::shared_ptr<const Event>> event);
  // Loads it too; nothing if it is not there any more.
  Result<std::optional<Item>> item(journal::Readers::Lease& reader, SinkId sink, std::uint64_t seq,
                                   std::uint32_t attempts);

  Options options;
  Logger& log;
  const Clock& clock;
  OpenReport report;
  Guarded<journal::Shared> shared;
  Guarded<journal::Queue> queue;
  Guarded<journal::Shares> shares;
  struct RoomCall {
    std::function<void()> call;
    unsigned refused = 0;  // Refused, since the last call
  };
  Guarded<std::map<std::string, RoomCall>> room_calls;
  Guarded<std::unordered_set<std::uint64_t>>
      resolving;  // tickets whose resolution is queued and not durable
  journal::Readers readers;
  Guarded<std::shared_ptr<const Journal::Archive>> archive;
  std::atomic<bool> full{false};
  std::atomic<bool> damaged{false};
  SteadyTime last_commit;                   // of the writer thread
  std::unique_ptr<journal::Writer> writer;  // the writer thread's; null if read-only
  std::jthread thread;
};

}  // namespace scriptorium
