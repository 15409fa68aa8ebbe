#pragma once

#include <vector>

#include "core/page/templates.h"
#include "core/query/checkpoint_chain.h"

namespace scriptorium::page {

// What job.mustache shows of a job's programs that were saved and resumed: a table of lives for
// each, and the sum of all. False if there is none. Pure.
Values chain_part(const std::vector<query::CheckpointChain>& chains);

}  // namespace scriptorium::page
