// How the writer applies each kind of queue entry.
#include <algorithm>
#include <utility>

#include "core/base/fault_point.h"
#include "core/journal/event_row.h"
#include "core/journal/writer.h"

namespace scriptorium::journal {

Writer::Presence Writer::presence_of(const std::string& id) {
  const auto found = events_.find(id);
  if (found && (found->target == 0 || found->target == kNoSink)) return Presence::kForAll;
  if (unresolved_.contains(id)) return Presence::kForAll;
  return found ? Presence::kFilled : Presence::kNone;
}

// A duplicate's mark keeps the id of the event that was made of the entry: other rules for secrets
// would make another one now.
void Writer::put_mark(const std::string& source, CaptureMark& mark, bool duplicate) {
  if (mark.capture_key.empty()) mark.capture_key = secret_->key_of(mark.event_id);
  if (duplicate) {
    if (auto made = marks_.event_id(source, mark.entry, mark.capture_key))
      mark.event_id = *std::move(made);
  }
  marks_.put(source, mark);
}

std::vector<SinkId> Writer::withdraw_filled(const std::string& id, Presence before) {
  if (before != Presence::kFilled) return {};
  const auto found = events_.find(id);
  if (!found) return {};
  std::vector<SinkId> owed = ledger_.withdrawn(*found, exceptions_.of_event(found->seq));
  exceptions_.erase_event(found->seq);
  events_.remove(found->seq);
  return owed;
}

void Writer::count_new(const EventSummary& event, const std::vector<SinkId>& owed) {
  ledger_.count_pending(event);
  for (const SinkId sink : owed) put_filled(sink, event);
}

void Writer::insert_event(const std::string& source, const std::shared_ptr<const Event>& event,
                          const Content& content, Presence before) {
  const std::vector<SinkId> owed = withdraw_filled(event->id, before);
  const std::uint64_t seq = ledger_.next_seq();
  events_.insert(seq, source, *event, content);
  count_new({.seq = seq, .bytes = event->bytes_size(), .kind = event->kind}, owed);
  const bool whole = std::all_of(event->files.begin(), event->files.end(),
                                 [](const EventFile& f) { return f.bytes != nullptr; });
  changes_.events.emplace_back(seq, whole ? event : nullptr);
}

void Writer::put_filled(SinkId sink, const EventSummary& event) {
  exceptions_.put(sink, {.sequence = event.seq, .outcome = Outcome::kRetry, .reason = "fill"},
                  State::kParked);
  ledger_.park(sink, event);
}

void Writer::insert_dead(const Append& item, const Content& content, Presence before) {
  const std::vector<SinkId> owed = withdraw_filled(item.event->id, before);
  const std::uint64_t seq = ledger_.next_seq();
  const Event& event = *item.event;
  events_.insert(seq, item.source, event, content, kNoSink);
  changes_.events.emplace_back(seq, nullptr);
  const EventSummary summary{
      .seq = seq, .bytes = event.bytes_size(), .kind = event.kind, .target = kNoSink};
  const Timestamp now = clock_.now();
  for (const auto& [id, row] : ledger_.rows()) {
    if (!row->wants(event.kind, seq, 0) && std::ranges::find(owed, id) == owed.end()) continue;
    const Settle dead{.sequence = seq,
                      .outcome = Outcome::kRejected,
                      .reason = *item.dead,
                      .first_attempt = now,
                      .last_attempt = now};
    change_exception(id, dead,
                     ledger_.settle(id, summary, dead.outcome, std::nullopt, now).exception);
  }
  FAULT_POINT("journal.dead_inserted");
}

void Writer::insert_unresolved(const Append& item, const Content& content) {
  const std::uint64_t ticket = unresolved_.counts().last_ticket + 1;
  StoredEvent row = row_of(ticket, item.source, *item.event);
  row.content = content;
  row.meta = codec_.compress(encode_meta(*item.event));
  unresolved_.insert(row, item.mark ? std::optional(item.mark->entry) : std::nullopt);
  changes_.tickets.emplace_back(ticket, item.event);
}

void Writer::apply(Append& item) {
  if (item.capture_key.empty()) item.capture_key = secret_->key_of(item.event->id);
  Presence before = Presence::kForAll;
  if (!marks_.has(item.source, item.capture_key)) before = presence_of(item.event->id);
  const bool fresh = before != Presence::kForAll;
  if (fresh) {
    const Content content = contents_.store(*item.event);
    if (item.dead) {
      insert_dead(item, content, before);
    } else if (item.resolve_first) {
      insert_unresolved(item, content);
    } else {
      insert_event(item.source, item.event, content, before);
    }
  }
  if (item.mark) {
    if (item.mark->event_id.empty()) item.mark->event_id = item.event->id;
    item.mark->capture_key = item.capture_key;
    put_mark(item.source, *item.mark, !fresh);
  }
  if (item.durable) changes_.callbacks.push_back({item.durable, fresh});
}

void Writer::apply(PutMark& item) { put_mark(item.source, item.mark, false); }

void Writer::apply(AppendMany& item) {
  for (const auto& event : item.events) {
    const Presence before = presence_of(event->id);
    if (before != Presence::kForAll)
      insert_event(item.source, event, contents_.store(*event), before);
  }
  if (item.position) marks_.put_position(item.source, *item.position);
}

void Writer::apply(ResolveMany& item) {
  FAULT_POINT("journal.before_resolved");
  for (const Resolved& resolved : item.events) {
    if (!resolved.event) continue;
    // A missing row was resolved before.
    if (const auto row = unresolved_.find(resolved.ticket)) resolve(*row, *resolved.event);
  }
}

void Writer::resolve(const StoredEvent& row, const Event& resolution) {
  std::shared_ptr<const Event> event =
      shared_.with([&](Shared& s) { return s.tickets.find(row.number); });
  if (event != nullptr) {
    event = std::make_shared<const Event>(with_resolution(*event, resolution));
  } else if (auto json = codec_.decompress(row.meta)) {
    if (auto captured = event_from_json(*json))
      event = std::make_shared<const Event>(with_resolution(*captured, resolution));
  }
  if (event == nullptr) {
    publish_damaged(row);
    return;
  }
  unresolved_.remove(row);
  changes_.resolved_tickets.push_back(row.number);
  // The content moves with the event as it is. If the id exists already, that is another event's by
  // mistake; two events with one id are one.
  const Presence before = presence_of(event->id);
  if (before == Presence::kForAll) {
    contents_.release(row.content);
  } else {
    insert_event(row.source, event, row.content, before);
    if (!event->user.verified) unverified_.note(row.source, *event, clock_.now());
  }
}

void Writer::apply(PublishDamaged& item) {
  if (auto row = unresolved_.find(item.ticket)) publish_damaged(*std::move(row));
}

void Writer::publish_damaged(StoredEvent row) {
  unresolved_.remove(row);
  changes_.resolved_tickets.push_back(row.number);
  const std::vector<SinkId> owed = withdraw_filled(row.id, presence_of(row.id));
  row.number = ledger_.next_seq();
  events_.insert(row);
  count_new({.seq = row.number, .bytes = row.bytes, .kind = row.kind}, owed);
  changes_.events.emplace_back(row.number, nullptr);
}

// A sink that is still to get a released event keeps its place in the order.
void Writer::apply(ReleaseMany& item) {
  FAULT_POINT("journal.before_release");
  for (const ReleaseMany::Item& released : item.items) {
    if (!events_.release(released.sequence, released.locator)) continue;
    if (const auto event = events_.find(released.sequence))
      ledger_.moved_to_archive(*event, exceptions_.parked_by(released.sequence));
  }
  FAULT_POINT("journal.after_release");
}

void Writer::apply(SettleMany& item) {
  const SinkRow* const row = ledger_.find(item.sink);
  if (row == nullptr) return;  // removed meanwhile
  FAULT_POINT("journal.before_settle");
  const std::uint64_t old_cursor = row->cursor;
  const std::vector<EventSummary> events = events_.find_settled(item.settlements);
  const Timestamp now = clock_.now();
  for (const Settle& settle : item.settlements) {
    const auto event =
        std::lower_bound(events.begin(), events.end(), settle.sequence,
                         [](const EventSummary& e, std::uint64_t seq) { return e.seq < seq; });
    if (event == events.end() || event->seq != settle.sequence)
      continue;  // settled and removed before
    const auto stored =
        settle.sequence > old_cursor ? std::nullopt : exceptions_.state(item.sink, settle.sequence);
    const auto settled = ledger_.settle(item.sink, *event, settle.outcome, stored, now);
    change_exception(item.sink, settle, settled.exception);
    if (settled.acknowledged) pruner_.settled(event->bytes);
  }
  const SinkLedger::Passed passed = ledger_.pass(item.sink, item.cursor);
  if (passed.erase_after) exceptions_.erase_settled(item.sink, *passed.erase_after, passed.upto);
  for (const std::uint64_t seq : passed.to_store) exceptions_.put_settled(item.sink, seq);
  FAULT_POINT("journal.after_settle");
}

void Writer::change_exception(SinkId sink, const Settle& settle,
                              SinkLedger::ExceptionChange change) {
  switch (change) {
    case SinkLedger::ExceptionChange::kNone: return;
    case SinkLedger::ExceptionChange::kPark: return exceptions_.put(sink, settle, State::kParked);
    case SinkLedger::ExceptionChange::kBury: return exceptions_.put(sink, settle, State::kDead);
    case SinkLedger::ExceptionChange::kErase:
      exceptions_.erase(sink, settle.sequence);
      pruner_.reconsider(settle.sequence);
  }
}

// This reads the events that a sink is to pass instead of trusting its counters: no mistake in a
// counter may make an event vanish.
void Writer::pass_idle_sinks() {
  for (const SinkId id : ledger_.idle()) {
    const SinkRow& row = *ledger_.find(id);
    bool wanted = false;
    events_.each_after(row.cursor, [&](const EventSummary& event) {
      wanted = row.is_pending(event);
      return !wanted;
    });
    if (wanted) {
      recount(id);
    } else if (connection_->ok()) {
      ledger_.pass_idle(id);
    }
  }
}

void Writer::recount(SinkId sink) {
  ledger_.restart_count(sink, exceptions_.parked_in_archive(sink));
  events_.each_after(ledger_.find(sink)->cursor, [&](const EventSummary& event) {
    ledger_.recount(sink, event);
    return true;
  });
}

}  // namespace scriptorium::journal
