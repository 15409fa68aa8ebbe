#pragma once

#include "checkpoint/run/job.h"
#include "checkpoint/run/options.h"

namespace scriptorium::checkpoint {

// One life of a command: starts or resumes it, has it saved by scriptorium-checkpointd when the
// scheduler signals, and waits for its end. Returns the exit code for the job: the command's own
// (128 + signal as of a shell), 99 when it was saved, 75 when it can be neither started nor
// resumed, kExitUsage for a command that is refused. What a person must know is a line on standard
// error.
// Threads: the process has one.
int run_life(const RunOptions& options, const BatchJob& job);

// Becomes the command. Returns only when it cannot be executed: 126 or 127, as of a shell.
int become_command(const std::vector<std::string>& command);

// A line for the job's owner, on standard error.
void say(const std::string& text);

}  // namespace scriptorium::checkpoint
