#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/api/searchable.h"
#include "core/cli/arguments.h"
#include "core/cli/console.h"
#include "core/cli/stored_job.h"
#include "core/query/checkpoint_chain.h"

// What `show` prints of one capture of a job.
namespace scriptorium::cli {

// Everything about it, then its script or environment. `record`: what a searchable sink adds, or
// null. `components`: of a heterogeneous job; 0: unknown.
std::string show_text(const StoredCapture& capture, const Searchable::Record* record,
                      const Arguments& arguments, const Console& console, std::size_t components);

// Lives, outcome, use, findings and family, one indented line each; "" if nothing is known.
std::string use_text(const Searchable::Record& record, const Console& console);

// When its program was saved and resumed, a line each, then the sums and the findings; "" if it
// never was.
std::string chain_text(const Searchable::Record& record,
                       const std::vector<query::CheckpointFinding>& findings,
                       const Console& console);

// For programs.
Json show_json(const StoredCapture& capture, const Searchable::Record* record);

}  // namespace scriptorium::cli
