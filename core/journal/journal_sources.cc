// Journal: what sources call.
#include <utility>

#include "core/journal/journal_impl.h"
#include "core/journal/schema.h"

namespace scriptorium {
namespace {

using journal::CommitQueue;
using journal::Entry;
using journal::RoomCalls;
using journal::Shared;
using journal::Shares;

constexpr std::uint64_t kEventOverhead = 1024;  // in bytes, of one event in the queue, about

std::uint64_t cost_of(const Event& event) { return event.memory_size() + kEventOverhead; }

}  // namespace

std::uint64_t Journal::Impl::try_add(Entry& entry) {
  return queue.with_notify([&](CommitQueue& q) { return q.try_add(entry) ? q.added() : 0; });
}

std::uint64_t Journal::Impl::add(Entry& entry, const std::stop_token& stop, bool patience) {
  std::uint64_t number = try_add(entry);
  if (number > 0) return number;
  queue.wait(stop, [&](CommitQueue& q) {
    if (number == 0 && q.try_add(entry)) number = q.added();
    return number > 0 || (!patience && q.is_blocked());
  });
  if (number > 0) queue.with_notify([](CommitQueue&) {});
  return number;
}

bool Journal::append(Append item, const std::stop_token& stop) {
  if (impl_->options.read_only || !item.event || stop.stop_requested()) return false;
  const std::uint64_t cost = cost_of(*item.event);
  Entry entry{.what = std::move(item), .bytes = cost};
  return impl_->add(entry, stop, true) > 0;
}

Journal::Admission Journal::offer(Append& item, const std::stop_token& stop) {
  if (impl_->options.read_only || !item.event) return Admission::kFull;
  const std::string source = item.source;
  const std::string event_id = item.event->id;
  if (const Admission admission = impl_->admit(item); admission != Admission::kTaken)
    return admission;
  const std::uint64_t cost = cost_of(*item.event);
  Entry entry{.what = std::move(item), .bytes = cost};
  if (impl_->try_add(entry) == 0) {
    // Noted before the next attempt, so that room which appears right after it is called for.
    impl_->room_calls.note_refused(source, RoomCalls::kNoRoom);
    if (impl_->add(entry, stop, false) == 0) {
      item = std::move(std::get<Append>(entry.what));
      return Admission::kFull;
    }
  }
  impl_->shares.with([&](Shares& all) { all.taken(source, event_id, impl_->clock.steady()); });
  impl_->count_questions(source);
  return Admission::kTaken;
}

bool Journal::append_beyond_limit(Append item) {
  if (impl_->options.read_only || !item.event) return false;
  const std::uint64_t cost = cost_of(*item.event);
  const std::uint64_t queued = impl_->queue.with([](const CommitQueue& q) { return q.bytes(); });
  if (used_bytes() + queued + cost > impl_->options.max_bytes + kMostBeyondLimit) return false;
  const SteadyTime now = impl_->clock.steady();
  impl_->shares.with([&](Shares& all) { all.taken(item.source, item.event->id, now); });
  impl_->queue.with_notify(
      [&](CommitQueue& q) { q.add(Entry{.what = std::move(item), .bytes = cost}, now); });
  return true;
}

Journal::Admission Journal::Impl::admit(const Append& item) {
  const auto decide = [&] {
    return with_held([&](Shares& all, const Shares::Held& held) {
      return all.decide(held, item.source, *item.event, item.mark, item.resolve_first,
                        clock.steady());
    });
  };
  Admission admission = decide();
  if (admission == Admission::kTaken) return admission;
  // Noted before the decision that counts, so that a change right after it is called for.
  room_calls.note_refused(item.source, RoomCalls::kTooLarge | RoomCalls::kOverShare);
  admission = decide();
  if (admission == Admission::kOverShare) {
    count_questions(item.source);
    note_share_refused();
  }
  return admission;
}

void Journal::Impl::count_questions(const std::string& source) {
  const std::size_t count =
      shares.with([&](const Shares& all) { return all.question_count(source); });
  if (shared.with([&](const Shared& s) { return s.question_count(source) == count; })) return;
  shared.with_notify([&](Shared& s) { s.questions[source] = count; });
}

bool Journal::refuses(const std::string& source, const CaptureMark& mark) const {
  const bool refused = impl_->with_held([&](Shares& all, const Shares::Held& held) {
    return all.refuses(held, source, mark, impl_->clock.steady());
  });
  // What waits is not offered until there is room, so the archive's share of that is asked for
  // here.
  if (refused) impl_->note_share_refused();
  return refused;
}

void Journal::Impl::note_share_refused() {
  if (!shared.with([](const Shared& s) { return s.share_refused; }))
    shared.with_notify([](Shared& s) { s.share_refused = true; });
}

void Journal::on_room(const std::string& source, std::function<void()> call) {
  impl_->room_calls.set(source, std::move(call));
}

Result<void> Journal::append_all(const std::string& source,
                                 std::vector<std::shared_ptr<const Event>> events,
                                 std::optional<std::string> position, const std::stop_token& stop) {
  if (impl_->options.read_only) return impl_->read_only_error();
  std::uint64_t cost = kEventOverhead;
  for (const auto& event : events) cost += cost_of(*event);
  Entry entry{.what = journal::AppendMany{source, std::move(events), std::move(position)},
              .bytes = cost};
  const std::uint64_t number = stop.stop_requested() ? 0 : impl_->add(entry, stop, true);
  if (number == 0)
    return Error{ErrorKind::kTransient,
                 "journal: stopped before the events of " + source + " were taken"};
  if (!impl_->queue.wait(stop, [&](const CommitQueue& q) { return q.done() >= number; })) {
    return Error{ErrorKind::kTransient,
                 "journal: stopped before the events of " + source + " were durable"};
  }
  return {};
}

std::optional<std::string> Journal::position(const std::string& source) const {
  auto reader = impl_->readers.lease();
  if (!reader) return std::nullopt;
  return (*reader)->connection->text("SELECT position FROM positions WHERE source=?1", source);
}

std::vector<CaptureMark> Journal::marks(const std::string& source) const {
  std::vector<CaptureMark> result;
  auto reader = impl_->readers.lease();
  if (!reader) return result;
  journal::Statement statement(*(*reader)->connection,
                               journal::kSelectMarks + std::string("source=?1 ORDER BY entry"));
  statement.bind(source);
  while (statement.step()) result.push_back(journal::mark_of_row(statement));
  return result;
}

void Journal::set_mark(const std::string& source, CaptureMark mark) {
  impl_->put({.what = journal::PutMark{source, std::move(mark)}, .urgent = false});
}

void Journal::forget_marks(const std::string& source, std::vector<std::string> entries) {
  if (!entries.empty())
    impl_->put({.what = journal::ForgetMarks{source, std::move(entries)}, .urgent = false});
}

std::vector<Journal::Unresolved> Journal::owner_questions(const std::string& source,
                                                          std::size_t limit) const {
  return impl_->shares.with(
      [&](const Shares& all) { return all.questions(source, limit, impl_->clock.steady()); });
}

void Journal::answer_owner(const std::string& source, const std::string& event_id,
                           const User& user) {
  impl_->shares.with([&](Shares& all) { all.answer(source, event_id, user); });
  impl_->count_questions(source);
  impl_->room_calls.call(RoomCalls::kOverShare);
}

bool Journal::wait_unresolved(const std::string& source, std::uint64_t after,
                              const std::stop_token& stop, SteadyTime deadline) const {
  return impl_->shared.wait_until(stop, impl_->real_deadline(deadline), [&](const Shared& s) {
    const journal::UnresolvedCount count = s.unresolved(source);
    return s.question_count(source) > 0 || (count.events > 0 && count.last_ticket > after);
  });
}

void Journal::resolved(std::vector<Resolved> events) {
  if (events.empty()) return;
  std::uint64_t cost = 0;
  impl_->resolving.with([&](auto& tickets) {
    for (const Resolved& item : events) {
      cost += item.event ? cost_of(*item.event) : 0;
      tickets.insert(item.ticket);
    }
  });
  impl_->put({.what = journal::ResolveMany{std::move(events)}, .bytes = cost});
}

std::uint64_t Journal::unresolved_count(const std::string& source) const {
  return impl_->shared.with([&](const Shared& s) { return s.unresolved(source).events; });
}

}  // namespace scriptorium
