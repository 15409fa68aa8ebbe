#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/catalog/schema.h"
#include "core/api/options.h"

namespace scriptorium::catalog {

struct CatalogConfig {
  std::string root = "/var/lib/scriptorium-catalog";
  std::optional<std::string> reader_group;
  std::int64_t min_free_bytes = 0;
  std::int64_t segment_jobs = kSegmentJobs;
};

std::vector<OptionInfo> options();

// Says every problem of the table; the result is to be used only if there was none.
CatalogConfig parse_config(const Table& table, Problems& problems);

}  // namespace scriptorium::catalog
