#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/api/searchable.h"
#include "core/cli/console.h"
#include "core/query/compare.h"
#include "core/query/line_diff.h"

// What differs between two jobs, for people and programs. Pure.
namespace scriptorium::cli {

using query::compare;
using query::Comparison;
using query::FactChange;

struct ComparedParts {
  bool script = true;
  bool environment = true;
  bool facts = true;  // modules, directives, request, outcome
};
// For people: a unified diff of the scripts, then the other parts that differ.
std::string comparison_text(const Comparison& comparison, const JobRow& before, const JobRow& after,
                            const ComparedParts& parts, const Console& console);
nlohmann::ordered_json comparison_json(const Comparison& comparison, const JobRow& before,
                                       const JobRow& after, const ComparedParts& parts);

// The lines of a unified diff with three lines around each change.
std::string unified_text(const std::vector<query::LineEdit>& edits, const Console& console);

}  // namespace scriptorium::cli
