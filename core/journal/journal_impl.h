#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "core/base/guarded.h"
#include "core/journal/commit_queue.h"
#include "core/journal/event_reader.h"
#include "core/journal/journal.h"
#include "core/journal/journal_reader.h"
#include "core/journal/open_database.h"
#include "core/journal/room_calls.h"
#include "core/journal/shared_state.h"
#include "core/journal/shares.h"
#include "core/journal/writer.h"

namespace scriptorium {

// The journal's parts, and the writer thread, which carries entries from the queue to the writer.
// Lock order: queue, then shared, then shares; nothing else is held together.
class Journal::Impl {
 public:
  using RunCommand = std::function<Result<std::uint64_t>(journal::Writer&)>;

  Impl(Options options, Logger& log, const Clock& clock, journal::OpenedDatabase opened);
  ~Impl();
  Result<void> start();

  // Queues an entry that is always accepted.
  void put(journal::Entry entry);
  // Under back-pressure. The number of the entry, or 0 if there is no room for it; it is then
  // untouched.
  std::uint64_t try_add(journal::Entry& entry);
  // Waits for room; without `patience` only while the writer thread catches up.
  std::uint64_t add(journal::Entry& entry, const std::stop_token& stop, bool patience);
  // Runs a command on the writer thread and waits for its result.
  Result<std::uint64_t> call(RunCommand run);
  // The same for one that only succeeds or fails.
  Result<void> change(RunCommand run);
  // The same, several times over some seconds: a disk that is full for a moment must not end a
  // start.
  Result<std::uint64_t> call_until_done(const RunCommand& run);
  // A deadline of our clock, which a test may stop, as one that a condition variable understands.
  SteadyTime real_deadline(SteadyTime deadline) const;

  // Shares (journal_sources.cc)
  Admission admit(const Append& item);
  void count_questions(const std::string& source);
  // `decide` gets the shares and what the journal holds, under the locks of both.
  template <typename Decide>
  auto with_held(Decide decide) {
    const std::uint64_t queued =
        queue.with([](const journal::CommitQueue& q) { return q.bytes(); });
    return shared.with([&](const journal::Shared& s) {
      const journal::Shares::Held held{s.used_bytes, s.unresolved_bytes + queued, s.largest_charge,
                                       s.charges};
      return shares.with([&](journal::Shares& all) { return decide(all, held); });
    });
  }

  void note_damage(const std::string& why);
  void note_share_refused();  // for Journal::wait_for_release()
  Error read_only_error() const;

  Options options;
  Logger& log;
  const Clock& clock;
  OpenReport report;
  const std::optional<CaptureSecret> secret;  // empty if read-only
  Guarded<journal::Shared> shared;
  Guarded<journal::CommitQueue> queue;
  Guarded<journal::Shares> shares;
  journal::RoomCalls room_calls;
  Guarded<std::unordered_set<std::uint64_t>> resolving;  // tickets whose resolution is queued
  journal::ReaderPool readers;
  journal::JournalReader reader;
  std::atomic<bool> damaged{false};

 private:
  void run(const std::stop_token& stop) noexcept;
  std::vector<journal::Entry> take(const std::stop_token& stop);
  // Tries until it succeeds: what the journal was given is kept while the process lives.
  void commit(std::vector<journal::Entry> batch, bool prune, const std::stop_token& stop);
  // One attempt. False: it failed, and may be repeated.
  bool try_commit(std::vector<journal::Entry>& batch, bool prune);
  void committed(const std::vector<journal::Entry>& batch);
  void report_write_error(const Error& error);
  void update_full();
  void call_for_room();
  // Callers that wait for a result get none, as if the process had ended here.
  void abandon(std::vector<journal::Entry> batch, const Error& why);
  void bury_unreadable(SinkId sink, const Item& item, const std::string& reason,
                       bool only_in_archive);
  void settle_replaced(SinkId sink, const Item& item);

  SteadyTime last_commit_;                   // of the writer thread
  std::unique_ptr<journal::Writer> writer_;  // the writer thread's; null if read-only
  std::jthread thread_;
};

}  // namespace scriptorium
