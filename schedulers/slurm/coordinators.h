#pragma once

#include <stop_token>
#include <string_view>
#include <vector>

#include "core/api/spool_adapter.h"
#include "core/base/result.h"
#include "core/base/time.h"
#include "schedulers/slurm/config.h"

// Which users coordinate which accounts: what sacctmgr prints of slurmdbd's. slurmdbd adds the
// coordinators of an account to all accounts below it, in whichever cluster they are (read from
// Slurm 22.05, where it was tried).
namespace scriptorium::slurm {

// "chem|alice,bob", a line each. kTransient, for the whole answer, if a line is not so.
Result<std::vector<AccountCoordinators>> parse_coordinators(std::string_view answer);

// Nothing if this Slurm has no slurmdbd or this host no sacctmgr, or with resolve = "none".
Result<KnownCoordinators> ask_coordinators(const SlurmConfig& config, const std::stop_token& stop,
                                           SteadyTime deadline);

}  // namespace scriptorium::slurm
