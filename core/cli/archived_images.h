#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/base/time.h"
#include "core/cli/arguments.h"
#include "core/cli/console.h"

// Where the archive says that images of the caller's programs were made, so that those are found
// that the caller has forgotten.
namespace scriptorium::cli {

// Jobs that are asked for, the newest first.
inline constexpr std::size_t kMostJobsWithImages = 500;

struct ArchivedImage {
  std::string path;  // as the event has it
  std::string job;
  Timestamp saved;
  std::string node;
};
struct ArchivedImages {
  std::vector<ArchivedImage> images;  // the last event of each path; newest first
  bool was_asked = false;             // there is an archive on this host, and it has answered
  bool is_cut = false;                // there are more than kMostJobsWithImages such jobs
};

// Asks the archive for the caller's own jobs whose scripts have the word checkpoint or
// scriptorium-run, and takes the paths from their events job.checkpoint. Only events of the caller
// count, as other users can name such a job, too. Never fails: without a configuration on this
// host, or as root, nothing is asked; a store that does not answer is mentioned on standard error.
ArchivedImages archived_images(const Arguments& arguments, Console& console);

}  // namespace scriptorium::cli
