#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backends/catalog/names.h"
#include "backends/catalog/search_pool.h"
#include "core/api/kit/sqlite/connection.h"
#include "core/api/searchable.h"

// A JobRun as columns of `later`, so that sums over many runs need not read their records.
namespace scriptorium::catalog {

inline constexpr const char* kRunColumns =
    "ended, user, verified, account, partition, core_seconds, unused_core_seconds, gpu_seconds, "
    "unused_gpu_seconds, "
    "nodes, findings, programs";
inline constexpr const char* kRunMarks = "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?";

// Binds the next parameters in the order of kRunColumns; of no run, NULL.
void bind_run(sqlite::Statement& into, const std::optional<JobRun>& run, NameWriter& names);
// From columns in this order, the first of which is `first`; without modules. Nothing if there is
// none.
std::optional<JobRun> read_run(const sqlite::Statement& from, int first, NameReader& names);
// What read_run() gives of a run that bind_run() was given.
JobRun as_stored(JobRun run);

// Searchable::runs(). A segment that cannot be read is left out, which the answer says.
Result<std::vector<std::string>> read_runs(ReaderPool& pool, const Searchable::RunRequest& request,
                                           const std::function<void(const JobRun&)>& use);

}  // namespace scriptorium::catalog
