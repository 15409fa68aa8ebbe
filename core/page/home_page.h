#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/api/searchable.h"
#include "core/page/report_page.h"
#include "core/page/templates.h"

namespace scriptorium::page {

// What failed of a person's jobs lately, in the query language, without the person.
inline constexpr const char* kFailedLately =
    "state:* -state:COMPLETED -state:CANCELLED* -state:PREEMPTED since:7d";

// A job that failed, and how many more of its family did.
struct FailedJob {
  JobRow job;
  std::size_t again = 0;
};
// The newest of each family, at most `most`. `hits`: newest first.
std::vector<FailedJob> failed_families(const std::vector<Searchable::Hit>& hits, std::size_t most);

// Values of home.mustache for one of them, with what its record says about why.
Values failed_values(const FailedJob& failed, const Searchable::Record& record);

// Adds what a person's jobs of the last days had and did not use, and what to write next time in
// the most wasteful of them.
void add_week(Values& values, const Report& week);

}  // namespace scriptorium::page
