#pragma once

#include <functional>
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
};
using Report = std::function<void(const Outcome<Done>& outcome)>;

// Reports once. Of a resume it returns only when the program that was restored has ended.
void serve(const Request& request, const Config& config, const std::string& engine_version,
           Engine& engine, const Report& report);

// For a request whose process ended without a report: writes why, and ends the job if its program
// is gone.
void clean_up(const Request& request, const Report& report);

}  // namespace scriptorium::checkpoint
