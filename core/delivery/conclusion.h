#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/api/delivery.h"
#include "core/delivery/batch.h"
#include "core/delivery/gate.h"
#include "core/journal/journal.h"

// What follows from a sink's answer to one batch. Pure.
namespace scriptorium::delivery {

// A full batch that was refused as a whole this often is parked: its content may be the reason, and
// the events behind it must not wait for ever.
inline constexpr std::uint32_t kRefusalsUntilParked = 10;
inline constexpr std::size_t kReasonBytes = 1000;  // of a reason in the journal or the status

// What a sink did with the batch that it was handed.
struct Answer {
  std::vector<Settler::Settlement> settlements;  // one for each event, in their order
  std::optional<std::string> thrown;             // what escaped deliver()
  bool withheld = false;  // guilty of crashes, so rejected without asking the destination
};

// Why an event is tried again or was given up: the sink's reason, or "plugin threw: ..." for what
// it left unsettled when it threw.
std::string reason_of(const Settler::Settlement& settlement, const Answer& answer);

// What the answer says of the destination.
Gate::Outcome outcome_of(const Batch& batch, const Answer& answer);

// Whether a batch that was refused as a whole is kept and tried again. Otherwise its events are
// parked one by one, since the destination works (`accepts`, see Gate, has grown since the last
// refusal), or since others wait behind a batch that was refused too often. Call it once for each
// refusal, after Batch::refusals was raised.
bool may_keep(const Batch& batch, std::uint64_t accepts, bool others_wait);

// What becomes of each event of one batch.
struct Conclusion {
  // The journal is told of it. Record: acknowledged, rejected (a dead letter) or retry (parked).
  struct Settled {
    PendingEvent event;
    Journal::Settle record;
    std::optional<std::chrono::milliseconds> hint;
  };
  std::vector<Settled> settled;
  std::vector<PendingEvent> alone;  // tried again at once, each in a batch of its own
  Batch kept;                       // tried again after the back-off
};
// `started`: when the attempt began, by the wall clock.
Conclusion conclude(Batch batch, const Answer& answer, bool keep, Timestamp started);

}  // namespace scriptorium::delivery
