#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "backends/catalog/search_pool.h"
#include "core/api/searchable.h"

// Single jobs of a catalog: Searchable::get() and family().
namespace scriptorium::catalog {

Result<std::vector<Searchable::Record>> read_records(ReaderPool& pool,
                                                     const Searchable::Selector& selector,
                                                     const Visibility& visibility,
                                                     std::size_t limit);

Result<std::vector<JobRow>> read_family(ReaderPool& pool, std::uint64_t family,
                                        const Visibility& visibility,
                                        std::optional<Timestamp> before, std::size_t limit);

}  // namespace scriptorium::catalog
