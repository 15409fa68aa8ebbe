#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <vector>

#include "core/api/delivery.h"
#include "core/delivery/batch.h"
#include "core/delivery/conclusion.h"
#include "core/delivery/dispatch_state.h"

namespace scriptorium::delivery {

// Carries batches to the sink, and the sink's answers to the journal.
// Owns:    nothing; borrows the context.
// Threads: any worker, each with a batch of its own.
class Carrier {
 public:
  explicit Carrier(DispatchContext& context) : context_(context) {}

  // Waits until the batch may be handed over, hands it over, waits until all of it is settled, and
  // reports to the journal. Returns the events that the destination refused as a whole and that are
  // to be tried again after the back-off. At a stop, what is not settled stays in the journal.
  Batch attempt(Batch batch, const std::stop_token& stop);
  // Stops waiting for settlements; after Sink::stop() none may come any more.
  void give_up() { give_up_.request_stop(); }

 private:
  void drop_needless(Batch& batch);
  bool wait_for_turn(const HandOverOrder::Request& request, const std::stop_token& stop);
  std::optional<Answer> hand_over(Batch& batch, const HandOverOrder::Request& request,
                                  Timestamp started, const std::stop_token& stop);
  bool call_sink(std::vector<Delivery> deliveries, bool suspect, CrashRecord::InHand& in_hand,
                 Answer& answer, const std::stop_token& stop);
  Batch conclude(Batch batch, const Answer& answer, Timestamp started, const std::stop_token& stop);
  bool may_keep(Batch& batch, bool refused);
  void update_gate(const Gate::Outcome& outcome, const Answer& answer, const Batch& kept);
  void put_away(Conclusion& conclusion, const Answer& answer,
                const HandOverOrder::Request& request);
  void report_settled(std::vector<Journal::Settle> records, std::vector<std::uint64_t> sequences);
  void log_misbehaviour(const Batch& batch, const Answer& answer);
  void log_dead_letters(const Conclusion& conclusion);

  DispatchContext& context_;
  std::stop_source give_up_;
};

}  // namespace scriptorium::delivery
