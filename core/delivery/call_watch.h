#pragma once

#include <list>
#include <optional>
#include <utility>

#include "core/base/guarded.h"
#include "core/base/time.h"

namespace scriptorium {

// Which calls into a sink are under way, and since when, so that the status can name a sink that
// hangs.
// Threads: any.
class CallWatch {
 public:
  struct Call {
    const char* name;  // "start", "deliver", "stop", "read"
    SteadyTime since;
  };

  // The result of `call`, which is under way until it returns or throws.
  template <typename Function>
  decltype(auto) during(const char* name, SteadyTime now, Function&& call) {
    const auto place =
        calls_.with([&](auto& calls) { return calls.insert(calls.end(), {name, now}); });
    struct End {
      CallWatch& watch;
      std::list<Call>::iterator place;
      ~End() {
        watch.calls_.with([&](auto& calls) { calls.erase(place); });
      }
    } end{*this, place};
    return std::forward<Function>(call)();
  }

  // The one that began first.
  std::optional<Call> oldest() const {
    return calls_.with([](const auto& calls) {
      return calls.empty() ? std::nullopt : std::optional(calls.front());
    });
  }

 private:
  Guarded<std::list<Call>> calls_;
};

}  // namespace scriptorium
