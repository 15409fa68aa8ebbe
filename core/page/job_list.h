#pragma once

#include <string>
#include <vector>

#include "core/api/searchable.h"
#include "core/page/templates.h"

namespace scriptorium::page {

// Adds the values of job_rows.mustache, and has_jobs. `root`: the way to the first page.
void add_job_list(Values& values, const std::vector<Searchable::Hit>& hits,
                  const std::string& root);

}  // namespace scriptorium::page
