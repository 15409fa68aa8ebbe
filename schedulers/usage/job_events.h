#pragma once

#include <string>

#include "core/api/event.h"
#include "schedulers/usage/findings.h"
#include "schedulers/usage/job_facts.h"

// usage.job: the one document about a job that its owner reads. Pure.
namespace scriptorium::usage {

// The id of a job's usage.job, the same from its node and from accounting, as both know when Slurm
// started this life.
std::string job_event_id(const std::string& cluster, const std::string& scheduler,
                         const std::string& job_id, Timestamp started_at);

// Whole but for captured_at and, unless a single node made it, host: those are core's. `complete`
// says that every node was read at its end.
Event job_event(const std::string& cluster, const std::string& scheduler, const JobView& job,
                const FindingOptions& options);

}  // namespace scriptorium::usage
