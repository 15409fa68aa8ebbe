#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/api/searchable.h"
#include "core/cli/console.h"
#include "core/query/environment_diff.h"
#include "core/query/line_diff.h"

// What differs between two jobs. Pure.
namespace scriptorium::cli {

struct FactChange {
  std::string name;
  std::string before;  // printable; "" if unknown
  std::string after;
  bool operator==(const FactChange&) const = default;
};

// Borrows the texts of both records.
struct Comparison {
  std::vector<query::LineEdit> script;
  bool has_scripts = false;  // both jobs' are stored
  std::vector<query::VariableChange> environment;
  bool has_environments = false;
  query::ListChange modules;
  query::ListChange directives;
  std::vector<FactChange>
      request;  // name, account, partition, limits, work dir: what was asked for
  std::vector<FactChange> outcome;  // state, time, memory, use; does not count as a difference

  bool script_differs() const { return query::count_edits(script).any(); }
  bool differs() const;
};
Comparison compare(const Searchable::Record& before, const Searchable::Record& after);

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
