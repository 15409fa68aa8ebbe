#include "core/plugin/call_within.h"

#include <vector>

namespace scriptorium {
namespace {

// A thread that hangs can be neither stopped nor joined, and std::jthread's destructor would join
// it, so it moves to a list that is never destroyed.
Guarded<std::vector<std::jthread>>& threads_left_behind() {
  static auto& threads = *new Guarded<std::vector<std::jthread>>();
  return threads;
}

}  // namespace

void detail::leave_behind(std::jthread thread) {
  threads_left_behind().with([&](auto& threads) { threads.push_back(std::move(thread)); });
}

bool call_hung() noexcept {
  return threads_left_behind().with([](const auto& threads) { return !threads.empty(); });
}

}  // namespace scriptorium
