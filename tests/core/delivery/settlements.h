#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "core/api/delivery.h"

// The four ways in which a sink settles an event.
namespace scriptorium::delivery {

inline Settler::Settlement acknowledged() { return {.outcome = Outcome::kAcknowledged}; }
inline Settler::Settlement rejected(std::string reason = "413") {
  return {.outcome = Outcome::kRejected, .reason = std::move(reason)};
}
inline Settler::Settlement refused(std::optional<std::chrono::seconds> hint = std::nullopt) {
  return {.outcome = Outcome::kRetry, .reason = "503", .hint = hint};
}
inline Settler::Settlement dropped() {
  return {.outcome = Outcome::kRetry, .reason = "dropped", .by_destructor = true};
}

}  // namespace scriptorium::delivery
