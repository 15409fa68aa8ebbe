#include "checkpoint/queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace scriptorium::checkpoint {
namespace {

constexpr std::size_t kMostUsers = 10'000;

bool is_repeat(const Request& a, const Request& b) {
  return a.action == b.action && a.owner.uid == b.owner.uid && a.owner.job == b.owner.job;
}

}  // namespace

bool RequestQueue::is_allowed(uid_t uid, SteadyTime now) {
  const auto allowed = [&](const Allowance& allowance) {
    const std::chrono::duration<double> passed = now - allowance.at;
    return std::min(per_minute_, allowance.requests + passed.count() * per_minute_ / 60);
  };
  if (allowances_.size() >= kMostUsers) {
    std::erase_if(allowances_,
                  [&](const auto& entry) { return allowed(entry.second) >= per_minute_; });
  }
  Allowance& own = allowances_.try_emplace(uid, Allowance{per_minute_, now}).first->second;
  own = {allowed(own), now};
  if (own.requests < 1) return false;
  own.requests -= 1;
  return true;
}

RequestQueue::Added RequestQueue::add(Request request, const std::vector<const Request*>& active,
                                      SteadyTime now) {
  if (!is_allowed(request.owner.uid, now) || waiting_.size() >= most_waiting_)
    return Added::kTooMany;
  const auto repeats = [&](const Request& other) { return is_repeat(request, other); };
  if (std::ranges::any_of(waiting_, repeats) ||
      std::ranges::any_of(active, [&](const Request* other) { return repeats(*other); }))
    return Added::kIsRepeated;
  waiting_.push_back(std::move(request));
  return Added::kYes;
}

std::optional<Request> RequestQueue::next(const std::vector<const Request*>& being_served,
                                          std::int64_t most_of_one_user) {
  const auto load = [&](const Request& request) {
    return std::ranges::count_if(
        being_served, [&](const Request* other) { return other->owner.uid == request.owner.uid; });
  };
  const auto chosen = std::ranges::min_element(waiting_, {}, load);  // the first of equals
  if (chosen == waiting_.end() || load(*chosen) >= most_of_one_user) return std::nullopt;
  Request request = std::move(*chosen);
  waiting_.erase(chosen);
  return request;
}

}  // namespace scriptorium::checkpoint
