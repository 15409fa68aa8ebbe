#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "checkpoint/work.h"
#include "core/base/time.h"

namespace scriptorium::checkpoint {

// The requests that wait for their turn, and which is next. Pure: time is an argument.
class RequestQueue {
 public:
  // `most_waiting`: of one user.
  RequestQueue(std::int64_t per_minute, std::ptrdiff_t most_waiting)
      : per_minute_(static_cast<double>(per_minute)), most_waiting_(most_waiting) {}

  bool is_full(uid_t uid) const;
  bool is_empty() const noexcept { return waiting_.empty(); }

  // Returns the request that is not needed: of two of the same job, user and kind the older one,
  // whose place the newer one gets; or the new one, where `active` has one: the requests being
  // served, and the resumes whose programs still run.
  std::optional<Request> add(Request request, const std::vector<const Request*>& active);

  // The oldest request of the user with the fewest among those being served. A user who has
  // `most_of_one_user` of them waits, so that a directory that hangs does not hold up the others,
  // and so does one of whom `per_minute` were returned in the last minute.
  std::optional<Request> next(const std::vector<const Request*>& being_served,
                              std::int64_t most_of_one_user, SteadyTime now);
  // It was returned by next() and cannot be served yet.
  void put_back(Request request);

 private:
  struct Allowance {
    double requests = 0;
    SteadyTime at;
  };
  double allowed(uid_t uid, SteadyTime now) const;

  double per_minute_;
  std::ptrdiff_t most_waiting_;
  std::deque<Request> waiting_;
  std::map<uid_t, Allowance> allowances_;
};

}  // namespace scriptorium::checkpoint
