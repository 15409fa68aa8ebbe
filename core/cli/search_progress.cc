#include "core/cli/search_progress.h"

#include <utility>

#include "core/base/text.h"
#include "core/cli/job_text.h"

namespace scriptorium::cli {

SearchProgress::SearchProgress(std::string sink, bool is_scan, Console& console)
    : sink_(std::move(sink)),
      is_scan_(is_scan),
      console_(console),
      next_(std::chrono::steady_clock::now() + std::chrono::seconds{1}) {}

void SearchProgress::report(const Searchable::Progress& progress) {
  const auto now = std::chrono::steady_clock::now();
  if (!console_.out_is_terminal || now < next_) return;
  next_ = now + std::chrono::milliseconds{200};
  drawn_ = true;
  std::string text = is_scan_ ? "reading all of sink " + printable(sink_) + ", which has no index"
                              : "searching sink " + printable(sink_);
  text += ": " + count_of(progress.jobs, "job");
  if (progress.bytes > 0) text += ", " + format_bytes(progress.bytes);
  if (progress.searched_back_to) text += ", back to " + local_time(*progress.searched_back_to);
  console_.err << "\r\033[K" << text << std::flush;
}

void SearchProgress::clear() {
  if (drawn_) console_.err << "\r\033[K" << std::flush;
  drawn_ = false;
}

}  // namespace scriptorium::cli
