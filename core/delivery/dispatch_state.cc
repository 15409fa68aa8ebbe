#include "core/delivery/dispatch_state.h"

#include "core/base/text.h"

namespace scriptorium::delivery {

void DeliveryCounters::count(const Answer& answer, Timestamp now) {
  for (const Settler::Settlement& settlement : answer.settlements) {
    if (settlement.outcome == Outcome::kAcknowledged) {
      ++acknowledged;
      last_success = now;
      continue;
    }
    const std::string reason = reason_of(settlement, answer);
    if (settlement.outcome == Outcome::kRejected) {
      ++rejected;
    } else {
      retries.add(reason);
    }
    last_error = printable(reason, kReasonBytes);
  }
}

BatchLimits DispatchContext::batch_limits() const {
  const auto at_least_one = [](std::int64_t configured) {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(configured, 1));
  };
  const std::uint64_t bytes = at_least_one(config.batch_max_bytes) / batches_at_once;
  return BatchLimits(at_least_one(config.batch_max_events), std::max<std::uint64_t>(bytes, 1));
}

std::uint64_t DispatchContext::waiting_events() const {
  for (const Journal::SinkState& sink : journal.usage().sinks) {
    if (sink.name == name) return sink.waiting;
  }
  return 0;
}

void DispatchContext::interrupt() {
  std::stop_source source = state.with_notify([](DispatchState& s) { return s.take_interrupt(); });
  source.request_stop();
}

}  // namespace scriptorium::delivery
