#pragma once

#include <string>
#include <vector>

#include "core/api/coordinators.h"
#include "core/base/result.h"

// Who coordinates which accounts, in the file coordinators.json of the catalog's root, so that who
// may read the catalog need not ask a scheduler.
//
// Threads: any; one writer at a time.
namespace scriptorium::catalog {

// Those of every cluster. Empty before the first were kept. kCorrupt for a file that is none.
Result<std::vector<CoordinatorList>> read_coordinators(const std::string& root);

// Replaces those of the list's cluster. A damaged file is replaced by a new one.
Result<void> keep_coordinators(const std::string& root, const CoordinatorList& list);

}  // namespace scriptorium::catalog
