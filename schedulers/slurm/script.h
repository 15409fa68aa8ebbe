#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/api/event.h"

// What a job script's text says of itself, as sbatch reads it. Pure functions; any bytes are taken.
namespace scriptorium::slurm {

// What core/api/job_script.h finds, with "#SBATCH" for the directives: "#SBATCH hetjob" gives
// "hetjob".
ScriptInfo read_script_info(std::string_view script);

// The job's name by -J or --job-name of the directives (of the first component), where they have
// one.
std::optional<std::string> job_name_directive(std::string_view script);

// True if this is what sbatch writes for the second and later components of a heterogeneous job: a
// `#!` line, only
// `#SBATCH` lines, and `exit 0`. A user's own script may look the same, so this alone proves
// nothing.
bool is_het_stub(std::string_view script) noexcept;

}  // namespace scriptorium::slurm
