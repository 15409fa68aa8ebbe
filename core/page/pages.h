#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/api/logger.h"
#include "core/base/result.h"
#include "core/base/time.h"
#include "core/page/request.h"
#include "core/query/stores.h"
#include "core/serve/caller.h"

namespace scriptorium::page {

// What a page is made from, and for how long.
struct Context {
  const std::vector<query::Store>& stores;
  // kPermanent: nobody has this login.
  const std::function<Result<serve::Caller>(const std::string& login)>& find_caller;
  const std::function<Result<void>(const Logger::Fields&)>& record;  // before anything is answered
  std::stop_token stop;
  SteadyTime deadline;
};

// The page for a request of somebody who was admitted. What that person may not see looks like what
// does not exist. Threads: any.
Response answer(const Request& request, const Context& context);

}  // namespace scriptorium::page
