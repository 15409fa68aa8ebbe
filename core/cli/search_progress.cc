#include "core/cli/search_progress.h"

#include <utility>

#include "core/base/text.h"
#include "core/cli/job_text.h"

namespace scriptorium::cli {

SearchProgress::SearchProgress(std::string sink, bool is_scan, Console& console)
    : sink_(std::move(sink)), is_scan_(is_scan), line_(console) {}

void SearchProgress::report(const Searchable::Progress& progress) {
  if (!line_.due()) return;
  std::string text = is_scan_ ? "reading all of sink " + printable(sink_) + ", which has no index"
                              : "searching sink " + printable(sink_);
  text += ": " + count_of(progress.jobs, "job");
  if (progress.bytes > 0) text += ", " + format_bytes(progress.bytes);
  if (progress.searched_back_to) text += ", back to " + local_time(*progress.searched_back_to);
  line_.draw(text);
}

}  // namespace scriptorium::cli
