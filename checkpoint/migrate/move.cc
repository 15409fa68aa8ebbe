#include "checkpoint/migrate/move.h"

#include <algorithm>
#include <utility>

#include "core/base/text.h"

namespace scriptorium::checkpoint {
namespace {

// In the second in which a life ended, slurmd refuses the next one ("Job credential revoked").
constexpr double kSecondsBeforeRelease = 2;
// How long a script with a trap must run before it counts as started, where nothing resumed is
// seen.
constexpr double kSecondsOfTrap = 20;

}  // namespace

const char* to_string(MoveOutcome outcome) {
  switch (outcome) {
    case MoveOutcome::kMoved: return "moved";
    case MoveOutcome::kHeld: return "held";
    case MoveOutcome::kRequeued: return "requeued";
    case MoveOutcome::kMovable: return "movable";
    case MoveOutcome::kLeft: return "left";
    case MoveOutcome::kNotMoved: return "not moved";
    case MoveOutcome::kWaiting: return "waiting";
    case MoveOutcome::kEnded: return "ended";
    case MoveOutcome::kBrokenOff: return "broken off";
    case MoveOutcome::kUndone: return "undone";
  }
  return "";
}

Move::Move(MoveState state, std::chrono::seconds timeout, bool holds)
    : state_(std::move(state)), timeout_(timeout), holds_(holds) {
  // Whether the step was done is not known. Both may be done twice: a job is inspected once more
  // before it is signalled again.
  if (state_.stage == MoveStage::kReleased) state_.stage = MoveStage::kSaved;
}

Move::Order Move::enter(MoveStage stage, Timestamp now, Order order) {
  state_.stage = stage;
  state_.stage_begun = now;
  return order;
}

Move::Order Move::end(MoveOutcome outcome, std::string reason) {
  state_.stage = MoveStage::kEnded;
  outcome_ = outcome;
  reason_ = std::move(reason);
  return Order::kEnd;
}

double Move::seconds_since(Timestamp time, Timestamp now) const {
  return static_cast<double>(now.nanoseconds - time.nanoseconds) / static_cast<double>(kSecond);
}

bool Move::is_late(Timestamp now) const {
  return seconds_since(state_.stage_begun, now) >= static_cast<double>(timeout_.count());
}

void Move::failed(const std::string& why) { end(MoveOutcome::kNotMoved, why); }

Move::Order Move::next(const std::optional<SlurmJob>& seen, Timestamp now) {
  if (state_.stage == MoveStage::kEnded) return Order::kEnd;
  if (!seen) return end(MoveOutcome::kEnded, "it has ended, and Slurm does not know it any more");
  if (seen->has_ended()) {
    if (state_.stage == MoveStage::kResuming && seen->state == "COMPLETED") {
      downtime_seconds_ = seconds_since(state_.begun, state_.stage_begun);
      return end(MoveOutcome::kMoved, "it has completed since");
    }
    return end(MoveOutcome::kEnded,
               seen->state == "COMPLETED"
                   ? "it ended by itself (COMPLETED)"
                   : "it ended and was not run again (" + seen->state + "); see its output");
  }
  switch (state_.stage) {
    case MoveStage::kPlanned:
      if (!seen->is_running() || seen->restarts != state_.restarts || seen->nodes != state_.from)
        return end(MoveOutcome::kNotMoved, "it is in another life already (" + seen->state + ")");
      state_.begun = now;
      return enter(MoveStage::kSignalled, now, Order::kSignal);
    case MoveStage::kSignalled: return wait_saved(*seen, now);
    case MoveStage::kSaved:
      if (seen->is_running()) break;
      if (!seen->is_pending() || seconds_since(state_.stage_begun, now) < kSecondsBeforeRelease)
        return Order::kWait;
      state_.restarts = seen->restarts;
      return enter(MoveStage::kReleased, now, Order::kRelease);
    case MoveStage::kReleased:
      if (seen->is_pending()) {
        if (holds_)
          return end(MoveOutcome::kHeld, "scontrol release " + state_.job + " continues it");
        if (seen->restarts > state_.restarts) return enter(MoveStage::kSaved, now, Order::kWait);
        if (is_late(now)) {
          return end(MoveOutcome::kWaiting,
                     "it is saved, and waits in the queue: there is no room for it yet");
        }
      }
      if (!seen->is_running()) return Order::kWait;
      break;
    case MoveStage::kResuming:
    case MoveStage::kEnded: break;
  }
  return wait_resumed(*seen, now);
}

Move::Order Move::wait_saved(const SlurmJob& job, Timestamp now) {
  if (job.restarts > state_.restarts) {
    if (!job.is_pending() && !job.is_running()) return Order::kWait;
    return enter(MoveStage::kSaved, now, Order::kWait);
  }
  if (!is_late(now)) return Order::kWait;
  return end(MoveOutcome::kNotMoved, "it was not saved within " +
                                         format_seconds(static_cast<double>(timeout_.count())) +
                                         ", and continues where it is; its output may say why");
}

Move::Order Move::wait_resumed(const SlurmJob& job, Timestamp now) {
  if (!job.is_running()) {
    // It could not be resumed there, and Slurm runs it again.
    if (job.is_pending()) return enter(MoveStage::kSaved, now, Order::kWait);
    return Order::kWait;
  }
  if (state_.stage != MoveStage::kResuming || state_.to != job.nodes) {
    state_.to = job.nodes;
    state_.restarts = job.restarts;
    enter(MoveStage::kResuming, now, Order::kWait);
  }
  if (state_.to == state_.from) return end(MoveOutcome::kNotMoved, "it came back on its old node");
  if (state_.method == MoveMethod::kRequeue) {
    downtime_seconds_ = seconds_since(state_.begun, now);
    return end(MoveOutcome::kRequeued,
               format_seconds(static_cast<double>(state_.lost_seconds)) + " of its work are lost");
  }
  if (is_late(now)) {
    return end(MoveOutcome::kNotMoved,
               "it was started on " + state_.to + ", but was not seen to be resumed within " +
                   format_seconds(static_cast<double>(timeout_.count())) + "; see its output");
  }
  return Order::kInspect;
}

void Move::inspected(const Result<std::optional<BatchProcess>>& batch, Timestamp now) {
  const Verdict verdict = classify(batch);
  if (!verdict.method) return;  // not yet
  const bool is_resumed = (*batch)->has_resumed_program;
  const bool runs_by_itself = verdict.method == MoveMethod::kRunApp;
  const bool is_trap_for_long = verdict.method == MoveMethod::kTrap &&
                                seconds_since(state_.stage_begun, now) >= kSecondsOfTrap;
  if (!is_resumed && !runs_by_itself && !is_trap_for_long) return;
  downtime_seconds_ = seconds_since(state_.begun, is_trap_for_long ? state_.stage_begun : now);
  end(MoveOutcome::kMoved,
      is_resumed ? "" : "its script runs; whether it has resumed cannot be seen from outside");
}

Move::Order Move::broken_off() {
  if (state_.stage == MoveStage::kSaved) {
    state_.stage = MoveStage::kReleased;
    return Order::kRelease;
  }
  return Order::kWait;
}

}  // namespace scriptorium::checkpoint
