#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/event.h"
#include "core/base/result.h"
#include "core/base/time.h"

// A parsed query and the facts of a job that it is held against. core/query parses what people
// type; each searchable sink evaluates the tree in its own way, and all must agree with the
// reference in core/api/kit/search (TextMatcher, matches()).
namespace scriptorium {

enum class QueryField : std::uint8_t {
  kJob,
  kUser,
  kAccount,
  kPartition,
  kQos,
  kName,
  kCluster,
  kScheduler,
  kModule,
  kDirective,
  kInterpreter,
  kState,
  kExit,       // a number; also the text of a signal: "9" of "0:9" is signal:9
  kElapsed,    // seconds
  kMemory,     // bytes at the peak, or percent of what was requested
  kCpu,        // allocated CPUs, or percent of them that was used
  kGpu,        // allocated GPUs, or percent of them that was used
  kNode,       // a host that the job ran on
  kSubmitted,  // nanoseconds since 1970, UTC
  kEnded,      // nanoseconds since 1970, UTC
  kWorkDir,
  kFinding,          // "cpu_low", "memory_high"; "secret" for a job with redactions
  kFamily,           // its number, in digits
  kArray,            // the array's job id; "true" or "false" for whether it is one
  kComplete,         // "true" or "false"
  kVerified,         // "true" or "false"
  kScript,           // sha256 in hexadecimal, or its first digits (at least 4)
  kStarted,          // nanoseconds since 1970, UTC
  kSecret,           // "true" or "false": whether a secret was removed from it
  kRequestedMemory,  // bytes
  kRequestedCpu,
  kRequestedGpu,
  kRequestedTime,  // seconds
  kSoftware,       // "conda torch", "apptainer img.sif"
};
inline constexpr std::size_t kQueryFieldCount = 34;

// The word that a person types, "workdir".
std::string_view query_field_name(QueryField field) noexcept;
std::optional<QueryField> query_field_of(std::string_view name) noexcept;
std::vector<std::string> query_field_names();
// Ranges of numbers or times are allowed on this field.
bool is_range_field(QueryField field) noexcept;
// Only a later event, such as usage.job, fills it.
bool is_outcome_field(QueryField field) noexcept;

enum class JobPart : std::uint8_t { kScript, kEnvironment };

// A node of the tree. Only the members of its kind are used.
struct Query {
  enum class Kind : std::uint8_t {
    kAll,         // every job
    kAnd,         // children: two or more
    kOr,          // children: two or more
    kNot,         // children: one
    kText,        // `text` in `part`
    kExpression,  // the regular expression `text` (RE2 syntax) in `part`
    kField,       // `field` is `text`
    kRange,       // `field` is between `from` and `to`
    kVariable,    // the environment variable `name` is `text`
  };
  Kind kind = Kind::kAll;
  std::vector<Query> children;
  JobPart part = JobPart::kScript;
  QueryField field = QueryField::kUser;
  // kText: found in the script in any case (ASCII), a run of blanks and tabs standing for any other
  // such run. Where it begins or ends with a letter, a digit or a byte from 0x80 on, the text
  // beside it must not continue with one (see is_word_byte()); with `prefix` it may after the end.
  // kField and kVariable: the whole value in any case (ASCII), `*` standing for any bytes. A module
  // also matches without its version ("GROMACS" for GROMACS/2023.1), a directive also without its
  // value ("--gres" for --gres=gpu:1), software also by its kind or its name alone, a user also by
  // uid.
  std::string text;
  std::string name;          // kVariable; may hold `*`
  bool prefix = false;       // kText
  bool ignore_case = false;  // kExpression
  // kRange: both ends included, an absent end is open. A job without a value does not match.
  std::optional<std::int64_t> from;
  std::optional<std::int64_t> to;
  bool percent = false;      // kRange of kMemory, kCpu, kGpu: from and to are percent
  std::size_t position = 0;  // of its first byte in what was typed

