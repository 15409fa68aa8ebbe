#pragma once

#include <string>
#include <vector>

#include "core/api/searchable.h"
#include "core/query/environment_diff.h"
#include "core/query/line_diff.h"

// What differs between two jobs. Pure.
namespace scriptorium::query {

struct Fact {
  const char* name = "";
  std::string value;  // printable; "" if unknown
};
// Of every job the same facts, in one order.
std::vector<Fact> request_facts(const JobRow& job);  // name, account, limits, work dir, ...
std::vector<Fact> outcome_facts(const JobRow& job);  // state, time, memory, use, ...

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
  std::vector<FactChange> request;  // what was asked for, if it differs
  std::vector<FactChange> outcome;  // what is known; does not count as a difference

  bool script_differs() const { return count_edits(script).any(); }
  bool differs() const;
};
Comparison compare(const Searchable::Record& before, const Searchable::Record& after);

}  // namespace scriptorium::query
