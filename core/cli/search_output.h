#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/api/searchable.h"
#include "core/cli/arguments.h"
#include "core/cli/console.h"
#include "core/query/stores.h"

// How `search` prints its hits: a table, JSON, CSV or ids.
namespace scriptorium::cli {

// Gets an answer page by page and makes the text to be printed. Threads: one.
class SearchOutput {
 public:
  SearchOutput() = default;
  SearchOutput(const SearchOutput&) = delete;
  SearchOutput& operator=(const SearchOutput&) = delete;
  virtual ~SearchOutput() = default;

  virtual std::string page(const Searchable::Answer& answer) = 0;
  // After the last page; `last` is that page. `end_unknown`: further jobs that might belong to it.
  virtual std::string end(const Searchable::Answer& last, const query::Store& store,
                          const std::optional<Searchable::Count>& end_unknown) = 0;
};

// `cluster` is the configuration's: ids of other clusters are printed with theirs, "lab/4711".
std::unique_ptr<SearchOutput> make_search_output(const Arguments& arguments,
                                                 const std::string& cluster,
                                                 const Console& console);

// A facet as a table with its title: "user  (of the newest 10000 matches)".
std::string facet_text(const Searchable::Facet& facet, const Console& console);

}  // namespace scriptorium::cli
