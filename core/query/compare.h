#pragma once

#include <string>
#include <vector>

#include "core/api/searchable.h"
#include "core/query/environment_diff.h"
#include "core/query/line_diff.h"

// What differs between two jobs. Pure.
namespace scriptorium::query {

struct FactChange {
  std::string name;
  std::string before;  // printable; "" if unknown
  std::string after;
  bool operator==(const FactChange&) const = default;
};

// Borrows the texts of both records.
struct Comparison {
  std::vector<LineEdit> script;
  bool has_scripts = false;  // both jobs' are stored
  std::vector<VariableChange> environment;
  bool has_environments = false;
  ListChange modules;
  ListChange directives;
  std::vector<FactChange>
      request;  // name, account, partition, limits, work dir: what was asked for
  std::vector<FactChange> outcome;  // state, time, memory, use; does not count as a difference

  bool script_differs() const { return count_edits(script).any(); }
  bool differs() const;
};
Comparison compare(const Searchable::Record& before, const Searchable::Record& after);

}  // namespace scriptorium::query
