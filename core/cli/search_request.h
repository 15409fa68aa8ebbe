#pragma once

#include <string>
#include <variant>

#include "core/api/searchable.h"
#include "core/base/time.h"
#include "core/cli/arguments.h"

namespace scriptorium::cli {

// What is wrong with the command line of a search, as it is to be printed.
struct SearchProblem {
  std::string text;
};

// The words of the command line joined with blanks, and --since and --after with them. `now` and
// the zone give times their meaning. The deadline and the callbacks are left open. Pure.
std::variant<Searchable::Request, SearchProblem> search_request(const Arguments& arguments,
                                                                Timestamp now, UtcOffset zone);

// The words joined with blanks.
std::string query_text(const Arguments& arguments);

// --since as a node of a query: 7d, today, 2026-11-01, as in "since:7d"; nothing if it is no time.
std::optional<Query> since_node(const std::string& since, Timestamp now, UtcOffset zone);

// `query` and `more` together.
Query both(Query query, Query more);

}  // namespace scriptorium::cli
