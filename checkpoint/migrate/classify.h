#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/migrate/slurm.h"

// Whether a running job may be signalled to save itself. Pure.
namespace scriptorium::checkpoint {

// kRun and kRunApp: by scriptorium-run, with the service or by the program itself. kTrap: the batch
// process catches the signal. kRequeue: it is not saved, its work is lost.
enum class MoveMethod : std::uint8_t { kRun, kRunApp, kTrap, kRequeue };

const char* to_string(MoveMethod method);

// How a job is moved, or why it is not.
struct Verdict {
  std::optional<MoveMethod> method;
  std::string reason;
};

// Why a job is not even asked whether it can be saved; nothing: it must be inspected.
std::optional<std::string> why_not_movable(const SlurmJob& job, std::string_view requeue_exit);
// It has no script that could be run again, or Slurm may not run it again, whatever is done.
std::optional<std::string> why_not_requeueable(const SlurmJob& job);

// What the job has said by now. Only the batch process counts: Slurm signals no other.
Verdict classify(const Result<std::optional<BatchProcess>>& inspected);

}  // namespace scriptorium::checkpoint