  bool operator==(const Query&) const = default;
};

// A letter or digit of ASCII, or a byte from 0x80 on: what words consist of.
constexpr bool is_word_byte(char c) noexcept {
  const auto b = static_cast<unsigned char>(c);
  return (b >= '0' && b <= '9') || (b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z') || b >= 0x80;
}

// Limits that the parser keeps; an evaluator may rely on them.
inline constexpr std::size_t kMostQueryBytes = 4096;
inline constexpr std::size_t kMostQueryTerms = 64;
inline constexpr std::size_t kMostQueryDepth = 32;

// What is known of one job: its submission, joined with what later events say. Absent means
// unknown, never empty or 0. Text is UTF-8 but may hold anything that a user can type.
struct JobRow {
  std::string cluster;
  std::string scheduler;
  std::string id;        // the scheduler's job id
  Timestamp time;        // when the scheduler accepted it: with cluster, scheduler and id the key
  std::string event_id;  // of its job.script event; "" if only later events were seen

  std::optional<std::string> name;
  std::optional<std::string> array_job_id;
  std::optional<std::string> array_task_spec;
  std::optional<std::string> het_job_id;
  std::optional<std::string> user;
  std::optional<std::string> uid;
  std::optional<std::string> group;
  bool verified = false;  // only then may `user` grant access
  // That of the newest run whose usage names one, else of the submission. Of an array, absent if
  // the runs of its tasks name different ones.
  std::optional<std::string> account;
  std::optional<std::string> partition;
  std::optional<std::string> qos;
  std::optional<std::string> work_dir;
  std::optional<std::string> interpreter;
  std::vector<std::string> directives;
  std::vector<std::string> modules;   // of the script, then of LOADEDMODULES, each once
  std::vector<std::string> software;  // of the script: "conda torch", kind and name
  std::optional<std::string> script_sha256;
  std::optional<std::uint64_t> script_size;
  std::optional<std::uint64_t> environment_size;
  bool complete = true;
  bool redacted = false;
  std::optional<std::uint64_t> family;  // jobs that a person would call the same; see Searchable

  // From later events, of the newest life.
  std::optional<std::string> state;  // "COMPLETED", "FAILED", ...: the scheduler's word
  std::optional<std::int64_t> exit_code;
  std::optional<std::int64_t> exit_signal;
  std::optional<Timestamp> started_at;
  std::optional<Timestamp> ended_at;
  std::optional<double> elapsed_seconds;
  std::optional<double> cpu_seconds;  // used
  std::optional<std::uint64_t> cpus;  // allocated
  std::optional<double> cpu_ratio;    // used of allocated, 0 to 1
  std::optional<std::uint64_t> memory_peak_bytes;
  std::optional<std::uint64_t> memory_limit_bytes;
  std::optional<std::uint64_t> gpus;  // allocated
  std::optional<double> gpu_ratio;    // used of allocated, 0 to 1
  std::optional<std::uint64_t> time_limit_seconds;
  std::vector<std::string> nodes;
  std::vector<std::string> findings;  // ids, worst first
  std::uint64_t lives = 0;            // seen ends; above 1: requeued
  // Of an array: how many of its tasks' runs ended, and how many of them failed. The outcome above
  // is that of one run: of the last that failed, else of the last.
  std::uint64_t runs = 0;
  std::uint64_t failed_runs = 0;
  // The end of the newest run that names an account; absent: `account` is that of the submission.
  std::optional<Timestamp> account_named_at;

  bool operator==(const JobRow&) const = default;
};

// One run of a job that ended, as far as sums over many of them need it. A task of an array is a
// run of its own.
struct JobRun {
  std::optional<std::string> user;  // the uid if it has no name
  std::optional<std::string> uid;   // may be absent where it does not decide who sees the run
  bool verified = false;
  std::optional<std::string> account;
  std::optional<std::string> partition;
  Timestamp ended_at;  // whole seconds
  // What it had: cores, GPUs for so long. 0: none, or not known.
  std::uint64_t core_seconds = 0;
  std::uint64_t gpu_seconds = 0;
  // The part of that which was not used. Absent: not measured.
  std::optional<std::uint64_t> unused_core_seconds;
  std::optional<std::uint64_t> unused_gpu_seconds;
  std::vector<std::string> nodes;
  std::vector<std::string> findings;  // ids, without those that only inform; worst first
  struct Program {
    std::string name;         // kOtherPrograms, kUnseenPrograms: those that have none here
    std::uint32_t share = 0;  // of the run's CPU time, in 1/10000
    bool operator==(const Program&) const = default;
  };
  std::vector<Program> programs;
  // Filled where they are asked for.
  std::vector<std::string> modules;    // of its script
  std::string cluster;                 // also where a reader does not see all runs
  std::string key;                     // differs for each run of a store; any bytes
  std::shared_ptr<const Event> event;  // the usage.job that describes it

  bool operator==(const JobRun&) const = default;
};
inline constexpr const char* kOtherPrograms = "(other)";
inline constexpr const char* kUnseenPrograms = "(not seen)";

}  // namespace scriptorium
