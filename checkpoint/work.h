#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "checkpoint/config.h"
#include "checkpoint/engine.h"
#include "checkpoint/job_group.h"
#include "checkpoint/request.h"

// One request, from the checks to its result. Runs in a process that was forked for it, begins as
// root and becomes the job's owner, for good, before it touches anything of the user's.
namespace scriptorium::checkpoint {

struct Request {
  std::string kept;  // SpoolRequest::kept
  Action action = Action::kCheckpoint;
  JobOwner owner;
  RequestBody body;
  std::int64_t written_ns = 0;  // since 1970
};

// What was done, for the log.
struct Done {
  std::uint64_t bytes = 0;
  std::uint64_t processes = 0;
  std::int64_t engine_ms = 0;  // of a dump: the program does not run meanwhile
  std::int64_t hash_ms = 0;    // hashing and fsync, while the program does not wait for it
  pid_t root = 0;              // the program's first process; 0 = nothing had to be done
  std::int64_t tries = 0;      // of a resume
  std::string manifest_sha256;
};

// What a request's process reports.
struct WorkReport {
  // Of whose job the program is, as the kernel says; "" = the job is not one of the request's owner
  // on this node.
  std::string scheduler;
  std::string user;
  std::int64_t duration_ms = 0;
  Outcome<Done> outcome;
  std::optional<int> exit_code;  // of the second report: the program has ended by itself
};
WorkReport not_done(Refusal why);
using Report = std::function<void(const WorkReport& report)>;

// Reports once the job has its answer. Of a resume that was done it returns only when the program
// that was restored has ended, and reports a second time if that ended by itself.
void serve(const Request& request, const Config& config, const std::string& engine_version,
           Engine& engine, const Report& report);

// For a request whose process ended without a report: writes why, and ends the job if its program
// is gone.
void clean_up(const Request& request, const Report& report);

}  // namespace scriptorium::checkpoint
