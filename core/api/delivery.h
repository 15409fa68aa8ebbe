#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/api/event.h"

namespace scriptorium {

enum class Outcome {
  kAcknowledged,  // the destination has proved that it stored the event
  kRetry,         // not now: core tries again, for ever
  kRejected,      // never: becomes a dead letter with its reason
};

// Who hears of a settlement: core/delivery, or a test.
class Settler {
 public:
  virtual ~Settler() = default;
  struct Settlement {
    std::uint64_t token = 0;
    Outcome outcome = Outcome::kRetry;
    std::string reason;  // short and stable: retries are counted by it
    std::optional<std::chrono::milliseconds>
        hint;                    // the destination's own wish for the next attempt
    bool by_destructor = false;  // nobody settled it: a plugin bug
  };
  virtual void settled(Settlement settlement) noexcept = 0;  // from any thread
};

// One event for one sink, to be settled exactly once, from any thread.
//   delivery.acknowledge();                       // the destination has it
//   delivery.retry("429 too many requests", 5s);  // the destination's own hint; core decides when
//   delivery.reject("413 document too large");    // becomes a dead letter, with this reason
// A second settlement is ignored. One that is destroyed unsettled counts as retry and is logged as
// DELIVERY_UNSETTLED: a plugin's bug, never a loss. Reasons hold no job script, variable or
// credential.
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
