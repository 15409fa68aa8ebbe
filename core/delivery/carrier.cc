#include "core/delivery/carrier.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/fault_point.h"
#include "core/base/text.h"
#include "core/delivery/batch_settler.h"
#include "core/plugin/call_plugin.h"

namespace scriptorium::delivery {
namespace {

constexpr const char* kCrashedReason =
    "plugin crashed: the daemon died again and again while the sink had this event alone in hand";

HandOverOrder::Request request_of(const Batch& batch) {
  return {.place = batch.place, .suspect = batch.is_suspect(), .events = batch.events.size()};
}

std::vector<Delivery> make_deliveries(Batch& batch, Timestamp started,
                                      const std::shared_ptr<Settler>& settler) {
  std::vector<Delivery> deliveries;
  deliveries.reserve(batch.events.size());
  for (PendingEvent& event : batch.events) {
    ++event.attempts;
    if (event.first_attempt == Timestamp{}) event.first_attempt = started;
    deliveries.emplace_back(event.event, event.attempts, settler, deliveries.size());
  }
  return deliveries;
}

double seconds_between(Timestamp from, Timestamp to) {
  return static_cast<double>(to.nanoseconds - from.nanoseconds) / 1e9;
}

bool is_parked(const Conclusion::Settled& settled) {
  return settled.record.outcome == Outcome::kRetry;
}

}  // namespace

Batch Carrier::attempt(Batch batch, const std::stop_token& stop) {
  const Timestamp started = context_.clock.now();
  drop_needless(batch);
  if (batch.empty()) {
    context_.state.with_notify([&](DispatchState& s) { s.order.leave(batch.place); });
    if (batch.is_probe) update_gate({.probe = true}, {}, {});
    return {};
  }
  const HandOverOrder::Request request = request_of(batch);
  if (!wait_for_turn(request, stop)) return {};
  std::optional<Answer> answer = hand_over(batch, request, started, stop);
  if (!answer) return {};
  log_misbehaviour(batch, *answer);
  // A suspect that came to an end without a crash is innocent; one to be tried again stays suspect.
  if (request.suspect && answer->settlements.front().outcome != Outcome::kRetry)
    context_.crashes->settled(context_.name, batch.events.front().event->id);
  return conclude(std::move(batch), *answer, started, stop);
}

// Takes out events that no sink need see: those that the journal has settled when it read them, and
// those whose owner became known meanwhile, since the event that replaces them is still to come.
void Carrier::drop_needless(Batch& batch) {
  std::vector<Journal::Settle> records;
  std::vector<std::uint64_t> sequences;
  std::erase_if(batch.events, [&](const PendingEvent& event) {
    if (event.event != nullptr) {
      if (!context_.journal.is_replaced(context_.id, *event.event)) return false;
      records.push_back({.sequence = event.sequence,
                         .outcome = Outcome::kAcknowledged,
                         .attempts = event.attempts});
    }
    sequences.push_back(event.sequence);
    return true;
  });
  if (sequences.empty()) return;
  report_settled(std::move(records), sequences);
  context_.state.with([&](DispatchState& s) {
    for (const std::uint64_t sequence : sequences) s.parked.mark_settled(sequence);
  });
}

// Until this batch may be handed over; false at a stop.
bool Carrier::wait_for_turn(const HandOverOrder::Request& request, const std::stop_token& stop) {
  bool taken = false;
  if (request.suspect) context_.state.with([](DispatchState& s) { s.order.begin_suspect_wait(); });
  context_.state.wait(stop, [&](DispatchState& s) {
    if (taken || s.stopping) return true;
    if (!s.order.take(request)) return false;
    s.counters.attempts += request.events;
    return taken = true;
  });
  if (request.suspect)
    context_.state.with_notify([](DispatchState& s) { s.order.end_suspect_wait(); });
  return taken;
}

// Nothing: a stop came before the batch was handed over, or before all of it was settled.
std::optional<Answer> Carrier::hand_over(Batch& batch, const HandOverOrder::Request& request,
                                         Timestamp started, const std::stop_token& stop) {
  auto settler = std::make_shared<BatchSettler>(batch.events.size());
  Answer answer;
  CrashRecord::InHand in_hand;
  if (!call_sink(make_deliveries(batch, started, settler), request.suspect, in_hand, answer,
                 stop)) {
    context_.state.with_notify([&](DispatchState& s) {
      s.order.withdraw(request);
      s.counters.attempts -= request.events;
    });
    return std::nullopt;
  }
  context_.state.with_notify([&](DispatchState& s) { s.order.handed_over(request); });
  if (!settler->wait(give_up_.get_token())) {
    context_.state.with([&](DispatchState& s) { s.order.settled(request); });
    context_.log.info("DELIVERIES_LEFT",
                      "a sink stopped before it settled all it had; the events stay in the journal",
                      {{"sink", context_.name}, {"count", request.events}});
    return std::nullopt;
  }
  in_hand.release();
  FAULT_POINT("delivery.after_deliver");
  answer.settlements = settler->take();
  return answer;
}

// False: a stop came while another sink's suspect was in hand, so nothing was handed over. What a
// plugin that throws leaves unsettled is settled when this returns.
bool Carrier::call_sink(std::vector<Delivery> deliveries, bool suspect,
                        CrashRecord::InHand& in_hand, Answer& answer, const std::stop_token& stop) {
  CrashRecord* const crashes = context_.crashes;
  if (suspect) {
    answer.withheld = crashes->verdict(context_.name, deliveries.front().event().id) ==
                      CrashRecord::Verdict::kGuilty;
    if (answer.withheld) {
      deliveries.front().reject(kCrashedReason);
      return true;
    }
  }
  if (crashes != nullptr) {
    std::vector<std::string> ids;
    for (const Delivery& delivery : deliveries) ids.push_back(delivery.event().id);
    in_hand = crashes->hand_over(context_.name, ids, suspect, stop);
  }
  if (suspect && !in_hand) return false;
  FAULT_POINT("delivery.before_deliver");
  const CrashRecord::Inside inside(in_hand);
  answer.thrown = context_.calls.during("deliver", context_.clock.steady(), [&] {
    return call_plugin([&] { context_.sink.deliver(std::move(deliveries)); });
  });
  return true;
}

Batch Carrier::conclude(Batch batch, const Answer& answer, Timestamp started,
                        const std::stop_token& stop) {
  const HandOverOrder::Request request = request_of(batch);
  const Gate::Outcome outcome = outcome_of(batch, answer);
  const bool keep = may_keep(batch, outcome.refused);
  Conclusion conclusion = delivery::conclude(std::move(batch), answer, keep, started);

  std::vector<Journal::Settle> records;
  std::vector<std::uint64_t> sequences;
  bool any_dead = false;
  for (const Conclusion::Settled& settled : conclusion.settled) {
    records.push_back(settled.record);
    sequences.push_back(settled.record.sequence);
    any_dead = any_dead || settled.record.outcome == Outcome::kRejected;
  }
  if (any_dead) FAULT_POINT("delivery.before_dead");
  // The store must know them before the journal can give them to a refill, and may hand them out
  // only after: another worker might settle one before it is parked.
  context_.state.with([&](DispatchState& s) {
    for (const Conclusion::Settled& settled : conclusion.settled) {
      if (is_parked(settled)) s.parked.mark_in_hand(settled.record.sequence);
    }
  });
  report_settled(std::move(records), std::move(sequences));
  update_gate(outcome, answer, conclusion.kept);
  log_dead_letters(conclusion);
  put_away(conclusion, answer, request);

  for (PendingEvent& event : conclusion.alone) {
    if (stop.stop_requested()) break;  // the others stay in the journal
    event.deliver_alone = true;
    Batch single;
    single.events.push_back(std::move(event));
    attempt(std::move(single), stop);
  }
  return std::move(conclusion.kept);
}

bool Carrier::may_keep(Batch& batch, bool refused) {
  if (refused && batch.is_fresh()) ++batch.refusals;
  const auto [accepts, others_wait] = context_.state.with([](const DispatchState& s) {
    return std::pair(s.gate.accepts(), s.order.has_waiting_batches());
  });
  const bool keep = delivery::may_keep(batch, accepts, others_wait);
  batch.accepts_at_refusal = accepts;
  return keep;
}

void Carrier::update_gate(const Gate::Outcome& outcome, const Answer& answer, const Batch& kept) {
  std::int64_t retry_in_ms = 0;
  const Gate::Announcement announcement = context_.state.with_notify([&](DispatchState& s) {
    const SteadyTime now = context_.clock.steady();
    if (!kept.empty()) s.order.line_up_again(kept.place);
    const Gate::Announcement result = s.gate.conclude(outcome, now);
    retry_in_ms = std::chrono::ceil<std::chrono::milliseconds>(s.gate.retry_at() - now).count();
    return result;
  });
  if (announcement == Gate::Announcement::kDown) {
    const std::string& reason = answer.settlements.front().reason;
    context_.log.warning(
        "SINK_DOWN",
        "a destination takes nothing at present; its events wait in the journal and are tried "
        "again",
        {{"sink", context_.name},
         {"reason", printable(reason, ReasonCounts::kReasonBytes)},
         {"waiting", context_.waiting_events()},
         {"retry_in_ms", retry_in_ms}});
  } else if (announcement == Gate::Announcement::kBack) {
    context_.log.info("SINK_BACK", "a destination takes events again",
                      {{"sink", context_.name}, {"waiting", context_.waiting_events()}});
  }
}

// Parks, counts, and lets the next batches pass.
void Carrier::put_away(Conclusion& conclusion, const Answer& answer,
                       const HandOverOrder::Request& request) {
  const Timestamp now = context_.clock.now();
  const bool due_earlier = context_.state.with_notify([&](DispatchState& s) {
    const SteadyTime steady = context_.clock.steady();
    const auto due_before = s.parked.next_attempt();
    for (Conclusion::Settled& settled : conclusion.settled) {
      if (is_parked(settled)) {
        s.parked.park(std::move(settled.event), settled.hint, steady);
        continue;
      }
      s.parked.mark_settled(settled.record.sequence);
      if (settled.record.outcome == Outcome::kAcknowledged)
        s.counters.latency.add(seconds_between(settled.event.event->captured_at, now));
    }
    s.counters.count(answer, now);
    s.order.settled(request);
    const auto due = s.parked.next_attempt();
    return due && (!due_before || *due < *due_before);
  });
  // A worker that waits for the journal does so until the next event was due before.
  if (due_earlier && context_.config.workers > 1) context_.interrupt();
}

// The cursor passes an event only after its settlement was queued, by whichever worker.
void Carrier::report_settled(std::vector<Journal::Settle> records,
                             std::vector<std::uint64_t> sequences) {
  std::sort(sequences.begin(), sequences.end());
  const auto [cursor, is_news] = context_.state.with([&](DispatchState& s) {
    const std::uint64_t with_these = s.track.cursor_with(sequences);
    return std::pair(with_these, s.report_cursor(with_these));
  });
  if (is_news || !records.empty()) context_.journal.settle(context_.id, std::move(records), cursor);
  // Two workers may do this concurrently, each without the other's events; the later one reports
  // the cursor that passes both.
  const auto [joint_cursor, is_joint_news] = context_.state.with([&](DispatchState& s) {
    const std::uint64_t joint = s.track.mark_settled(sequences);
    return std::pair(joint, s.report_cursor(joint));
  });
  if (is_joint_news) context_.journal.settle(context_.id, {}, joint_cursor);
}

void Carrier::log_misbehaviour(const Batch& batch, const Answer& answer) {
  if (answer.thrown) {
    context_.log.warning(
        "PLUGIN_THREW",
        "a sink threw an exception; what it had not settled is tried again, one by one",
        {{"sink", context_.name},
         {"call", "deliver"},
         {"what", *answer.thrown},
         {"batch", batch.events.size()}});
    return;
  }
  const auto is_unsettled = [](const Settler::Settlement& s) { return s.by_destructor; };
  const auto first =
      std::find_if(answer.settlements.begin(), answer.settlements.end(), is_unsettled);
  if (first == answer.settlements.end()) return;
  const auto count = std::count_if(first, answer.settlements.end(), is_unsettled);
  context_.log.warning(
      "DELIVERY_UNSETTLED",
      "a sink dropped deliveries without an answer; they are tried again, and its plugin should be "
      "repaired",
      {{"sink", context_.name},
       {"count", count},
       {"job_id", printable(batch.events[first->token].event->job.id, 64)}});
}

void Carrier::log_dead_letters(const Conclusion& conclusion) {
  for (const Conclusion::Settled& settled : conclusion.settled) {
    if (settled.record.outcome != Outcome::kRejected) continue;
    context_.log.error(
        "DEAD_LETTER",
        "an event was given up for a sink; it is kept with its reason: see `scriptorium "
        "deadletters`",
        {{"sink", context_.name},
         {"event_id", settled.event.event->id},
         {"job_id", printable(settled.event.event->job.id, 64)},
         {"reason", settled.record.reason},
         {"attempts", settled.record.attempts}});
  }
}

}  // namespace scriptorium::delivery
