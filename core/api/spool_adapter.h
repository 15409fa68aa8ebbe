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

#include "core/api/event.h"
#include "core/api/logger.h"
#include "core/api/plugin_context.h"
#include "core/base/file.h"
#include "core/base/result.h"

namespace scriptorium {

// What a path below the spool's root is, as its name alone tells.
struct SpoolPath {
  enum class Role {
    kForeign,    // not ours; never opened
    kDirectory,  // a directory that holds entries: watched and listed (the root itself always is)
    kEntryDirectory,  // the directory of one entry: listed, and watched while the entry is
                      // incomplete
    kEntryFile,       // a file of an entry
    // A file that tells about an entry and is written again throughout the job's life, such as
    // Torque's job record. While empty it is not there yet; alone it is not a job that could be
    // missed; once the entry is taken, it is left alone.
    kEntryRecord,
  };
  bool is_file() const noexcept { return role == Role::kEntryFile || role == Role::kEntryRecord; }
  Role role = Role::kForeign;
  std::string_view
      entry;  // what ties an entry's files together, such as "hash.1/job.11"; a view into the path
  std::string_view
      file;  // the file's name within its entry, such as "script"; a view into the path
};

// A file of an entry with the bytes that were read of it.
struct SpoolFile {
  std::string name;
  FileStat stat;
  Bytes bytes;
  bool truncated = false;  // it is larger than max_file_bytes; `bytes` is its beginning
};

// All that is known of one entry at one moment. Files are in no particular order.
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

// Is an entry whole?
struct Assessment {
  enum class State {
    kIncomplete,  // more must come: wait for events, look again, give up at
                  // incomplete_after_seconds
    kComplete,    // take it now
    kSettling,    // may be whole; take it if nothing changes for `settle`
    kDoubtful,    // may lack its end, and nothing will ever tell: take it as incomplete if nothing
                  // changes for `settle`
    kDuplicate,   // a hard link to the script of another entry: taken only if that one was never
                  // captured
    kIgnore,      // nothing to archive (an interactive job): counted, not an error
  };
  State state = State::kIncomplete;
  std::chrono::milliseconds settle{0};
  std::string_view reason;  // for kIncomplete and kIgnore: a constant, counted in status
};

// What an adapter makes of an entry. Core adds id, hashes, times, cluster and host, and redacts.
struct ParsedJob {
  Job job;
  User user;  // only what the scheduler itself wrote; `verified` only if nobody else could have
              // written it
  std::string script_file = "script";  // whose modification time is the event's `time`, and whose
                                       // identity marks the entry
  Bytes script;                        // null: the entry has none
  ScriptInfo script_info;
  Bytes environment;  // null: none
  EnvironmentFormat environment_format = EnvironmentFormat::kNone;
  // The scheduler's list of variables does not tell for certain where one ends, so a site's choice
  // of variables cannot be applied to it: core then keeps all of it where the site keeps
  // everything, and else nothing.
  bool environment_guessed = false;
  std::vector<EventFile> more_files;   // name and bytes only
  std::vector<std::string> problems;   // in words; each makes the event countable as malformed
  std::vector<EventFile> mixed_files;  // as more_files; variables are in them among other things,
                                       // so as environment_guessed
  std::string extra_json;              // becomes the event's; "" = none
};

// What the scheduler says of a job, by a way that users cannot forge.
struct OwnerAnswer {
  enum class State {
    kFound,     // take it
    kNotYet,    // asked, and not named: ask again, until resolve_timeout_seconds
    kUnknown,   // the scheduler knows no such job (any more): goes out unverified at once
    kNotAsked,  // no question was about it this time, to spare the scheduler: it waits, whatever
                // resolve_timeout_seconds says
  };
  State state = State::kNotYet;
  User user;  // not verified: `unverified_reason` may say why, with kUnknown too, in words that are
              // the same for every job
  std::optional<std::string> name, account, partition, qos, work_dir;
  std::optional<JobArray> array;
  std::optional<HetJob> het;
  std::optional<Timestamp> submitted_at;
};

struct OwnerQuery {
  const Event* event = nullptr;
  std::int64_t script_mtime_ns = 0;
  // True if the spool entry still is the one that was captured (same inode and modification time).
  // To be asked *after* the scheduler's answer: a scheduler that uses an id again would else lend
  // one job the other's owner.
  std::function<bool()> entry_unchanged;
  SteadyTime since;  // captured before this moment: what was asked later is about this job
};

// What our questions cost the scheduler.
struct SchedulerLoad {
  std::map<std::string, std::uint64_t> questions;  // by kind, since the start
  double share = 0;  // of its time, in the last minutes, that went into our answers; an upper bound
};

// Asks the scheduler who owns jobs. Core calls it from one thread, with all new jobs at once, and
// not more often than every min_interval().
class OwnerResolver {
 public:
  virtual ~OwnerResolver() = default;
  virtual std::chrono::milliseconds min_interval() const { return std::chrono::seconds{1}; }
  // From any thread. Nothing in `questions`: not counted.
  virtual SchedulerLoad load() const { return {}; }
  // One answer for each query, in order. An error means that the scheduler cannot be asked now:
  // core counts its message in status and asks again. Must return soon after `stop`, and by
  // `deadline` in any case.
  virtual Result<std::vector<OwnerAnswer>> resolve(std::span<const OwnerQuery> queries,
                                                   std::stop_token stop, SteadyTime deadline) = 0;
  // For `scriptorium check`: can the scheduler be asked, and may we see other users' jobs?
  virtual Result<void> check() { return {}; }
};

// Asks whose jobs were that went out unverified, minutes or days ago: the scheduler, and then what
// keeps account of its jobs. Core calls it from a thread of its own, rarely, with some hundred
// queries at most, whose `entry_unchanged` is null.
//
// An answer is kFound with a verified user, kUnknown (all that could be asked were, and no job
// fits: asked again much later, as accounting may come late), or kNotAsked (not now). Only `user`
// is looked at.
class LateOwnerResolver {
 public:
  virtual ~LateOwnerResolver() = default;
  // As OwnerResolver::resolve(). An error means that nobody can be asked now.
  virtual Result<std::vector<OwnerAnswer>> resolve(std::span<const OwnerQuery> queries,
                                                   std::stop_token stop, SteadyTime deadline) = 0;
};

// Where the configuration does not fit the scheduler's.
struct Mismatch {
  bool wrong = false;  // it cannot work so; else it may be meant, and is only said
  std::string text;    // what was found, and what to do
};

// What the scheduler did with a job number that it has given out.
struct NumberUse {
  enum class Kind {
    kOwnEntry,       // a job with a script: the spool has or had an entry for it
    kWithoutScript,  // a job without one, such as Slurm's srun and salloc
    kPartOfAnother,  // a part of a job whose entry bears another number, such as one task of an
                     // array
  };
  std::uint64_t number = 0;
  Kind kind = Kind::kOwnEntry;
};

// Asks the scheduler which job numbers it has given out, so that one that never came into the spool
// can be told from one that had no script. Core calls it from a thread of its own, rarely.
class NumberResolver {
 public:
  virtual ~NumberResolver() = default;
  struct Question {
    std::vector<std::uint64_t>
        numbers;       // what is asked about; empty: every number that the scheduler still knows
    SteadyTime since;  // an answer to anybody that was asked for later will do
  };
  // In no particular order, and others may be among them. Nothing: not now, to spare the scheduler.
  // Must return soon after `stop`, and by `deadline` in any case. An error means that the scheduler
  // cannot be asked now.
  virtual Result<std::optional<std::vector<NumberUse>>> numbers(const Question& question,
                                                                std::stop_token stop,
                                                                SteadyTime deadline) = 0;
};

// A scheduler that leaves its jobs in a spool directory: pure functions that say which files belong
// to which job, when they are complete and what event they make. Core does all the watching,
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

