#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "core/base/guarded.h"
#include "core/base/time.h"

namespace scriptorium {

// How deliver() and stop() of a sink reach the sink's own thread. Nothing but core's batches bounds
// it. An inbox is closed until open(), and takes nothing while it is closed.
// Threads: any.
template <typename T>
class Inbox {
 public:
  struct Content {
    std::vector<T> items;
    std::optional<SteadyTime> stop_at;  // the deadline of close(); nothing while it is open
  };

  void open() {
    state_.with([](State& s) {
      s.open = true;
      s.stop_at.reset();
    });
  }

  // Takes all of `items`. False: the inbox is closed, and `items` stays as it is.
  bool put(std::vector<T>& items) {
    const bool taken = state_.with_notify([&](State& s) {
      if (s.open) std::move(items.begin(), items.end(), std::back_inserter(s.items));
      return s.open;
    });
    if (taken) items.clear();
    return taken;
  }

  // The thread is to end by `deadline`; of several calls the earliest deadline counts. What was put
  // before stays until it is taken.
  void close(SteadyTime deadline) {
    state_.with_notify([&](State& s) {
      s.open = false;
      s.stop_at = s.stop_at ? std::min(*s.stop_at, deadline) : deadline;
    });
  }

  // All that is there, which leaves the inbox empty.
  Content take() {
    return state_.with([](State& s) { return Content{std::exchange(s.items, {}), s.stop_at}; });
  }

  // Waits until there is something to take, close() was called, or `until` has come.
  void wait_until(SteadyTime until) {
    state_.wait_until(std::stop_token{}, until,
                      [](const State& s) { return !s.items.empty() || s.stop_at.has_value(); });
  }

  std::size_t size() const {
    return state_.with([](const State& s) { return s.items.size(); });
  }

 private:
  struct State {
    std::vector<T> items;
    std::optional<SteadyTime> stop_at;
    bool open = false;
  };
  Guarded<State> state_;
};

}  // namespace scriptorium
