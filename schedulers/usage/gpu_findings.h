#pragma once

#include "schedulers/usage/finding_parts.h"

// The rules about a job's GPUs, in the order of finding_rules(). Pure.
namespace scriptorium::usage {

Found gpu_unused(const JobView& job, const FindingOptions& set);
Found gpu_low(const JobView& job, const FindingOptions& set);
Found gpu_idle_run(const JobView& job, const FindingOptions& set);
Found gpu_host_bound(const JobView& job, const FindingOptions& set);
Found gpu_memory_low(const JobView& job, const FindingOptions& set);
Found gpu_throttled(const JobView& job, const FindingOptions& set);

}  // namespace scriptorium::usage
