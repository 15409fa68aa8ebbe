#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/base/time.h"

namespace scriptorium {

// Immutable bytes, shared between the journal's cache, the queues and the sinks.
using Bytes = std::shared_ptr<const std::string>;
Bytes make_bytes(std::string bytes);

// One file that belongs to an event. `size` and `sha256` describe the bytes that we keep, so that a
// reader can check them.
struct EventFile {
  std::string name;  // "script", "environment", "record"; [a-z0-9_.-]
  std::uint64_t size = 0;
  std::string sha256;  // 64 hexadecimal digits
  Bytes bytes;         // null only in metadata read back without its bytes
};

struct JobArray {
  std::string job_id;
  std::optional<std::string> task_id;
  std::optional<std::string> task_spec;  // "0-99%10"
};

// Component of a heterogeneous (Slurm) job.
struct HetJob {
  std::string job_id;                      // of the leader
  std::optional<std::uint32_t> component;  // 0 = leader
  bool synthetic = false;  // the scheduler made this script up; the leader's holds the user's
};

struct Job {
  std::string id;  // the scheduler's, as its users type it
  std::optional<std::string> name;
  std::optional<JobArray> array;
  std::optional<HetJob> het;
  std::optional<std::string> account;
  std::optional<std::string> partition;
  std::optional<std::string> qos;
  std::optional<Timestamp> submitted_at;
  std::optional<std::string> work_dir;
};

// Who owns the job. Only while `verified` is true may a sink use it for access rights: then it came
// from the scheduler itself, never from the job's environment, which its user writes.
struct User {
  std::optional<std::string> name;
  std::optional<std::string> id;  // uid, in digits
  std::optional<std::string> group_name;
  std::optional<std::string> group_id;
  bool verified = false;
  // Why not, in words that do not differ from job to job where the scheduler was asked. Absent if
  // he is verified, or if nobody was asked.
  std::optional<std::string> unverified_reason = std::nullopt;
};

// What is known of the job script beside its bytes (which are the file "script").
struct ScriptInfo {
  std::optional<std::string> interpreter;  // "/bin/bash", from the first line
  std::vector<std::string> directives;     // "--time=00:10:00", in order, without "#SBATCH"
  std::vector<std::string> modules;        // arguments of `module load`, in order
};

enum class EnvironmentFormat {
  kNone,      // there is no file "environment"
  kNulEnded,  // NAME=value strings, each ended by one NUL, as in /proc/PID/environ
  kRaw,       // the scheduler's own bytes, kept untouched because they could not be parsed
};

struct Redaction {
  std::string rule;   // "environment.drop"
  std::string where;  // "script", "environment", "job.name"
  std::uint64_t count = 0;
};

// One immutable fact about one job, schema "scriptorium.event/1" (docs/schema/). Made once, then
// only read; shared as shared_ptr<const Event>, which any thread may hold.
//
// Text members are UTF-8 (core calls make_text_utf8() before the journal, so that every attempt
// sees the same text), but may hold anything that a user can type: control characters, '/',
// newlines. The files hold the exact bytes. Absent means unknown, never empty or 0.
struct Event {
  std::string id;  // event_id(): the same after a crash, from another capture way, at each attempt
  std::string kind;  // "job.script", "usage.node", ...
  Timestamp time;    // when the scheduler took the job (a usage sample: the end of its interval)
  Timestamp captured_at;  // ours, information only
  std::string capture;    // "fanotify", "inotify", "scan"; a free source names its own way
  bool complete = true;   // false: a file was still half written at incomplete_after_seconds

  std::string cluster;
  std::string scheduler;  // "slurm"
  std::string host;       // where it was captured (usage: measured)

  Job job;
  User user;
  std::optional<ScriptInfo> script;
  EnvironmentFormat environment_format = EnvironmentFormat::kNone;
  std::vector<EventFile> files;
  std::vector<Redaction> redactions;
  std::vector<std::string>
      problems;  // what was wrong with the input, in words: "environment: count 9, 4 strings"
  std::optional<std::string> supersedes;  // event id of an earlier, shorter capture of the same job
  std::optional<std::string>
      replaces;  // event id of the same capture, as it was sent before its owner was known
  std::vector<std::string> lossy;  // members that were not UTF-8 and were made so: "job.name"
  std::string extra_json;          // members of other kinds: one JSON object, merged at the top and
                           // into host, job, user and script, whose own members stay; "" = none

  const EventFile* file(std::string_view name) const noexcept;  // null if there is none
  std::uint64_t bytes_size() const noexcept;                    // of all files together
  std::uint64_t memory_size()
      const noexcept;  // about what it takes in memory, its texts and the bytes it holds included
};

// Replaces what is not UTF-8 in the text members by U+FFFD and notes it in `lossy`. The files stay
// as they are.
void make_text_utf8(Event& event);

// The id of a job.script event: sha256 over cluster, scheduler, kind, job id, the script file's
// modification time in nanoseconds and the sha256 of its bytes before redaction. Each part is
// preceded by its length, so that no two lists of parts agree by accident.
std::string event_id(std::string_view cluster, std::string_view scheduler, std::string_view kind,
                     std::string_view job_id, std::int64_t script_mtime_ns,
                     std::string_view script_sha256);

// The id of an event once its owner is known, which `replaces` the unverified one.
std::string owned_event_id(std::string_view replaced_id, std::string_view uid);

// The id of any other kind, over the parts that its schema names.
std::string event_id(const std::vector<std::string_view>& parts);

struct Variable {
  std::string_view name;
  std::string_view value;  // may hold newlines, '=', any byte but NUL
};

// The strings of a NUL-ended environment, split at the first '=' after position 0 (so "=odd" is a
// name without value). Views into `environment`. Order and duplicates kept; a string without '='
// has `value.data() == nullptr`.
std::vector<Variable> split_environment(std::string_view environment);

struct JsonOptions {
  bool script_text = true;   // script.text, script.encoding
  bool environment = true;   // "environment": {name: value}; of duplicates the last one counts
  bool exact_times = false;  // nanoseconds instead of the schema's milli- and microseconds
  int indent = -1;           // < 0: one line
};

// The event as schema 1 says, always valid UTF-8. A script that is not UTF-8 goes as base64; other
// bytes that are not become U+FFFD, and "lossy" then lists where ("environment", "job.name").
std::string event_json(const Event& event, const JsonOptions& options = {});

// Reads back what event_json() wrote with exact_times and without texts; the files have no bytes.
// kCorrupt for anything else.
Result<Event> event_from_json(std::string_view json);

}  // namespace scriptorium
