#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/api/spool_adapter.h"
#include "core/base/result.h"

// How we ask squeue, and what its answers mean; pure functions.
//
// Job names, accounts, comments and directories are free bytes that users write, newlines included.
// A row therefore begins with numbers only, from which owner, ids and times come, and each text in
// it ends with a guard of 128 random bits that is new for each question: nobody can write the
// beginning of a row.
namespace scriptorium::slurm {

// A row, of squeue or of accounting. What Slurm prints as "(null)" or leaves empty is absent.
struct QueueRow {
  std::uint64_t job_id = 0;
  std::uint64_t array_job_id =
      0;  // equal to job_id for an ordinary job, and for what an array still has pending
  std::string tasks;  // "0-99%10", or the number of a started task; "" = not an array
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::optional<std::int64_t> submitted;  // seconds since 1970; a requeue sets it again
  std::optional<std::uint64_t> het_job_id;
  std::optional<std::uint32_t> het_component;
  std::uint64_t restarts = 0;
  std::string state;   // "PD", "R", ...
  bool batch = false;  // it has a script
  std::optional<std::string> account, qos, partition, work_dir, name;
};

// Arguments of squeue; `job` = only this one, else all of them. slurmctld answers quickly about one
// job; for a list of them squeue would load all jobs and pick.
std::vector<std::string> queue_arguments(const std::optional<std::string>& job);
// The format; see slurm_client::squeue_environment().
std::string queue_format(std::string_view guard);

// Refuses the whole answer for one field that is not as it must be: kTransient.
Result<std::vector<QueueRow>> parse_queue(std::string_view answer, std::string_view guard);

// An array has one entry, under its own number; each of its tasks gets a number when it starts.
NumberUse use_of(const QueueRow& row);

// The rows of each id that was asked for; borrows them.
class RowsById {
 public:
  RowsById() = default;
  RowsById(const std::vector<QueueRow>& all, const std::set<std::uint64_t>& wanted);
  const std::vector<const QueueRow*>& of(std::uint64_t id) const;

 private:
  using Rows = std::unordered_map<std::uint64_t, std::vector<const QueueRow*>>;
  Rows rows_;
  Rows tasks_;
};

// The number that an event's job id is; nothing if it is none.
std::optional<std::uint64_t> job_number(std::string_view id) noexcept;

// The entry that waits for its owner.
struct EntryIdentity {
  std::uint64_t job_id = 0;
  std::int64_t script_mtime_ns = 0;
  bool unchanged = false;      // the spool still held this very entry after the answer
  bool id_came_again = false;  // a later entry of the same id is known, so the times may not decide
  bool stub = false;           // its script has the shape of is_het_stub()
};

// True if two entries of one id came so near to each other that the submit time of one may be the
// other's.
bool times_are_alike(std::int64_t script_mtime_ns, std::int64_t other_mtime_ns) noexcept;
// Why such an entry stays without an owner for good: accounting knows no more than the times
// either.
inline constexpr const char* kIdCameAgain =
    "slurmctld gave the job's id to another job at once, so that nothing tells whose the first one "
    "was";

// Does the row speak of this very entry, and not of another job that had or got the same id?
bool belongs(const QueueRow& row, const EntryIdentity& entry) noexcept;

// The answer for one entry from the rows that bear its id, without names of user and group (which
// the passwd and group databases know). No row at all, or none that belongs: kUnknown.
OwnerAnswer make_answer(const std::vector<const QueueRow*>& rows, const EntryIdentity& entry);

}  // namespace scriptorium::slurm
