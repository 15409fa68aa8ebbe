#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/coordinators.h"
#include "core/api/event.h"
#include "core/api/logger.h"
#include "core/api/plugin_context.h"
#include "core/base/file.h"
#include "core/base/result.h"

namespace scriptorium {

// The role of a path below the spool's root, derived from its name alone.
struct SpoolPath {
  enum class Role {
    kForeign,    // not ours; never opened
    kDirectory,  // a directory that holds entries: watched and listed (the root itself always is)
    kEntryDirectory,  // the directory of one entry: listed, and watched while the entry is
                      // incomplete
    kEntryFile,       // a file of an entry
    // A file that describes an entry and is rewritten throughout the job's life, such as Torque's
    // job record. While empty it counts as missing; on its own it does not make a job that could be
    // missed; once the entry is taken, it is no longer read.
    kEntryRecord,
  };
  bool is_file() const noexcept { return role == Role::kEntryFile || role == Role::kEntryRecord; }
  Role role = Role::kForeign;
  std::string_view
      entry;  // the key that an entry's files share, such as "hash.1/job.11"; a view into the path
  std::string_view
      file;  // the file's name within its entry, such as "script"; a view into the path
};

// A file of an entry with the bytes that were read from it.
struct SpoolFile {
  std::string name;
  FileStat stat;
  Bytes bytes;
  bool truncated = false;  // it is larger than max_file_bytes; `bytes` is its beginning
};

// A snapshot of one entry. Files are in no particular order.
struct SpoolEntry {
  std::string key;
  std::vector<SpoolFile> files;

