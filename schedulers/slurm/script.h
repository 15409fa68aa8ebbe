#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/api/event.h"

// What a job script's text says of itself. Pure functions that read and never evaluate: no variable is expanded, no
// command substituted, no `if` decided. Linear in the script's size; any bytes are taken.
namespace scriptorium::slurm {

// More or longer than this is left out, so that a hostile script cannot make an event of any size twice as large.
inline constexpr std::size_t kMaxItems = 1000;
inline constexpr std::size_t kMaxItemBytes = 4096;

// interpreter  the path on the `#!` line; for env(1) also its command: "/usr/bin/env python3" of
//              "#!/usr/bin/env -S python3 -u".
// directives   the text after "#SBATCH" of each line that sbatch reads, without the blanks around it; sbatch stops
//              at the first line that is neither blank nor a comment. "#SBATCH hetjob" gives "hetjob".
// modules      the arguments of `module load`, `module add`, `ml NAME` and what `swap` puts in, in order, wherever
//              they stand in the script; as written, so "GCC/$VERSION" stays that.
ScriptInfo read_script_info(std::string_view script);

// The job's name by -J or --job-name of the directives (of the first component), where they have one.
std::optional<std::string> job_name_directive(std::string_view script);

// True if this is what sbatch writes for the second and later components of a heterogeneous job: a `#!` line, only
// `#SBATCH` lines, and `exit 0`. A user's own script may look the same, so this alone proves nothing.
bool is_het_stub(std::string_view script) noexcept;

}  // namespace scriptorium::slurm
