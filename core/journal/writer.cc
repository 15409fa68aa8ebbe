#include "core/journal/writer.h"

#include <algorithm>
#include <utility>

#include "core/base/fault_point.h"

namespace scriptorium::journal {
namespace {

constexpr std::uint64_t kCheckpointBytes = 32U << 20;  // of -wal
// A small journal's -wal is a sixteenth of the journal, but at least this many pages.
constexpr std::uint64_t kFewestCheckpointPages = 16;
constexpr std::uint64_t kFrameHeader = 24;  // of each page in -wal
// How long a commit may be delayed by readers. Only where -wal has grown far beyond its usual
// length.
constexpr std::chrono::milliseconds kReaderPatience{50};

std::uint64_t checkpoint_pages(std::uint64_t max_bytes) {
  return std::max(std::min(kCheckpointBytes, max_bytes / 16) / kPageSize, kFewestCheckpointPages);
}

}  // namespace

Writer::Writer(std::unique_ptr<Connection> connection, const Options& options,
               const std::optional<CaptureSecret>& secret, Guarded<Shared>& shared,
               const Clock& clock)
    : connection_(std::move(connection)),
      secret_(secret),
      shared_(shared),
      clock_(clock),
      read_only_(options.read_only),
      begin_(*connection_, "BEGIN IMMEDIATE"),
      commit_(*connection_, "COMMIT"),
      page_count_(*connection_, "PRAGMA page_count"),
      free_pages_(*connection_, "PRAGMA freelist_count"),
      contents_(*connection_, codec_),
      events_(*connection_, codec_, contents_),
      unresolved_(*connection_),
      sinks_(*connection_),
      exceptions_(*connection_),
      marks_(*connection_),
      unverified_(*connection_, codec_, options.max_bytes),
      pruner_(*connection_, events_, exceptions_, ledger_),
      checkpoint_pages_(checkpoint_pages(options.max_bytes)) {
  connection_->manual_checkpoints();
  page_size_ = connection_->number("PRAGMA page_size");
  shared_.with([&](Shared& s) {
    s.events = RecentEvents(options.cache_bytes - options.cache_bytes / 2);
    s.tickets = RecentEvents(options.cache_bytes / 2);
  });
}

Result<void> Writer::load() {
  for (SinkRow& sink : sinks_.load()) ledger_.add(std::move(sink));
  // A sequence is never given out twice, even if all events are gone.
  ledger_.start_after(events_.last_seq());
  ledger_.start_after(connection_->number("SELECT max(seq) FROM exceptions"));
  exceptions_.each(std::nullopt, [&](const ExceptionTable::Row& row) {
    if (ledger_.find(row.sink) != nullptr) ledger_.count_exception(row.sink, row.event, row.state);
  });
  events_.each_after(ledger_.passed_by_all(), [&](const EventSummary& event) {
    ledger_.count_pending(event);
    return true;
  });
  if (!ledger_.empty()) pruner_.want();
  if (!read_only_) changes_.replaced = unverified_.load_replaced();
  const auto charges = events_.charges();
  shared_.with([&](Shared& s) {
    s.events.start_after(ledger_.last_seq());
    s.tickets.start_after(unresolved_.counts().last_ticket);
    s.change_charges(charges);
  });
  if (auto error = connection_->take_error()) return *std::move(error);
  publish();
  return {};
}

void Writer::begin() {
  ledger_.begin();
  contents_.begin();
  events_.begin();
  unresolved_.begin();
  pruner_.begin();
  changes_ = {};
}

void Writer::rollback() {
  connection_->rollback();
  ledger_.rollback();
  contents_.rollback();
  events_.rollback();
  unresolved_.rollback();
  marks_.rollback();
  pruner_.rollback(std::chrono::steady_clock::now());
  changes_ = {};
}

Result<void> Writer::commit(std::vector<Entry>& batch, bool prune) {
  Connection& db = *connection_;
  Command* const command = batch.empty() ? nullptr : std::get_if<Command>(&batch.front().what);
  const auto give_up = [&](Error error) -> Result<void> {
    rollback();
    if (command == nullptr) return error;
    command->done(error);  // a command is tried once; its caller decides what to do
    return {};
  };
  begin();
  begin_.run();
  FAULT_POINT("journal.after_begin");
  std::optional<Count> answer;
  if (command != nullptr && db.ok()) {
    answer = command->run(*this);
    if (!*answer && db.ok()) return give_up(answer->error());
  }
  if (db.ok()) apply_all(batch, prune);
  if (auto error = db.take_error()) return give_up(*std::move(error));
  FAULT_POINT("journal.before_commit");
  if (const int code = FAULT_ERROR("journal.commit"); code != 0)
    return give_up(system_error("journal: commit", code));
  commit_.run();
  if (auto error = db.take_error()) return give_up(*std::move(error));
  marks_.commit();
  FAULT_POINT("journal.after_commit");
  publish();
  if (answer) command->done(*std::move(answer));
  return {};
}

void Writer::apply_all(std::vector<Entry>& batch, bool prune) {
  const Connection& db = *connection_;
  bool urgent = false, command = false;
  for (Entry& entry : batch) {
    if (!db.ok()) return;
    urgent = urgent || entry.urgent;
    command = command || entry.is_command();
    std::visit([this](auto& what) { apply(what); }, entry.what);
  }
  if (db.ok()) pass_idle_sinks();
  if (db.ok()) {
    for (const SinkRow* row : ledger_.to_store()) sinks_.store_progress(*row);
  }
  if (db.ok()) {
    const auto extent = command                       ? Pruner::Extent::kReconsidered
                        : prune || pruner_.has_more() ? Pruner::Extent::kAll
                                                      : Pruner::Extent::kIfMuch;
    pruner_.prune(extent, urgent, std::chrono::steady_clock::now());
  }
  if (db.ok()) contents_.write_changes();
}

void Writer::measure() {
  const std::int64_t pages = page_count_.first().value_or(0);
  const std::int64_t used = std::max<std::int64_t>(pages - free_pages_.first().value_or(0), 0);
  connection_->take_error();  // without these figures the next commit measures again
  used_bytes_ = static_cast<std::uint64_t>(used) * page_size_ + wal_bytes();
}

std::uint64_t Writer::wal_bytes() const noexcept {
  return wal_pages_ * (page_size_ + kFrameHeader);
}

void Writer::publish() {
  wal_pages_ = connection_->wal_pages();
  measure();
  const auto& charges = events_.charge_changes();
  uncharged_ = std::any_of(charges.begin(), charges.end(),
                           [](const auto& change) { return change.second < 0; });
  shared_.with_notify([&](Shared& s) { publish_to(s); });
}

void Writer::publish_to(Shared& s) {
  s.last_seq = ledger_.last_seq();
  s.event_count = events_.count() + unresolved_.counts().events;
  s.used_bytes = used_bytes_;
  s.wal_bytes = wal_bytes();
  s.unresolved_bytes = unresolved_.counts().bytes;
  s.sources = unresolved_.counts().by_source;
  s.change_charges(events_.charge_changes());
  if (changes_.replaced_is_complete) s.replaced.clear();
  for (auto& [id, seq] : changes_.replaced) s.replaced[std::move(id)] = seq;
  for (auto& [seq, event] : changes_.events) s.events.add(seq, std::move(event));
  for (auto& [ticket, event] : changes_.tickets) s.tickets.add(ticket, std::move(event));
  for (const std::uint64_t ticket : changes_.resolved_tickets) s.tickets.erase(ticket);
  s.replace_sinks(ledger_.rows());
}

void Writer::checkpoint(bool now) {
  const std::uint64_t pages = connection_->wal_pages();
  if (pages < checkpointed_at_) checkpointed_at_ = 0;  // -wal was restarted
  if (pages == 0 || (!now && pages < checkpointed_at_ + checkpoint_pages_)) return;
  FAULT_POINT("journal.checkpoint");
  checkpointed_at_ = pages;
  // A failure recurs at the next commit that needs the room, and is reported there. Readers hold
  // -wal only for moments, but if there is always one, SQLite never restarts -wal: then wait for
  // them a little.
  const bool patient = !now && pages >= 4 * checkpoint_pages_;
  const bool whole =
      connection_->checkpoint(patient ? kReaderPatience : std::chrono::milliseconds{0});
  wal_pages_ = whole ? 0 : pages;
  measure();
  shared_.with([&](Shared& s) {
    s.used_bytes = used_bytes_;
    s.wal_bytes = wal_bytes();
  });
}

}  // namespace scriptorium::journal