  const SpoolFile* file(std::string_view name) const noexcept {
    for (const SpoolFile& f : files) {
      if (f.name == name) return &f;
    }
    return nullptr;
  }
};

// Whether an entry is complete.
struct Assessment {
  enum class State {
    kIncomplete,  // something is missing: wait for notifications, inspect again, give up after
                  // incomplete_after_seconds
    kComplete,    // take it now
    kSettling,    // may be complete; take it if nothing changes for `settle`
    kDoubtful,    // may lack its end, which cannot be determined: take it as incomplete if nothing
                  // changes for `settle`
    kDuplicate,   // a hard link to the script of another entry: taken only if that one was never
                  // captured
    kIgnore,      // nothing to archive (an interactive job): counted, not an error
  };
  State state = State::kIncomplete;
  std::chrono::milliseconds settle{0};
  std::string_view reason;  // for kIncomplete and kIgnore: a constant, counted in status
};

// The result of parsing an entry. Core adds id, hashes, times, cluster and host, and redacts.
struct ParsedJob {
  Job job;
  User user;  // only what the scheduler wrote; `verified` only if nobody else could have written it
  std::string script_file =
      "script";  // its modification time is the event's `time`, and its identity marks the entry
  Bytes script;  // null: the entry has none
  ScriptInfo script_info;
  Bytes environment;  // null: none
  EnvironmentFormat environment_format = EnvironmentFormat::kNone;
  // The end of a variable in the scheduler's list is ambiguous, so a site's rules for variables
  // cannot be applied. Core then keeps the whole environment if the site keeps everything, and
  // otherwise nothing.
  bool environment_guessed = false;
  std::vector<EventFile> more_files;   // name and bytes only
  std::vector<std::string> problems;   // an event with a problem is counted as malformed
  std::vector<EventFile> mixed_files;  // like more_files, but they also contain variables, so the
                                       // rule of environment_guessed applies
  std::string extra_json;              // becomes the event's; "" = none
};

// The scheduler's answer about a job, through a channel that users cannot forge.
struct OwnerAnswer {
  enum class State {
    kFound,     // take it
    kNotYet,    // asked, but no owner yet: ask again, until resolve_timeout_seconds
    kUnknown,   // the scheduler does not know the job, or no longer: the event goes out unverified
                // at once
    kNotAsked,  // not included in this query, to spare the scheduler: the event waits, even beyond
                // resolve_timeout_seconds
  };
  State state = State::kNotYet;
  User user;  // if not verified, `unverified_reason` may say why, also with kUnknown; the same text
              // for every job
  std::optional<std::string> name, account, partition, qos, work_dir;
  std::optional<JobArray> array;
  std::optional<HetJob> het;
  std::optional<Timestamp> submitted_at;
};

struct OwnerQuery {
  const Event* event = nullptr;
  std::int64_t script_mtime_ns = 0;
  // True if the spool entry still is the captured one (same inode and modification time). Call it
  // *after* the scheduler's answer: otherwise, if the scheduler reuses an id, one job could get the
  // other's owner.
  std::function<bool()> entry_unchanged;
  SteadyTime since;  // the job was captured before this time, so an answer requested later is about
                     // this job
};

// The load that our queries cause.
struct SchedulerLoad {
  std::map<std::string, std::uint64_t> questions;  // by kind, since the start
  double share = 0;  // fraction of the scheduler's time spent on our queries in the last minutes;
                     // an upper bound
};

// Asks the scheduler who owns jobs. Core calls it from one thread, with all new jobs at once, at
// most once per min_interval().
class OwnerResolver {
 public:
  virtual ~OwnerResolver() = default;
  virtual std::chrono::milliseconds min_interval() const { return std::chrono::seconds{1}; }
  // From any thread. Empty `questions`: not counted.
  virtual SchedulerLoad load() const { return {}; }
  // One answer for each query, in order. An error means that the scheduler cannot be reached now:
  // core counts its message in status and asks again. Must return soon after `stop`, and by
  // `deadline` in any case.
  virtual Result<std::vector<OwnerAnswer>> resolve(std::span<const OwnerQuery> queries,
                                                   std::stop_token stop, SteadyTime deadline) = 0;
  // For `scriptorium check`: can the scheduler be asked, and may we see other users' jobs?
  virtual Result<void> check() { return {}; }
};

// Finds the owners of jobs that went out unverified minutes or days ago. It asks the scheduler,
// then its accounting. Core calls it rarely, from a separate thread, with a thousand queries at
// most, whose `entry_unchanged` is null.
//
// An answer is kFound with a verified user, kUnknown (everything available was asked and no job
// fits; core asks again much later, because accounting may lag), or kNotAsked (not now). Core reads
// only `user`.
class LateOwnerResolver {
 public:
  virtual ~LateOwnerResolver() = default;
  // As OwnerResolver::resolve(). An error means that neither can be reached now.
  virtual Result<std::vector<OwnerAnswer>> resolve(std::span<const OwnerQuery> queries,
                                                   std::stop_token stop, SteadyTime deadline) = 0;
};

// A difference between the configuration and the scheduler's.
struct Mismatch {
  bool wrong = false;  // it cannot work; otherwise it may be intended and is only reported
  std::string text;    // what was found and what to do
};

// How the scheduler used a job number that it assigned.
struct NumberUse {
  enum class Kind {
    kOwnEntry,       // a job with a script: the spool has or had an entry for it
    kWithoutScript,  // a job without a script, such as Slurm's srun and salloc
    kPartOfAnother,  // part of a job whose entry has another number, such as one task of an array
  };
  std::uint64_t number = 0;
  Kind kind = Kind::kOwnEntry;
};

// Asks the scheduler which job numbers it has assigned, to distinguish a job that never appeared in
// the spool from one without a script. Core calls it rarely, from a separate thread.
class NumberResolver {
 public:
  virtual ~NumberResolver() = default;
  struct Question {
    std::vector<std::uint64_t>
        numbers;  // the numbers in question; empty: every number that the scheduler still knows
    SteadyTime since;  // an answer to any query made after this time is recent enough
  };
  // In no particular order; may include other numbers. Empty optional: not now, to spare the
  // scheduler. Must return soon after `stop`, and by `deadline` in any case. An error means that
  // the scheduler cannot be reached now.
  virtual Result<std::optional<std::vector<NumberUse>>> numbers(const Question& question,
                                                                std::stop_token stop,
                                                                SteadyTime deadline) = 0;
};

// A scheduler that leaves its jobs in a spool directory: pure functions that determine which files
// belong to which job, when they are complete and which event they become. Core does all watching,
// reading and counting.
//
// Threads: core's capture thread calls the const functions; classify(), path_of() and file_names()
//          may be called from any thread; make_resolver() once, from the main thread.
class SpoolAdapter {
 public:
  SpoolAdapter() = default;
  SpoolAdapter(const SpoolAdapter&) = delete;
  SpoolAdapter& operator=(const SpoolAdapter&) = delete;
  virtual ~SpoolAdapter() = default;

