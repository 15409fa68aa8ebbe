#include "core/delivery/conclusion.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/base/text.h"
#include "core/delivery/plan.h"

namespace scriptorium::delivery {
namespace {

bool was_thrown(const Settler::Settlement& settlement, const Answer& answer) {
  return answer.thrown && settlement.by_destructor;
}

std::vector<Decision> decisions_of(const Batch& batch, const Answer& answer, bool keep) {
  std::vector<std::uint32_t> throws;
  throws.reserve(batch.events.size());
  for (const PendingEvent& event : batch.events) throws.push_back(event.throws);
  return decide(answer.settlements, throws, {.threw = answer.thrown.has_value(), .may_keep = keep});
}

Outcome outcome_of(Decision decision) {
  if (decision == Decision::kAcknowledged) return Outcome::kAcknowledged;
  const bool dead = decision == Decision::kDeadLetter || decision == Decision::kThrewTooOften;
  return dead ? Outcome::kRejected : Outcome::kRetry;
}

Conclusion::Settled settle(PendingEvent event, Decision decision,
                           const Settler::Settlement& settlement, const Answer& answer,
                           Timestamp started) {
  Journal::Settle record{.sequence = event.sequence,
                         .outcome = outcome_of(decision),
                         .attempts = event.attempts,
                         .first_attempt = event.first_attempt,
                         .last_attempt = started};
  if (record.outcome != Outcome::kAcknowledged)
    record.reason = printable(reason_of(settlement, answer), kReasonBytes);
  if (record.outcome == Outcome::kRejected && record.reason.empty())
    record.reason = "no reason given";
  if (record.outcome == Outcome::kRetry) event.is_parked = true;
  if (decision == Decision::kParkAlone) {
    ++event.throws;
    event.deliver_alone = true;
  }
  return {std::move(event), std::move(record), settlement.hint};
}

}  // namespace

std::string reason_of(const Settler::Settlement& settlement, const Answer& answer) {
  return was_thrown(settlement, answer) ? "plugin threw: " + *answer.thrown : settlement.reason;
}

Gate::Outcome outcome_of(const Batch& batch, const Answer& answer) {
  Gate::Outcome outcome{.fresh = batch.is_fresh(), .probe = batch.is_probe, .refused = true};
  for (const Settler::Settlement& s : answer.settlements) {
    if (s.outcome != Outcome::kRetry || was_thrown(s, answer)) outcome.refused = false;
    if (s.outcome != Outcome::kRetry && !answer.withheld) outcome.accepted = true;
    if (s.hint) outcome.hint = std::max(outcome.hint.value_or(*s.hint), *s.hint);
  }
  return outcome;
}

bool may_keep(const Batch& batch, std::uint64_t accepts, bool others_wait) {
  const bool refused_too_often = batch.refusals >= kRefusalsUntilParked;
  const bool was_overtaken = batch.refusals > 1 && accepts != batch.accepts_at_refusal;
  return batch.is_fresh() && !was_overtaken &&
         !(refused_too_often && (batch.is_full || others_wait));
}

Conclusion conclude(Batch batch, const Answer& answer, bool keep, Timestamp started) {
  const std::vector<Decision> decisions = decisions_of(batch, answer, keep);
  std::vector<PendingEvent> events = std::exchange(batch.events, {});
  Conclusion conclusion;
  conclusion.kept = std::move(batch);
  conclusion.kept.is_probe = false;
  for (std::size_t i = 0; i < events.size(); ++i) {
    PendingEvent& event = events[i];
    switch (decisions[i]) {
      case Decision::kKeep: conclusion.kept.events.push_back(std::move(event)); break;
      case Decision::kTryAlone: conclusion.alone.push_back(std::move(event)); break;
      default:
        conclusion.settled.push_back(
            settle(std::move(event), decisions[i], answer.settlements[i], answer, started));
    }
  }
  return conclusion;
}

}  // namespace scriptorium::delivery
