#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/api/event.h"

namespace scriptorium {

enum class Outcome {
  kAcknowledged,  // the destination has confirmed that it stored the event
  kRetry,         // not now: core retries without limit
  kRejected,      // never: the event becomes a dead letter with this reason
};

// Receives settlements; implemented by core/delivery and by tests.
class Settler {
 public:
  virtual ~Settler() = default;
  struct Settlement {
    std::uint64_t token = 0;
    Outcome outcome = Outcome::kRetry;
    std::string reason;  // short and stable: core counts retries by reason
    std::optional<std::chrono::milliseconds> hint;  // the delay that the destination asks for
    bool by_destructor = false;                     // destroyed unsettled: a plugin bug
  };
  virtual void settled(Settlement settlement) noexcept = 0;  // from any thread
};

// One event for one sink, to be settled exactly once, from any thread.
//   delivery.acknowledge();                       // the destination has it
//   delivery.retry("429 too many requests", 5s);  // the destination's own hint; core decides when
//   delivery.reject("413 document too large");    // becomes a dead letter, with this reason
// A second settlement is ignored. A delivery that is destroyed unsettled counts as a retry and is
// logged as DELIVERY_UNSETTLED: it is a plugin bug, but loses nothing. A reason must not contain a
// job script, a variable or a credential.
class Delivery {
 public:
  Delivery(std::shared_ptr<const Event> event, std::uint32_t attempt,
           std::shared_ptr<Settler> settler, std::uint64_t token)
      : event_(std::move(event)), settler_(std::move(settler)), token_(token), attempt_(attempt) {}
  Delivery(Delivery&&) noexcept = default;
  Delivery& operator=(Delivery&& other) noexcept;
  ~Delivery();

  const Event& event() const noexcept { return *event_; }
  const std::shared_ptr<const Event>& shared_event() const noexcept { return event_; }
  std::uint32_t attempt() const noexcept { return attempt_; }  // 1 = the first
  bool settled() const noexcept { return settler_ == nullptr; }

  void acknowledge() noexcept;
  void retry(std::string reason,
             std::optional<std::chrono::milliseconds> hint = std::nullopt) noexcept;
  void reject(std::string reason) noexcept;

 private:
  void settle(Settler::Settlement settlement) noexcept;

  std::shared_ptr<const Event> event_;
  std::shared_ptr<Settler> settler_;  // null once settled
  std::uint64_t token_ = 0;
  std::uint32_t attempt_ = 1;
};

}  // namespace scriptorium
