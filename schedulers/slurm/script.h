#pragma once

#include <string_view>

namespace scriptorium::slurm {

// True if this is what sbatch writes for the second and later components of a heterogeneous job: a
// `#!` line, only `#SBATCH` lines, and `exit 0`. A user's own script may look the same, so this
// alone proves nothing.
bool is_het_stub(std::string_view script) noexcept;

}  // namespace scriptorium::slurm
