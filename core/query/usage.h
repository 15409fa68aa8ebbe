#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/api/event.h"
#include "core/api/searchable.h"
#include "core/base/result.h"
#include "core/base/time.h"
#include "core/query/stores.h"

namespace scriptorium::query {

// What the jobs that match a query used: their events usage.job and usage.node.
struct UsagePage {
  struct Use {
    std::shared_ptr<const Event> event;
    std::optional<std::uint64_t> family;  // of its job
  };
  std::vector<Use> uses;  // job by job, the newest job first
  std::string next;       // "": there is nothing more, otherwise for Request::after
  bool finished = true;   // false: deadline or stop came first; `next` continues
  std::vector<std::string> problems;
};

// The use of the next `request.limit` jobs that match. Errors as of Searchable::search(); what a
// plugin throws is kPermanent.
Result<UsagePage> usage_page(const Store& store, const Searchable::Request& request);

// How many jobs of `user`, of all users if that is empty, were submitted at `from` or later and
// before `until`, and have no known end. Nothing if no store can say so before the deadline.
std::optional<std::uint64_t> unfinished_jobs(const std::vector<Store>& stores, Timestamp from,
                                             Timestamp until, const std::string& user,
                                             std::stop_token stop,
                                             SteadyTime deadline = SteadyTime::max());

// Of a usage event's document, as event_json() has it, what reports read: whose it is, job.array
// and what the event brings itself. Null if that is not JSON.
nlohmann::ordered_json usage_document(const Event& event);

}  // namespace scriptorium::query
