#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/catalog/names.h"
#include "backends/catalog/schema.h"
#include "core/api/kit/sqlite/connection.h"
#include "core/api/query.h"
#include "core/base/result.h"

// A JobRow as rows of `jobs`, `outcomes` and `names` of one segment, and a JobRun as columns of
// `later`, so that sums over many runs need not read their records.
namespace scriptorium::catalog {

// A row of `jobs`, with its outcome.
struct JobEntry {
  std::int64_t id = 0;
  std::int64_t owner = 0;              // owners.id
  std::optional<std::int64_t> script;  // contents.id
  std::optional<std::int64_t> environment;
  std::optional<std::int64_t> record;  // of its job.script event
  JobRow row;
};

// Whether a row is a job: it has a submission, or an event that describes a run. Otherwise it has
// only readings of nodes, which do not say that their job is a task of an array: searches and sums
// leave such a row out.
inline bool is_job(const JobRow& row) {
  return !row.event_id.empty() || row.lives > 0 || row.runs > 0;
}
// The same of a row of `jobs`.
inline constexpr const char* kIsJob =
    "(event NOT NULL OR EXISTS (SELECT 1 FROM outcomes WHERE outcomes.job = jobs.id))";

// Whether no end of the job is known. A row that only a node's events made has no user.
inline bool is_unfinished(const JobRow& row) { return row.user && !row.ended_at; }
// The same of a row of `jobs`.
inline constexpr const char* kIsUnfinished =
    "(user NOT NULL AND NOT EXISTS (SELECT 1 FROM outcomes WHERE outcomes.job = jobs.id AND ended "
    "NOT NULL))";

// Reads rows. Names are cached, in bounded memory; see NameReader::forget().
// Threads: one at a time. Fails: as the connection, whose error is taken.
class RowReader {
 public:
  explicit RowReader(sqlite::Connection& db);

  Result<std::optional<JobRow>> read(std::int64_t job);
  Result<std::optional<JobEntry>> read_entry(std::int64_t job);
  // Jobs with first <= id < end in ascending order, until `use` returns false.
  Result<void> read_range(std::int64_t first, std::int64_t end,
                          const std::function<bool(JobEntry&&)>& use);
  // The ids of the jobs with this id of the scheduler, in no order.
  Result<std::vector<std::int64_t>> jobs_with_id(std::string_view job_id);
  NameReader& names() noexcept { return names_; }
  void forget() { names_.forget(); }

 private:
  bool take(sqlite::Statement& from, JobEntry& into);

  sqlite::Connection& db_;
  NameReader names_;
  sqlite::Statement one_;
  sqlite::Statement range_;
  sqlite::Statement with_job_;
};

// Writes rows within the caller's transaction. Errors stick to the connection.
// Threads: one at a time.
class RowWriter {
 public:
  RowWriter(sqlite::Connection& db, NameWriter& names);

  // Returns jobs.id; `entry.id` is not used. Writes no outcome if nothing is known of one.
  std::int64_t insert(const JobEntry& entry);
  void update(const JobEntry& entry);          // all columns of `jobs`, and the outcome
  void update_outcome(const JobEntry& entry);  // only that

 private:
  sqlite::Connection& db_;
  NameWriter& names_;
  sqlite::Statement insert_;
  sqlite::Statement update_;
  sqlite::Statement outcome_;
};

// The columns of a run, where they are in such a row, and how many they are.
inline constexpr const char* kRunColumns =
    "ended, user, owner, account, partition, core_seconds, unused_core_seconds, gpu_seconds, "
    "unused_gpu_seconds, nodes, findings, programs";
enum RunColumn : std::uint8_t {
  kRunEnded,
  kRunUser,
  kRunOwner,
  kRunAccount,
  kRunPartition,
  kRunCoreSeconds,
  kRunUnusedCoreSeconds,
  kRunGpuSeconds,
  kRunUnusedGpuSeconds,
  kRunNodes,
  kRunFindings,
  kRunPrograms,
  kRunColumnCount
};
static_assert(kRunColumnCount == 1 + std::ranges::count(std::string_view(kRunColumns), ','));
// Binds the next parameters in the order of kRunColumns; of no run, NULL.
void bind_run(sqlite::Statement& into, const std::optional<JobRun>& run, NameWriter& names);
// From columns in this order, the first of which is `first`; without modules. Nothing if there is
// none.
std::optional<JobRun> read_run(const sqlite::Statement& from, int first, NameReader& names);
// When it ended, what it had and did not use, and nothing else.
JobRun read_figures(const sqlite::Statement& from, int first);
// From the column kRunPrograms.
std::vector<JobRun::Program> programs_of(std::string_view text);
// `later.owner`: the id of this name of kNameOfOwner, negative if the user is not verified.
std::string owner_of_run(std::string_view cluster, const std::optional<std::string>& uid);
// What read_run() gives of a run that bind_run() was given.
JobRun as_stored(JobRun run);

// "?, ?, ?": a parameter for each of the columns "a, b, c".
std::string marks(std::string_view columns);

// How `jobs.job` holds an id: digits without leading zeros that fit in 63 bits as an integer,
// anything else as text.
std::optional<std::int64_t> job_number(std::string_view job_id) noexcept;

// Several texts as one name, and back. A newline within a text becomes a blank.
std::string join_lines(const std::vector<std::string>& items);
std::vector<std::string> split_lines(std::string_view joined);

}  // namespace scriptorium::catalog
