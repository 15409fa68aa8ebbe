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

// Passes items and the stop deadline from a sink's deliver() and stop() to the sink's own thread.
// Its size is bounded only by core's batches. An inbox is closed until open(), and accepts nothing
// while closed.
// Threads: any.
template <typename T>
class Inbox {
 public:
  struct Content {
    std::vector<T> items;
    std::optional<SteadyTime> stop_at;  // the deadline of close(); empty while the inbox is open
  };

  void open() {
    state_.with([](State& s) {
      s.open = true;
      s.stop_at.reset();
    });
  }

  // Takes all of `items`. False: the inbox is closed, and `items` is unchanged.
  bool put(std::vector<T>& items) {
    const bool taken = state_.with_notify([&](State& s) {
      if (s.open) std::move(items.begin(), items.end(), std::back_inserter(s.items));
      return s.open;
    });
    if (taken) items.clear();
    return taken;
  }

  // Asks the thread to end by `deadline`; of several calls the earliest deadline counts. Items that
  // were put before remain until they are taken.
  void close(SteadyTime deadline) {
    state_.with_notify([&](State& s) {
      s.open = false;
      s.stop_at = s.stop_at ? std::min(*s.stop_at, deadline) : deadline;
    });
  }

  // Takes everything and leaves the inbox empty.
  Content take() {
    return state_.with([](State& s) { return Content{std::exchange(s.items, {}), s.stop_at}; });
  }

  // Waits until there are items, close() was called, or `until` is reached.
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
