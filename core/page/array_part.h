#pragma once

#include <vector>

#include "core/page/templates.h"
#include "core/query/array_report.h"

namespace scriptorium::page {

// What job.mustache shows of an array's tasks together: spreads, outliers, shared findings, and
// what to ask for next time. False for what is no array.
Values array_part(const std::vector<query::TaskLife>& lives);

}  // namespace scriptorium::page
