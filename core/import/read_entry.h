#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/api/spool_adapter.h"
#include "core/capture/assemble.h"
#include "core/import/tree_path.h"

// What another archiver's files say of a job, as pure functions on their bytes.
namespace scriptorium::import {

// One job of a tree: the files of one TreePath::entry. `script` and `environment` bear those names.
struct TreeJob {
  TreePath path;
  SpoolFile script;
  std::optional<SpoolFile> environment;
};

// An event as capture would have made it of the same job, with these differences:
// - `time`, and with it the id, comes from the modification time of the script file in the tree. If
//   that is not on the date of its folder (a tree copied without its times), it comes from the
//   folder.
// - user.verified is false, whatever the tree says: no archiver asked the scheduler.
// - `capture` is "import".
// A script without the end that its archiver would have copied is not `complete`. `problems` lists
// what the tree leaves uncertain. Pure.
Event make_event(TreeFormat format, TreeJob job, const EventOrigin& origin,
                 const EnvironmentRule& rule, Timestamp now);

// The same for files whose names the scheduler's own adapter knows (Torque's .SC and .JB, which
// SArchive keeps as they are). The error is the adapter's.
Result<Event> make_event(const SpoolAdapter& adapter, SpoolEntry entry,
                         std::optional<Period> period, const EventOrigin& origin,
                         const EnvironmentRule& rule, Timestamp now);

// An environment as its archiver wrote it, with what is known of it.
struct ReadEnvironment {
  std::string bytes;  // NUL-ended strings, or untouched
  EnvironmentFormat format = EnvironmentFormat::kNulEnded;
  bool guessed = false;      // where a variable ends is not certain
  bool spool_bytes = false;  // the scheduler's own bytes
  std::string problem;       // "" = none
};
ReadEnvironment read_environment(TreeFormat format, std::string_view bytes);

// The time of a job: `mtime_ns` if it is of the period or a day near it (folders are named in local
// time), else the period's begin.
std::int64_t job_time(std::int64_t mtime_ns, const std::optional<Period>& period) noexcept;

}  // namespace scriptorium::import
