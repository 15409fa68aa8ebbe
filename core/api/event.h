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

// One file that belongs to an event. `size` and `sha256` describe the stored bytes, so that a
// reader can verify them, and never those before redaction.
struct EventFile {
  std::string name;  // "script", "environment", "record"; [a-z0-9_.-]
  std::uint64_t size = 0;
  std::string sha256;  // 64 hexadecimal digits
  Bytes bytes;         // null only if the metadata was read back without the bytes
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
  bool synthetic = false;  // the scheduler generated this script; the leader has the user's
};

struct Job {
  std::string id;  // the scheduler's job id, as users type it
  std::optional<std::string> name;
  std::optional<JobArray> array;
  std::optional<HetJob> het;
  std::optional<std::string> account;
  std::optional<std::string> partition;
  std::optional<std::string> qos;
  std::optional<Timestamp> submitted_at;
  std::optional<std::string> work_dir;
};

// Who owns the job. A sink may use it for access rights only if `verified` is true: it then came
// from the scheduler itself, not from the job's environment, which the user controls.
struct User {
  std::optional<std::string> name;
  std::optional<std::string> id;  // uid, in digits
  std::optional<std::string> group_name;
  std::optional<std::string> group_id;
  bool verified = false;
  // Why the owner is not verified. If the scheduler was asked, the text is the same for every job.
  // Absent if the owner is verified, or if nothing was asked.
  std::optional<std::string> unverified_reason = std::nullopt;
};

// Software that a job script uses and that is no module; see core/api/script_software.h.
struct Software {
  std::string kind;  // "conda", "apptainer", "spack", ...
  std::string name;  // of the environment, the image, the spec: "docker://ubuntu:24.04"
  bool operator==(const Software&) const = default;
};

// Facts derived from the job script. Its bytes are the file "script".
struct ScriptInfo {
  std::optional<std::string> interpreter;  // "/bin/bash", from the first line
  std::vector<std::string> directives;     // "--time=00:10:00", in order, without "#SBATCH"
  std::vector<std::string> modules;        // arguments of `module load`, in order
  std::vector<Software> software;          // each once, in order
};

enum class EnvironmentFormat {
  kNone,      // the event has no file "environment"
  kNulEnded,  // NAME=value strings, each ended by one NUL, as in /proc/PID/environ
  kRaw,       // the scheduler's bytes, unchanged because they could not be parsed
};

// Secrets of one rule in one place.
struct Redaction {
  std::string rule;   // "url-userinfo"; "environment" and "environment.unparsable" are the option's
  std::string where;  // "script", "environment", "job.name", "record"
  std::uint64_t count = 0;
  bool kept = false;                 // only reported: a site may choose so
  std::vector<std::uint32_t> lines;  // of a script, counted from 1, ascending; the first few
  std::vector<std::string> names;    // of variables; the first few
  bool operator==(const Redaction&) const = default;
};
// How many `lines` and `names` an event keeps.
inline constexpr std::size_t kMostRedactionPlaces = 20;

// One fact about one job, schema "scriptorium.event/1" (docs/schema/). Immutable once made, and
// shared between threads as shared_ptr<const Event>.
//
// Text members are UTF-8 (core calls make_text_utf8() before writing to the journal, so that every
// attempt sees the same text), but may contain anything that a user can type: control characters,
// '/', newlines. The files hold the exact bytes. Absent means unknown, never empty or 0.
struct Event {
  std::string
      id;  // event_id(): the same after a crash, for every capture method and at each attempt
  std::string kind;       // "job.script", "usage.node", ...
  Timestamp time;         // when the scheduler accepted the job (usage sample: end of its interval)
  Timestamp captured_at;  // by our clock; for information only
  std::string capture;    // "fanotify", "inotify", "scan"; a free source names its own method
  bool complete = true;   // false: a file was still incomplete after incomplete_after_seconds

  std::string cluster;
  std::string scheduler;  // "slurm"
  std::string host;       // the host that captured it (usage: that measured it)

  Job job;
  User user;
  std::optional<ScriptInfo> script;
  EnvironmentFormat environment_format = EnvironmentFormat::kNone;
  std::vector<EventFile> files;
  // Set in the copy that a sink with the option `parts` gets, if that lacks a file: the option.
  std::vector<std::string> parts;
  std::vector<Redaction> redactions;
  std::vector<std::string>
      problems;  // what was wrong with the input: "environment: count 9, 4 strings"
  std::optional<std::string> supersedes;  // event id of an earlier, shorter capture of the same job
  std::optional<std::string>
      replaces;                    // event id of the same capture, sent before its owner was known
  std::vector<std::string> lossy;  // members that were not UTF-8 and were repaired: "job.name"
  std::string extra_json;  // further members, one JSON object; merged at the top and into host,
                           // job, user and script, without replacing any; "" = none

  const EventFile* file(std::string_view name) const noexcept;  // null if there is none
  std::uint64_t bytes_size() const noexcept;                    // of all files together
  std::uint64_t memory_size()
      const noexcept;  // approximate memory use, including texts and file bytes
};

// Replaces ill-formed UTF-8 in the text members by U+FFFD and lists those members in `lossy`. The
// files do not change.
void make_text_utf8(Event& event);

// The id of a job.script event: sha256 over cluster, scheduler, kind, job id, the script file's
// modification time in nanoseconds and the sha256 of its bytes as they are kept: a hash of the
// original would let a reader guess what was redacted. Each part is preceded by its length, so that
// different lists of parts cannot produce the same input.
std::string event_id(std::string_view cluster, std::string_view scheduler, std::string_view kind,
                     std::string_view job_id, std::int64_t script_mtime_ns,
                     std::string_view script_sha256);

// The id of an event once its owner is known, which `replaces` the unverified one.
std::string owned_event_id(std::string_view replaced_id, std::string_view uid);

// The id of any other kind, over the parts that its schema names.
std::string event_id(const std::vector<std::string_view>& parts);

struct Variable {
  std::string_view name;
  std::string_view value;  // may contain newlines, '=', any byte but NUL
};

// The strings of a NUL-ended environment, split at the first '=' after position 0 (so "=odd" is a
// name without value). Views into `environment`, with order and duplicates preserved. A string
// without '=' has `value.data() == nullptr`.
std::vector<Variable> split_environment(std::string_view environment);

struct JsonOptions {
  bool script_text = true;   // script.text, script.encoding
  bool environment = true;   // "environment": {name: value}; the last of duplicate names counts
  bool exact_times = false;  // nanoseconds instead of the schema's milli- and microseconds
  int indent = -1;           // < 0: one line
};

// The event as schema 1 JSON, always valid UTF-8. A script that is not UTF-8 is base64-encoded.
// Elsewhere ill-formed UTF-8 becomes U+FFFD, and "lossy" lists where ("environment", "job.name").
std::string event_json(const Event& event, const JsonOptions& options = {});

// Reads back what event_json() wrote with exact_times and without texts; the files have no bytes.
// kCorrupt for anything else.
Result<Event> event_from_json(std::string_view json);

}  // namespace scriptorium