  // Null: there is nobody to ask, or the config forbids it; events then go out as parse() made
  // them.
  virtual std::unique_ptr<OwnerResolver> make_resolver() { return nullptr; }

  // Null: nobody can say afterwards whose a job was. From the main thread, once.
  virtual std::unique_ptr<LateOwnerResolver> make_late_owner_resolver() { return nullptr; }

  // For start-up and `scriptorium check`: is this the spool of such a scheduler? `names` are the
  // root's entries. kInvalidConfig with words that help refuses to start.
  virtual Result<void> check_root(std::span<const std::string> names) const {
    static_cast<void>(names);
    return {};
  }

  // The job number of an entry, for a scheduler that counts its jobs up one by one: core then tells
  // of numbers that were passed over. Nothing: this one does not count so.
  virtual std::optional<std::uint64_t> number_of(std::string_view entry) const {
    static_cast<void>(entry);
    return std::nullopt;
  }
  // Null: there is nobody to ask what became of a number. From the main thread, once.
  virtual std::unique_ptr<NumberResolver> make_number_resolver() const { return nullptr; }

  // For `scriptorium check`: what of the configuration does not fit what the scheduler says of
  // itself. Core has compared nothing yet; `cluster` is in the PluginContext. Must return by
  // `deadline`.
  virtual std::vector<Mismatch> compare_with_scheduler(const std::stop_token& stop,
                                                       SteadyTime deadline) const {
    static_cast<void>(stop);
    static_cast<void>(deadline);
    return {};
  }
  // For `scriptorium show`: under which other ids the script of this job may have been kept,
  // likeliest first. An array has one script for all its tasks, so a task's is kept under the
  // array's id. May ask the scheduler; must return by `deadline`.
  virtual std::vector<std::string> kept_under(std::string_view job_id, const std::stop_token& stop,
                                              SteadyTime deadline) const {
    static_cast<void>(job_id);
    static_cast<void>(stop);
    static_cast<void>(deadline);
    return {};
  }
};

}  // namespace scriptorium
