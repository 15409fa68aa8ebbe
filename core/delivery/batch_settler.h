#pragma once

#include <cstddef>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "core/api/delivery.h"
#include "core/base/fault_point.h"
#include "core/base/guarded.h"

namespace scriptorium::delivery {

// Collects the settlements of one batch. Its deliveries share it, so that a late settlement finds a
// live object even after the dispatcher gave up on the batch.
// Threads: any.
class BatchSettler : public Settler {
 public:
  explicit BatchSettler(std::size_t deliveries) {
    collected_.with([&](Collected& c) {
      c.slots.resize(deliveries);
      c.missing = deliveries;
    });
  }

  // A delivery's token is its index in the batch. A second settlement of one changes nothing.
  void settled(Settlement settlement) noexcept override {
    const std::size_t missing = collected_.with([&](Collected& c) {
      auto& slot = c.slots.at(settlement.token);
      if (!slot) {
        slot = std::move(settlement);
        --c.missing;
      }
      return c.missing;
    });
    if (missing == 0) {
      collected_.with_notify([](Collected&) {});
    } else {
      FAULT_POINT("delivery.between_settles");
    }
  }

  // Until all are settled; false if `give_up` came first.
  bool wait(const std::stop_token& give_up) {
    return collected_.wait(give_up, [](const Collected& c) { return c.missing == 0; });
  }
  // By token; only after wait() returned true.
  std::vector<Settlement> take() {
    return collected_.with([](Collected& c) {
      std::vector<Settlement> all;
      all.reserve(c.slots.size());
      for (auto& slot : c.slots) all.push_back(std::move(*slot));
      return all;
    });
  }

 private:
  struct Collected {
    std::vector<std::optional<Settlement>> slots;
    std::size_t missing = 0;
  };
  Guarded<Collected> collected_;
};

}  // namespace scriptorium::delivery
