#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "core/api/searchable.h"
#include "core/base/time.h"

namespace scriptorium::catalog {

struct SearchLimits {
  // Counts and facets over texts: of the newest matches.
  std::size_t sample = 10'000;
  // So many jobs of the owners that a query leaves, or fewer, are read one by one; of more, whole
  // chunks.
  std::size_t jobs_of_owners = 16'384;
  // How long a read transaction may last: the writer's -wal grows meanwhile.
  std::chrono::milliseconds snapshot{500};
};

// Answers questions from the catalog at `root`, through read-only connections of its own: it works
// beside a daemon that writes, and without one. `clock` must outlive it.
std::unique_ptr<Searchable> make_search(std::string root, const Clock& clock,
                                        SearchLimits limits = {});

}  // namespace scriptorium::catalog
