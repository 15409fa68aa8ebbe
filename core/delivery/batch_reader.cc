#include "core/delivery/batch_reader.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/delivery/parts.h"

namespace scriptorium::delivery {
namespace {

constexpr std::size_t kEventsInPage = 512;  // of parked events, at once
constexpr std::chrono::seconds kJournalPause{1};

}  // namespace

Batch BatchReader::next(const std::stop_token& stop, bool after_parked) {
  while (!stop.stop_requested()) {
    Turn turn = take_turn(after_parked);
    if (!turn.due.empty()) return {.events = std::move(turn.due)};
    if (!turn.reads) {
      wait_for_reader(turn, stop);
      continue;
    }
    if (turn.refills) refill();
    Batch batch = read_fresh(turn, stop);
    if (batch.empty()) {
      wait_for_events(turn, stop);
      after_parked = false;
    }
    context_.state.with_notify([](DispatchState& s) { s.reading = false; });
    if (!batch.empty()) return batch;
  }
  return {};
}

BatchReader::Turn BatchReader::take_turn(bool after_parked) {
  Turn turn;
  turn.generation = context_.journal.parked_generation(context_.id);
  const BatchLimits limits = context_.batch_limits();
  context_.state.with([&](DispatchState& s) {
    const SteadyTime now = context_.clock.steady();
    s.parked.note_generation(turn.generation, now);
    turn.interrupted = s.interrupt.get_token();
    turn.interrupts = s.interrupts;
    if (s.parked.is_due(now) && (!after_parked || s.reading)) {
      turn.due = s.parked.take_due(now, limits);
      return;
    }
    turn.reads = !std::exchange(s.reading, true);
    turn.refills = turn.reads && s.parked.wants_refill(now);
    turn.wake_at = s.parked.next_wake(now);
  });
  return turn;
}

void BatchReader::wait_for_reader(const Turn& turn, const std::stop_token& stop) {
  context_.state.wait_until(stop, turn.wake_at, [&](const DispatchState& s) {
    return s.interrupts != turn.interrupts || !s.reading;
  });
}

void BatchReader::wait_for_events(const Turn& turn, const std::stop_token& stop) {
  const SteadyTime now = context_.clock.steady();
  const auto [wake_at, position] = context_.state.with(
      [&](const DispatchState& s) { return std::pair(s.parked.next_wake(now), s.position); });
  // A stop is requested before the interrupt, so it is either seen here or ends the wait.
  if (wake_at > now && !stop.stop_requested())
    context_.journal.wait(context_.id, position, turn.generation, turn.interrupted, wake_at);
}

// By the worker that reads. Waits batch_max_ms for the batch to fill.
Batch BatchReader::read_fresh(const Turn& turn, const std::stop_token& stop) {
  Batch batch;
  BatchLimits limits = context_.batch_limits();
  std::uint64_t after = context_.state.with([](const DispatchState& s) { return s.position; });
  bool done = append_fresh(batch, limits, after);
  if (batch.empty()) return batch;
  const Clock& clock = context_.clock;
  const SteadyTime until = clock.steady() + std::chrono::milliseconds(std::max<std::int64_t>(
                                                context_.config.batch_max_ms, 0));
  while (!done && !stop.stop_requested() && !turn.interrupted.stop_requested() &&
         clock.steady() < until) {
    if (!context_.journal.wait(context_.id, after, turn.generation, turn.interrupted, until)) break;
    const std::size_t before = batch.events.size();
    done = append_fresh(batch, limits, after);
    if (batch.events.size() == before) break;  // it woke for another reason
  }
  give_out(batch, 0, after);
  return batch;
}

void BatchReader::top_up(Batch& batch) {
  const bool may_read = context_.state.with(
      [](DispatchState& s) { return s.order.may_extend() && !std::exchange(s.reading, true); });
  if (!may_read) return;
  BatchLimits limits = context_.batch_limits();
  for (const PendingEvent& event : batch.events) limits.add(event.bytes());
  const std::size_t before = batch.events.size();
  std::uint64_t after = context_.state.with([](const DispatchState& s) { return s.position; });
  if (!batch.is_full) append_fresh(batch, limits, after);
  give_out(batch, before, after);
  context_.state.with_notify([](DispatchState& s) { s.reading = false; });
}

// Appends what comes after `after` and fits, and moves `after` on. True: reading on is of no use.
bool BatchReader::append_fresh(Batch& batch, BatchLimits& limits, std::uint64_t& after) {
  auto items = context_.journal.read(context_.id, after, limits.events_left(),
                                     std::max<std::uint64_t>(limits.bytes_left(), 1));
  if (!items) {
    report_failure(items.error());
    return true;
  }
  for (Journal::Item& item : *items) {
    PendingEvent event = pending_of(std::move(item), false);
    if ((event.is_suspect && !batch.empty()) || !limits.add(event.bytes()))
      return batch.is_full = true;
    after = event.sequence;
    batch.events.push_back(std::move(event));
    if (batch.is_suspect()) return batch.is_full = true;
  }
  return batch.is_full = limits.full();
}

// A new batch takes its place in the order before the journal can be read on.
void BatchReader::give_out(Batch& batch, std::size_t from, std::uint64_t position) {
  context_.state.with([&](DispatchState& s) {
    if (from == 0) batch.place = s.order.line_up(batch.events.front().sequence);
    for (std::size_t i = from; i < batch.events.size(); ++i)
      s.track.give_out(batch.events[i].sequence);
    s.position = position;
  });
}

// By the worker that reads: fetches parked events from the journal, as many as there is room for.
void BatchReader::refill() {
  context_.state.with([](DispatchState& s) { s.parked.begin_refill(); });
  // The journal would give out once more what is settled but not committed.
  const SteadyTime begun = context_.clock.steady();
  if (!context_.journal.flush(begun + kJournalPause)) {
    context_.state.with([&](DispatchState& s) {
      s.parked.postpone_refill(context_.clock.steady() + kJournalPause);
    });
    return;
  }
  context_.state.with([](DispatchState& s) { s.parked.forget_flushed(); });
  std::uint64_t after = 0;
  bool done = false;
  while (!done) {
    auto page = next_parked_page(after);
    if (!page) return;
    done = context_.state.with([&](DispatchState& s) {
      return s.parked.add_page(*std::move(page), context_.clock.steady());
    });
  }
}

// Moves `after` on. Nothing: the journal cannot be read, and the refill is postponed.
std::optional<std::vector<PendingEvent>> BatchReader::next_parked_page(std::uint64_t& after) {
  auto items = context_.journal.parked(
      context_.id, kEventsInPage, after, ParkedStore::kMostBytes / 2,
      [this](std::uint64_t sequence) {
        return context_.state.with([&](DispatchState& s) { return s.parked.knows(sequence); });
      });
  if (!items) {
    context_.state.with([&](DispatchState& s) {
      s.parked.postpone_refill(context_.clock.steady() + kJournalPause);
    });
    report_failure(items.error());
    return std::nullopt;
  }
  std::vector<PendingEvent> page;
  page.reserve(items->size());
  for (Journal::Item& item : *items) page.push_back(pending_of(std::move(item), true));
  if (!page.empty()) after = page.back().sequence;
  return page;
}

PendingEvent BatchReader::pending_of(Journal::Item item, bool is_parked) const {
  const bool is_suspect =
      context_.crashes != nullptr && item.event != nullptr &&
      context_.crashes->verdict(context_.name, item.event->id) != CrashRecord::Verdict::kInnocent;
  return {.sequence = item.sequence,
          .event = select_parts(std::move(item.event), context_.config),
          .attempts = item.attempts,
          .is_suspect = is_suspect,
          .is_parked = is_parked};
}

void BatchReader::report_failure(const Error& error) {
  // The journal itself reports damage, and the daemon then ends.
  if (error.kind() != ErrorKind::kCorrupt) {
    context_.log.error(
        "JOURNAL_READ_FAILED",
        "the next events of a sink cannot be read, from the journal or from the archive that holds "
        "them; this is tried again, and nothing is lost",
        {{"sink", context_.name}, {"error", error.message()}});
  }
  const SteadyTime until = context_.clock.steady() + kJournalPause;
  const std::uint64_t interrupts =
      context_.state.with([](const DispatchState& s) { return s.interrupts; });
  context_.state.wait_until(std::stop_token{}, until, [&](const DispatchState& s) {
    return s.stopping || s.interrupts != interrupts;
  });
}

}  // namespace scriptorium::delivery
