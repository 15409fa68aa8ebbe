#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/api/searchable.h"
#include "core/query/environment_diff.h"
#include "core/query/line_diff.h"

// The runs of a job's family and what was edited between them. Pure.
namespace scriptorium::cli {

// What was edited since the run before.
struct RunEdit {
  bool known = false;                // both scripts are stored, or their hashes are equal
  query::DiffCount lines;            // of the script
  std::vector<std::string> changed;  // "-old", "+new"; empty if more than kMostShownEdits
  query::ListChange modules;
};
inline constexpr std::size_t kMostShownEdits = 6;

RunEdit run_edit(const Searchable::Record& before, const Searchable::Record& after);
// Without reading a script: the same bytes, or unknown.
RunEdit run_edit(const JobRow& before, const JobRow& after);

struct Run {
  JobRow job;
  std::optional<RunEdit> edit;  // nothing for the oldest
};

// "+3 -1", "none", "?" if a script is missing; with "modules" where only those changed.
std::string edit_text(const RunEdit& edit);

}  // namespace scriptorium::cli
