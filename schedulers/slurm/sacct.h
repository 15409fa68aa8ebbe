#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/spool_adapter.h"
#include "core/base/result.h"
#include "schedulers/slurm/squeue.h"

// How we ask sacct whose jobs were that slurmctld has forgotten, and what its answers mean; pure
// functions.
//
// Only fields that no user can shape are asked for, so a line is a row. There is a row for each
// life of a job: a requeue makes a new one, with a later submit time. Read from Slurm 22.05, where
// it was tried.
namespace scriptorium::slurm {

// Arguments of sacct. With ids and without states it looks at all times, and at jobs that never
// were eligible.
std::vector<std::string> sacct_arguments(std::span<const std::uint64_t> ids);

// The rows about `ids`, an array's tasks under its number: one for each owner and submit time, as
// the tasks agree. A row without an owner says nothing. Refuses the whole answer for one field that
// is not as it must be: kTransient.
Result<std::vector<QueueRow>> parse_sacct(std::string_view answer,
                                          std::span<const std::uint64_t> ids);

// The answer for one entry, without names. kFound, or kUnknown: none of the rows is of this
// submission, or they disagree.
OwnerAnswer accounted_owner(const std::vector<QueueRow>& rows, const EntryIdentity& entry);

}  // namespace scriptorium::slurm
