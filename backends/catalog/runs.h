#pragma once

#include <cstdint>
#include <functional>

#include "backends/catalog/search_pool.h"
#include "core/api/searchable.h"
#include "core/base/time.h"

namespace scriptorium::catalog {

// Searchable::runs(), without reading a record that is not asked for. A segment that cannot be read
// is left out, which the answer says.
Result<Searchable::RunAnswer> read_runs(ReaderPool& pool, const Clock& clock,
                                        const Searchable::RunRequest& request,
                                        const std::function<void(const JobRun&)>& use);

// Searchable::sums(). For a reader who sees all jobs from the tables of sums.h: only of the days
// (for rows without a name, the quarters of an hour) in which a period begins or ends, runs are
// read.
Result<Searchable::RunAnswer> read_sums(ReaderPool& pool, const Clock& clock,
                                        const Searchable::SumRequest& request,
                                        const std::function<void(const RunSumRow&)>& use);

// Searchable::unfinished(). Fails if a segment cannot be read, or is being rewritten: the count
// would be wrong.
Result<std::uint64_t> count_unfinished(ReaderPool& pool, Timestamp from, Timestamp until,
                                       const Visibility& visibility);

}  // namespace scriptorium::catalog