  virtual std::string scheduler() const = 0;   // "slurm": the event's `scheduler`
  virtual std::string spool_root() const = 0;  // the directory to watch; may be a symbolic link

  // `path` is relative to the root, without a leading '/': "hash.1/job.11/script".
  virtual SpoolPath classify(std::string_view path) const = 0;
  virtual Assessment assess(const SpoolEntry& entry) const = 0;
  // Also for an incomplete entry, at incomplete_after_seconds. An error drops the entry, counted
  // under its message; kVanished says that there is no job to archive, and is not logged.
  virtual Result<ParsedJob> parse(const SpoolEntry& entry) const = 0;

  // The path of an entry's file relative to the root; the inverse of classify().
  virtual std::string path_of(std::string_view entry, std::string_view file) const {
    return std::string(entry).append("/").append(file);
  }
  // For a spool without a directory for each entry: the names that files of an entry can have, so
  // that core asks path_of() for these instead of listing a directory that holds all jobs. Empty:
  // list it.
  virtual std::span<const std::string_view> file_names() const { return {}; }

  // Null: the scheduler cannot be asked, or the configuration forbids it; events then go out as
  // parse() made them.
  virtual std::unique_ptr<OwnerResolver> make_resolver() { return nullptr; }

  // Null: owners cannot be found afterwards. Called once, from the main thread.
  virtual std::unique_ptr<LateOwnerResolver> make_late_owner_resolver() { return nullptr; }

  // For start-up and `scriptorium check`: is this a spool of this scheduler? `names` are the root's
  // entries. kInvalidConfig, with a remedy in its message, prevents the start.
  virtual Result<void> check_root(std::span<const std::string> names) const {
    static_cast<void>(names);
    return {};
  }

  // The job number of an entry, for a scheduler that numbers jobs consecutively; core then reports
  // skipped numbers. Nothing: this scheduler does not.
  virtual std::optional<std::uint64_t> number_of(std::string_view entry) const {
    static_cast<void>(entry);
    return std::nullopt;
  }
  // Null: the scheduler cannot be asked about numbers. Called once, from the main thread.
  virtual std::unique_ptr<NumberResolver> make_number_resolver() const { return nullptr; }

  // For `scriptorium check`: differences between our configuration and the scheduler's. Core itself
  // compares nothing; `cluster` is in the PluginContext. Must return by `deadline`.
  virtual std::vector<Mismatch> compare_with_scheduler(const std::stop_token& stop,
                                                       SteadyTime deadline) const {
    static_cast<void>(stop);
    static_cast<void>(deadline);
    return {};
  }
  // For `scriptorium show`: other ids under which the script of this job may be stored, most likely
  // first. An array has one script for all tasks, so a task's script is stored under the array's
  // id. May ask the scheduler; must return by `deadline`.
  virtual std::vector<std::string> kept_under(std::string_view job_id, const std::stop_token& stop,
                                              SteadyTime deadline) const {
    static_cast<void>(job_id);
    static_cast<void>(stop);
    static_cast<void>(deadline);
    return {};
  }
  // The accounts that have coordinators. kTransient: the scheduler cannot be asked now. Called by a
  // thread of its own, beside all others. Must return soon after `stop`, and by `deadline` in any
  // case.
  virtual Result<KnownCoordinators> coordinators(const std::stop_token& stop,
                                                 SteadyTime deadline) const {
    static_cast<void>(stop);
    static_cast<void>(deadline);
    return KnownCoordinators{};
  }
};

}  // namespace scriptorium
