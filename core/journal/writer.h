#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/guarded.h"
#include "core/journal/capture_key.h"
#include "core/journal/codec.h"
#include "core/journal/content_store.h"
#include "core/journal/entry.h"
#include "core/journal/event_table.h"
#include "core/journal/mark_table.h"
#include "core/journal/owner_tables.h"
#include "core/journal/pruner.h"
#include "core/journal/shared_state.h"
#include "core/journal/sink_ledger.h"
#include "core/journal/sink_tables.h"

namespace scriptorium::journal {

// Applies queue entries to the database, each batch in one transaction, and publishes the result.
// Its parts keep what a transaction changes in memory apart until the commit, and undo it
// otherwise. Threads: everything here belongs to the writer thread.
class Writer {
 public:
  // Reads counters and marks; load() returns the error of both. `secret` is borrowed, and empty if
  // the journal is opened for reading only.
  Writer(std::unique_ptr<Connection> connection, const Options& options,
         const std::optional<CaptureSecret>& secret, Guarded<Shared>& shared, const Clock& clock);
  Result<void> load();  // the sinks' accounts, then publishes everything; once, after construction

  // All of it or nothing. A failed command gets the error and is rolled back, which is a success
  // here. `prune`: also remove what no sink needs any more, however little it is.
  Result<void> commit(std::vector<Entry>& batch, bool prune);
  // Moves -wal into the database, if it is long enough or `now`.
  void checkpoint(bool now);

  bool prune_waiting() const noexcept { return pruner_.has_more(); }  // more to remove at once
  std::optional<SteadyTime> prune_deferred_since() const { return pruner_.deferred_since(); }
  // After a commit: the callbacks of its appends.
  struct Callback {
    std::function<void(bool)> durable;
    bool fresh = false;
  };
  std::vector<Callback> take_callbacks() { return std::move(changes_.callbacks); }
  std::uint64_t used_bytes() const noexcept { return used_bytes_; }  // pages in use, and -wal
  std::uint64_t wal_bytes() const noexcept;  // what -wal holds and cannot let go of yet
  bool damaged() const noexcept { return connection_->damaged(); }
  // The last commit lowered what some user is charged.
  bool uncharged() const noexcept { return uncharged_; }

  // Commands (writer_commands.cc). Each returns what its caller in class Journal returns.
  using Count = Result<std::uint64_t>;
  Count register_sink(const std::string& name, const std::vector<std::string>& kinds);
  Count remove_sink(const std::string& name);
  Count retire_other_sinks(const std::vector<std::string>& configured);
  Count set_fill(const Fill& fill);
  Count fill(const Fill& before, Fill progress,
             const std::vector<std::shared_ptr<const Event>>& locators,
             const std::vector<std::shared_ptr<const Event>>& whole);
  Count change_unverified(const std::vector<LaterOwner>& changes);
  Count hasten_unverified(const std::string& source, Timestamp now);
  Count replace_unverified(std::uint64_t number, const std::string& source,
                           const std::shared_ptr<const Event>& event);
  Count change_dead(const std::optional<std::string>& sink, const std::string& event_id,
                    bool retry);

 private:
  // What the open transaction adds for other threads to see.
  struct Changes {
    std::vector<std::pair<std::uint64_t, std::shared_ptr<const Event>>> events, tickets;
    std::vector<std::uint64_t> resolved_tickets;
    std::vector<std::pair<std::string, std::uint64_t>> replaced;
    bool replaced_is_complete = false;  // `replaced` lists all, so others are forgotten
    std::vector<Callback> callbacks;
  };

  void begin();
  void rollback();
  // Everything between BEGIN and COMMIT, unless a step fails: then the connection has the error.
  void apply_all(std::vector<Entry>& batch, bool prune);
  void publish();
  void publish_to(Shared& shared);
  void measure();

  // Entries (writer_apply.cc)
  void apply(Append& item);
  void apply(AppendMany& item);
  void apply(PutMark& item);
  void apply(ForgetMarks& item) { marks_.forget(item.source, item.entries); }
  void apply(ResolveMany& item);
  void apply(PublishDamaged& item);
  void apply(ReleaseMany& item);
  void apply(SettleMany& item);
  void apply(Command&) {}

  enum class Presence {
    kNone,
    kFilled,  // only for a sink that is being filled
    kForAll,  // sinks at large have it or are to get it, perhaps once it is resolved
  };
  Presence presence_of(const std::string& id);
  void put_mark(const std::string& source, CaptureMark& mark, bool duplicate);
  // Of an event whose presence is kFilled: removes it, because one of its id for all comes. Returns
  // the sinks that are to be given that one by name.
  std::vector<SinkId> withdraw_filled(const std::string& id, Presence before);
  void count_new(const EventSummary& event, const std::vector<SinkId>& owed);
  void insert_event(const std::string& source, const std::shared_ptr<const Event>& event,
                    const Content& content, Presence before);
  // Others wait for the event; the sink gets it as one that is to be tried again.
  void put_filled(SinkId sink, const EventSummary& event);
  // For no sink: a dead letter of each that would have got it.
  void insert_dead(const Append& item, const Content& content, Presence before);
  void insert_unresolved(const Append& item, const Content& content);
  void resolve(const StoredEvent& row, const Event& resolution);
  void publish_damaged(StoredEvent row);
  void change_exception(SinkId sink, const Settle& settle, SinkLedger::ExceptionChange change);
  void pass_idle_sinks();
  void recount(SinkId sink);
  // False: the sink has it, or will get it.
  bool fill_one(SinkId sink, const Event& event, bool in_archive);

  std::unique_ptr<Connection> connection_;
  const std::optional<CaptureSecret>& secret_;
  Guarded<Shared>& shared_;
  const Clock& clock_;
  const bool read_only_;
  Codec codec_;
  Statement begin_, commit_, page_count_, free_pages_;

  SinkLedger ledger_;
  ContentStore contents_;
  EventTable events_;
  UnresolvedTable unresolved_;
  SinkTable sinks_;
  ExceptionTable exceptions_;
  MarkTable marks_;
  UnverifiedTable unverified_;
  Pruner pruner_;
  Changes changes_;

  bool uncharged_ = false;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t page_size_ = 0;
  const std::uint64_t checkpoint_pages_;
  std::uint64_t checkpointed_at_ = 0;  // pages of -wal at the last checkpoint
  std::uint64_t wal_pages_ = 0;
};

}  // namespace scriptorium::journal
