#include "checkpoint/queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace scriptorium::checkpoint {
namespace {

bool is_repeat(const Request& a, const Request& b) {
  return a.action == b.action && a.owner.uid == b.owner.uid && a.owner.job == b.owner.job;
}

}  // namespace

double RequestQueue::allowed(uid_t uid, SteadyTime now) const {
  const auto found = allowances_.find(uid);
  if (found == allowances_.end()) return per_minute_;
  const std::chrono::duration<double> passed = now - found->second.at;
  return std::min(per_minute_, found->second.requests + passed.count() * per_minute_ / 60);
}

bool RequestQueue::is_full(uid_t uid) const {
  return std::ranges::count_if(waiting_, [&](const Request& request) {
           return request.owner.uid == uid;
         }) >= most_waiting_;
}

std::optional<Request> RequestQueue::add(Request request,
                                         const std::vector<const Request*>& active) {
  const auto repeats = [&](const Request& other) { return is_repeat(request, other); };
  if (std::ranges::any_of(active, [&](const Request* other) { return repeats(*other); }))
    return request;
  const auto older = std::ranges::find_if(waiting_, repeats);
  if (older != waiting_.end()) return std::exchange(*older, std::move(request));
  waiting_.push_back(std::move(request));
  return std::nullopt;
}

std::optional<Request> RequestQueue::next(const std::vector<const Request*>& being_served,
                                          std::int64_t most_of_one_user, SteadyTime now) {
  std::map<uid_t, std::int64_t> loads;
  for (const Request* request : being_served) ++loads[request->owner.uid];
  const auto load = [&](const Request& request) {
    const uid_t uid = request.owner.uid;
    const auto [entry, is_new] = loads.try_emplace(uid, 0);
    if (allowed(uid, now) < 1) entry->second = most_of_one_user;
    return entry->second;
  };
  const auto chosen = std::ranges::min_element(waiting_, {}, load);  // the first of equals
  if (chosen == waiting_.end() || load(*chosen) >= most_of_one_user) return std::nullopt;
  Request request = std::move(*chosen);
  waiting_.erase(chosen);
  const uid_t uid = request.owner.uid;
  const double left = allowed(uid, now) - 1;
  allowances_[uid] = {left, now};
  std::erase_if(allowances_, [&](const auto& e) { return allowed(e.first, now) >= per_minute_; });
  return request;
}

void RequestQueue::put_back(Request request) {
  allowances_[request.owner.uid].requests += 1;
  waiting_.push_front(std::move(request));
}

}  // namespace scriptorium::checkpoint
