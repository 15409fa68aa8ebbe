#include "core/api/delivery.h"

#include <utility>

namespace scriptorium {

Delivery& Delivery::operator=(Delivery&& other) noexcept {
  if (this != &other) {
    Delivery old(std::move(*this));  // settles the previous delivery at the end of the scope
    event_ = std::move(other.event_);
    settler_ = std::move(other.settler_);
    token_ = other.token_;
    attempt_ = other.attempt_;
  }
  return *this;
}

Delivery::~Delivery() {
  if (settler_ == nullptr) return;
  settle({.outcome = Outcome::kRetry,
          .reason = "the plugin dropped the delivery",
          .by_destructor = true});
}

void Delivery::acknowledge() noexcept { settle({.outcome = Outcome::kAcknowledged}); }

void Delivery::retry(std::string reason, std::optional<std::chrono::milliseconds> hint) noexcept {
  settle({.outcome = Outcome::kRetry, .reason = std::move(reason), .hint = hint});
}

void Delivery::reject(std::string reason) noexcept {
  settle({.outcome = Outcome::kRejected, .reason = std::move(reason)});
}

void Delivery::settle(Settler::Settlement settlement) noexcept {
  const std::shared_ptr<Settler> settler = std::exchange(settler_, nullptr);
  if (settler == nullptr) return;
  settlement.token = token_;
  settler->settled(std::move(settlement));
}

}  // namespace scriptorium
