#pragma once

#include <vector>

#include "core/api/sink.h"

namespace scriptorium::null {

// Acknowledges every event and keeps none: for trying out a source, and the smallest sink that
// there can be.
class NullSink final : public Sink {
 public:
  void deliver(std::vector<Delivery> batch) override {
    for (Delivery& delivery : batch) delivery.acknowledge();
  }
};

}  // namespace scriptorium::null
