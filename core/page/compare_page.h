#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/api/searchable.h"
#include "core/page/templates.h"

namespace scriptorium::page {

inline constexpr std::size_t kMostCompared = 8;

// The values of compare.mustache. `jobs`: two or more, the earliest first. `root`: the way from
// there to the first page.
Values compare_values(const std::vector<Searchable::Record>& jobs, const std::string& root);

}  // namespace scriptorium::page
