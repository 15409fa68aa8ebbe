#pragma once

#include <string>

#include "core/api/searchable.h"
#include "core/cli/console.h"
#include "core/cli/progress_line.h"

namespace scriptorium::cli {

// Says on a terminal how far a slow search is.
// Threads: report() is called by one thread at a time.
class SearchProgress {
 public:
  // `sink`: the store that is asked first.
  SearchProgress(std::string sink, bool is_scan, Console& console);

  void report(const Searchable::Progress& progress);
  // Removes the line before other output.
  void clear() { line_.clear(); }

 private:
  std::string sink_;
  bool is_scan_;
  ProgressLine line_;
};

}  // namespace scriptorium::cli
