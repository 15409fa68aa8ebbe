#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/api/logger.h"
#include "core/base/result.h"
#include "core/base/time.h"
#include "core/query/stores.h"
#include "core/serve/caller.h"
#include "core/serve/protocol.h"

namespace scriptorium::serve {

// What a question is answered with, and for how long.
struct AnswerContext {
  const std::vector<query::Store>& stores;
  const Caller& caller;
  const std::function<Result<void>(const Logger::Fields&)>& record;  // before anything is sent
  std::function<Result<void>(const Reply&)> send;  // fails once the client is gone
  std::stop_token stop;  // requested at the deadline, and when the client is gone
  SteadyTime deadline;
};

// Asks the store on the caller's behalf and sends the items; the last message, kEnd or kError, is
// returned. Threads: any.
Reply answer(const Ask& ask, const AnswerContext& context);

}  // namespace scriptorium::serve
