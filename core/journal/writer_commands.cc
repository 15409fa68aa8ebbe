// The writer's commands: what a caller asks for and waits for, each in a transaction of its own.
#include <algorithm>
#include <utility>

#include "core/base/fault_point.h"
#include "core/base/text.h"
#include "core/journal/writer.h"

namespace scriptorium::journal {
namespace {

// Above this many replaced events in memory, those that every sink has got by now are removed.
constexpr std::size_t kManyReplaced = 10'000;
constexpr std::size_t kFewestDigits = 8;

// The dead letters whose event id is, or begins with, `event_id`; "" = all of them.
Result<std::vector<ExceptionTable::Row>> select(std::vector<ExceptionTable::Row> letters,
                                                const std::string& event_id) {
  std::erase_if(letters, [&](const auto& l) { return !l.event_id.starts_with(event_id); });
  if (event_id.empty()) return letters;
  if (std::ranges::any_of(letters, [&](const auto& l) { return l.event_id == event_id; })) {
    std::erase_if(letters, [&](const auto& l) { return l.event_id != event_id; });
    return letters;
  }
  const std::string subject = "event id " + printable(event_id);
  if (event_id.size() < kFewestDigits)
    return Error{ErrorKind::kPermanent, subject + ": give at least 8 digits"};
  if (std::ranges::any_of(letters,
                          [&](const auto& l) { return l.event_id != letters.front().event_id; }))
    return Error{ErrorKind::kPermanent, subject + ": several events begin so; give more digits"};
  return letters;
}

Error never_delivered(const std::string& event_id) {
  return {ErrorKind::kPermanent,
          (event_id.empty() ? "every dead letter" : "event id " + printable(event_id)) +
              ": could not be freed of secrets, so no sink may get it, and its script was not "
              "kept; `deadletters show` has the reason, and `deadletters discard` removes it"};
}

}  // namespace

Writer::Count Writer::register_sink(const std::string& name,
                                    const std::vector<std::string>& kinds) {
  const SinkId id_if_new = ledger_.find_named(name) == nullptr ? sinks_.next_id() : 0;
  const auto registered = ledger_.register_sink(name, kinds, id_if_new);
  const SinkRow& row = *ledger_.find(registered.id);
  if (registered.is_new) {
    sinks_.insert(row);
    pruner_.restart_after(0);  // what only an exception held has a second holder now
  } else if (registered.returned) {
    // What it kept while absent is held by its cursor again, and removed when that passes.
    pruner_.restart_after(row.cursor);
  }
  if (registered.kinds_changed || registered.returned) {
    if (!registered.is_new) sinks_.store_settings(row);
    recount(registered.id);
  }
  return std::uint64_t{registered.id};
}

Writer::Count Writer::remove_sink(const std::string& name) {
  const SinkRow* const found = ledger_.find_named(name);
  if (found == nullptr)
    return Error{ErrorKind::kPermanent, "the journal knows no sink " + printable(name)};
  if (found->registered)
    return Error{
        ErrorKind::kPermanent,
        "sink " + printable(name) + " is configured; remove it from the configuration first"};
  const SinkId id = found->id;
  pruner_.restart_after(found->cursor);
  for (const std::uint64_t seq : exceptions_.events_of(id)) pruner_.reconsider(seq);
  exceptions_.erase_sink(id);
  sinks_.remove(*found);
  ledger_.remove(id);
  if (ledger_.empty()) pruner_.reconsider_none();
  return std::uint64_t{1};
}

Writer::Count Writer::retire_other_sinks(const std::vector<std::string>& configured) {
  const std::vector<SinkId> retired = ledger_.retire_others(configured);
  for (const SinkId id : retired) sinks_.store_settings(*ledger_.find(id));
  return std::uint64_t{retired.size()};
}

Writer::Count Writer::set_fill(const Fill& fill) {
  sinks_.set_fill(fill);
  return std::uint64_t{1};
}

Writer::Count Writer::fill(const Fill& before, Fill progress,
                           const std::vector<std::shared_ptr<const Event>>& locators,
                           const std::vector<std::shared_ptr<const Event>>& whole) {
  const SinkRow* const sink = ledger_.find_named(progress.sink);
  if (sink == nullptr || !sink->registered)
    return Error{ErrorKind::kPermanent, "sink " + printable(progress.sink) + " is not configured"};
  if (!sinks_.is_fill_at(before))
    return Error{ErrorKind::kPermanent, "this fill was stopped or replaced"};
  const SinkId id = sink->id;
  const auto send_all = [&](const auto& events, bool in_archive) {
    for (const auto& event : events)
      ++(fill_one(id, *event, in_archive) ? progress.sent : progress.present);
  };
  send_all(locators, true);
  send_all(whole, false);
  return set_fill(progress);
}

bool Writer::fill_one(SinkId sink, const Event& event, bool in_archive) {
  if (unresolved_.contains(event.id)) return false;
  if (const auto found = events_.find(event.id)) {
    if (found->target == kNoSink) return false;
    if (ledger_.find(sink)->wants(event.kind, found->seq, found->target) ||
        exceptions_.state(sink, found->seq))
      return false;
    // Others wait for it; this sink gets it as one that is to be tried again.
    put_filled(sink, *found);
    return true;
  }
  const std::uint64_t seq = ledger_.next_seq();
  if (in_archive) {
    events_.insert_locator(seq, event, sink);
  } else {
    events_.insert(seq, "", event, contents_.store(event), sink);
  }
  ledger_.count_pending({.seq = seq,
                         .bytes = event.bytes_size(),
                         .kind = event.kind,
                         .target = sink,
                         .in_archive = in_archive});
  changes_.events.emplace_back(seq, nullptr);
  return true;
}

Writer::Count Writer::change_unverified(const std::vector<LaterOwner>& changes) {
  unverified_.change(changes);
  return std::uint64_t{changes.size()};
}

Writer::Count Writer::hasten_unverified(const std::string& source, Timestamp now) {
  return unverified_.hasten(source, now);
}

Writer::Count Writer::replace_unverified(std::uint64_t number, const std::string& source,
                                         const std::shared_ptr<const Event>& event) {
  FAULT_POINT("journal.before_replace");
  const Presence before = presence_of(event->id);
  if (before != Presence::kForAll) {
    insert_event(source, event, contents_.store(*event), before);
    // A sink that is still to get the old event gets this one as well, and needs only this.
    if (unverified_.replace(*event->replaces, ledger_.last_seq()))
      changes_.replaced.emplace_back(*event->replaces, ledger_.last_seq());
  }
  unverified_.forget(number);
  if (shared_.with([](const Shared& s) { return s.replaced.size() > kManyReplaced; })) {
    changes_.replaced = unverified_.load_replaced();
    changes_.replaced_is_complete = true;
  }
  return std::uint64_t{1};
}

Writer::Count Writer::change_dead(const std::optional<std::string>& sink,
                                  const std::string& event_id, bool retry) {
  std::vector<ExceptionTable::Row> all;
  exceptions_.each(State::kDead, [&](const ExceptionTable::Row& letter) {
    const SinkRow* const row = ledger_.find(letter.sink);
    if (row != nullptr && !letter.event_id.empty() && (!sink || row->name == *sink))
      all.push_back(letter);
  });
  auto letters = select(std::move(all), event_id);
  if (!letters) return letters.error();
  if (retry) {
    const bool any = !letters->empty();
    std::erase_if(*letters, [](const auto& l) { return l.event.target == kNoSink; });
    if (any && letters->empty()) return never_delivered(event_id);
  }
  for (const ExceptionTable::Row& letter : *letters) {
    const std::uint64_t seq = letter.event.seq;
    if (retry) {
      exceptions_.park(letter.sink, seq);
      ledger_.retry_dead(letter.sink, letter.event);
    } else if (ledger_.discard_dead(letter.sink, seq)) {
      exceptions_.put_settled(letter.sink, seq);
    } else {
      exceptions_.erase(letter.sink, seq);
      pruner_.reconsider(seq);
    }
  }
  return std::uint64_t{letters->size()};
}

}  // namespace scriptorium::journal
