#pragma once

#include <string>

#include "core/api/searchable.h"
#include "core/page/templates.h"

namespace scriptorium::page {

// The values of compare.mustache. `root`: the way from there to the first page.
Values compare_values(const Searchable::Record& before, const Searchable::Record& after,
                      const std::string& root);

}  // namespace scriptorium::page
