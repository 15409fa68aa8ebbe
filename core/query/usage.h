#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/api/event.h"
#include "core/api/searchable.h"
#include "core/base/result.h"
#include "core/query/stores.h"

namespace scriptorium::query {

// What the jobs that match a query used: their events usage.job and usage.node.
struct UsagePage {
  std::vector<std::shared_ptr<const Event>> events;  // job by job, the newest job first
  std::string next;      // "": there is nothing more, otherwise for Request::after
  bool finished = true;  // false: deadline or stop came first; `next` continues
  std::vector<std::string> problems;
};

// A store that is asked for a page in one question, as it is far away.
// Threads: as Searchable.
class UsageReader {
 public:
  UsageReader() = default;
  UsageReader(const UsageReader&) = delete;
  UsageReader& operator=(const UsageReader&) = delete;
  virtual ~UsageReader() = default;

  // Errors as of Searchable::search().
  virtual Result<UsagePage> usage(const Searchable::Request& request) = 0;
};

// The use of the next `request.limit` jobs that match. Errors as of Searchable::search(); what a
// plugin throws is kPermanent. If `jobs` is not null, the jobs that were looked at are added to it.
Result<UsagePage> usage_page(const Store& store, const Searchable::Request& request,
                             std::vector<JobRow>* jobs = nullptr);

}  // namespace scriptorium::query
