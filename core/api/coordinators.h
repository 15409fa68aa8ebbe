#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/time.h"

namespace scriptorium {

// Users who answer for all jobs of an account, as the scheduler's administrators have it.
struct AccountCoordinators {
  std::string account;
  std::vector<std::string> users;  // logins; also those of the accounts above this one
};

// Those of a scheduler; nothing if it knows no such users, or may not be asked.
using KnownCoordinators = std::optional<std::vector<AccountCoordinators>>;

// All of a cluster's, and when its scheduler was asked.
struct CoordinatorList {
  std::string cluster;
  Timestamp asked_at;
  std::vector<AccountCoordinators> accounts;
};

}  // namespace scriptorium
