#include "checkpoint/migrate/classify.h"

#include "checkpoint/processes.h"
#include "checkpoint/run/notices.h"
#include "checkpoint/run/options.h"

namespace scriptorium::checkpoint {
const char* to_string(MoveMethod method) {
  switch (method) {
    case MoveMethod::kRun: return "scriptorium-run";
    case MoveMethod::kRunApp: return "scriptorium-run --engine=app";
    case MoveMethod::kTrap: return "trap";
    case MoveMethod::kRequeue: return "requeue";
  }
  return "";
}

std::optional<std::string> why_not_requeueable(const SlurmJob& job) {
  if (!job.is_batch) return "not a batch job: no script can be run again";
  if (job.is_het) return "a part of a heterogeneous job";
  if (!job.is_running()) return "not running (" + job.state + ")";
  if (!job.may_requeue)
    return "Slurm may not run it again: it was submitted with --no-requeue, or JobRequeue=0 in "
           "slurm.conf and without --requeue";
  return std::nullopt;
}

std::optional<std::string> why_not_movable(const SlurmJob& job, std::string_view requeue_exit) {
  if (const auto why = why_not_requeueable(job)) return why;
  if (job.node_count != 1)
    return "runs on " + std::to_string(job.node_count) +
           " nodes; --parallel-jobs=requeue requeues such jobs, which loses their work";
  if (!has_exit_code(requeue_exit, kExitRunAgain))
    return "Slurm would not run it again: RequeueExit in slurm.conf has no 99";
  return std::nullopt;
}

Verdict classify(const Result<std::optional<BatchProcess>>& inspected) {
  constexpr const char* kNot = "not checkpointable: ";
  if (!inspected) {
    return {std::nullopt, std::string(kNot) +
                              "whether it can be saved cannot be read on its node: " +
                              inspected.error().message()};
  }
  if (!*inspected) {
    return {std::nullopt,
            std::string(kNot) +
                "its batch process was not found in a control group of Slurm on its node (it needs "
                "ProctrackType=proctrack/cgroup)"};
  }
  const BatchProcess& batch = **inspected;
  const bool is_runner = batch.name == kRunName && (batch.blocks_signal || batch.catches_signal);
  if (batch.tracer == kRunName || is_runner)
    return {batch.saves_itself ? MoveMethod::kRunApp : MoveMethod::kRun, {}};
  if (batch.catches_signal) return {MoveMethod::kTrap, {}};
  return {std::nullopt,
          std::string(kNot) +
              "its batch process runs without scriptorium-run and does not catch SIGUSR2"};
}

}  // namespace scriptorium::checkpoint
