#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <type_traits>
#include <utility>

#include "core/base/guarded.h"

namespace scriptorium {

namespace detail {
void leave_behind(std::jthread thread);
}  // namespace detail

// The result of a call that may hang, such as one that reaches a network file system. It runs in a
// separate thread while the caller waits. Nothing: it did not come back within `limit`; its thread
// is left behind, so `call` must own, or share, all that it uses, and must not throw.
template <typename Call>
std::optional<std::invoke_result_t<Call>> call_within(std::chrono::milliseconds limit, Call call) {
  auto answer = std::make_shared<Guarded<std::optional<std::invoke_result_t<Call>>>>();
  std::jthread thread([answer, call = std::move(call)]() mutable noexcept {
    auto result = call();
    answer->with_notify([&](auto& a) { a.emplace(std::move(result)); });
  });
  const bool ended = answer->wait_until(std::stop_token{}, std::chrono::steady_clock::now() + limit,
                                        [](const auto& a) { return a.has_value(); });
  if (ended) return answer->with([](auto& a) { return std::move(a); });
  detail::leave_behind(std::move(thread));
  return std::nullopt;
}

// True once a call has hung: flush all output, then call _exit. Destructors of static objects would
// destroy what the thread that was left behind still uses.
bool call_hung() noexcept;

}  // namespace scriptorium
