#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/api/sink.h"

namespace scriptorium::test {

// One sink that has to pass the contract suite. A new backend starts by being added to
// sink_cases().
struct SinkCase {
  // The destination of one test, alive as long as the test.
  class Destination {
   public:
    virtual ~Destination() = default;
    // A new instance of the sink on this destination, as after a restart.
    virtual std::unique_ptr<Sink> make(const PluginContext& context) = 0;
    // All that the destination holds, in any form that differs when something changed.
    virtual std::string contents() = 0;
    // Whether a second delivery of an event leaves contents() as it was: false where the
    // destination only appends.
    virtual bool keeps_events_apart() const { return true; }
    // Whether find() brings back what was delivered.
    virtual bool finds() const { return false; }
  };

  std::string name;
  std::function<std::unique_ptr<Destination>()> destination;
};

std::vector<SinkCase> sink_cases();

}  // namespace scriptorium::test
