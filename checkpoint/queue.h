#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "checkpoint/work.h"
#include "core/base/time.h"

namespace scriptorium::checkpoint {

// What of the requests is served, and which is next. Pure: time is an argument.
class RequestQueue {
 public:
  RequestQueue(std::int64_t per_minute, std::size_t most_waiting)
      : per_minute_(static_cast<double>(per_minute)), most_waiting_(most_waiting) {}

  enum class Added : std::uint8_t {
    kYes,
    kTooMany,     // of this user in this minute, or at all
    kIsRepeated,  // the same job's request of this kind waits or is being served
  };
  // `active`: the requests being served, and the resumes whose programs still run.
  Added add(Request request, const std::vector<const Request*>& active, SteadyTime now);

  // The oldest request of the user with the fewest among those being served. A user who has
  // `most_of_one_user` of them waits, so that a directory that hangs does not hold up the others.
  std::optional<Request> next(const std::vector<const Request*>& being_served,
                              std::int64_t most_of_one_user);

 private:
  struct Allowance {
    double requests = 0;
    SteadyTime at;
  };
  bool is_allowed(uid_t uid, SteadyTime now);

  double per_minute_;
  std::size_t most_waiting_;
  std::deque<Request> waiting_;
  std::map<uid_t, Allowance> allowances_;
};

}  // namespace scriptorium::checkpoint
