#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backends/catalog/search_pool.h"
#include "core/api/searchable.h"

namespace scriptorium::catalog {

// Searchable::runs(), without reading a record. A segment that cannot be read is left out, which
// the answer says.
Result<std::vector<std::string>> read_runs(ReaderPool& pool, const Searchable::RunRequest& request,
                                           const std::function<void(const JobRun&)>& use);

}  // namespace scriptorium::catalog
