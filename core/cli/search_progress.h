#pragma once

#include <chrono>
#include <string>

#include "core/api/searchable.h"
#include "core/cli/console.h"

namespace scriptorium::cli {

// One line on a terminal that says how far a slow search is, while it takes longer than a second.
// Threads: report() is called by one thread at a time.
class SearchProgress {
 public:
  // `sink`: the store that is asked first.
  SearchProgress(std::string sink, bool is_scan, Console& console);
  SearchProgress(const SearchProgress&) = delete;
  SearchProgress& operator=(const SearchProgress&) = delete;
  ~SearchProgress() { clear(); }

  void report(const Searchable::Progress& progress);
  // Removes the line before other output.
  void clear();

 private:
  std::string sink_;
  bool is_scan_;
  Console& console_;
  SteadyTime next_;
  bool drawn_ = false;
};

}  // namespace scriptorium::cli
