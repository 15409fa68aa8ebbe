#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/api/spool_adapter.h"
#include "core/capture/assemble.h"
#include "core/import/tree_path.h"
#include "core/redact/redactor.h"

// Reads another archiver's files of a job. Pure functions on their bytes.
namespace scriptorium::import {

// One job of a tree: the files of one TreePath::entry. The files `script` and `environment` have
// these names.
struct TreeJob {
  TreePath path;
  SpoolFile script;
  std::optional<SpoolFile> environment;
};

// A job as it is to be kept, and the id that its event would have if nothing were removed from it.
struct ReadJob {
  Event event;
  std::string original_id;
};

// The event that capture would have made of the same job, with these differences:
// - `time`, and with it the id, comes from the modification time of the script file in the tree. If
//   that is not on the date of its folder (a tree copied without its times), it comes from the
//   folder.
// - user.verified is false, whatever the tree says: no archiver asked the scheduler.
// - `capture` is "import".
// A script without the end that its archiver would have copied is not `complete`. `problems` lists
// what the tree leaves uncertain. An error only if the job cannot be redacted. Pure.
Result<ReadJob> make_event(TreeFormat format, TreeJob job, const EventOrigin& origin,
                           const redact::Redactor& redactor, Timestamp now);

// The same for files with the scheduler's own names, which its adapter parses (Torque's .SC and
// .JB, which SArchive copies). The error comes from the adapter.
Result<ReadJob> make_event(const SpoolAdapter& adapter, SpoolEntry entry,
                           std::optional<Period> period, const EventOrigin& origin,
                           const redact::Redactor& redactor, Timestamp now);

// An environment as its archiver wrote it.
struct ReadEnvironment {
  std::string bytes;  // NUL-ended strings, or the original bytes
  EnvironmentFormat format = EnvironmentFormat::kNulEnded;
  bool guessed = false;      // the ends of variables are ambiguous
  bool spool_bytes = false;  // the scheduler's own bytes
  std::string problem;       // "" = none
};
ReadEnvironment read_environment(TreeFormat format, std::string_view bytes);

// The time of a job: `mtime_ns` if it is within a day of the period (folders are named in local
// time), otherwise the start of the period.
std::int64_t job_time(std::int64_t mtime_ns, const std::optional<Period>& period) noexcept;

}  // namespace scriptorium::import
