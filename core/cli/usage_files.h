#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace scriptorium::cli {

// What `scriptorium usage --here --until-exit` writes into a folder that the nodes of the job
// share: the report, and hidden files by which the other nodes give their parts to the process that
// writes it.
//
//   scriptorium-usage-JOB.{txt,json}   the report
//   .scriptorium-usage-JOB.NODE        one line, "running" or "ended", then the part of a node
//
// Files have the modes of the user's umask. Each is replaced by a rename, so a reader finds the old
// or the new text, whole, and a symbolic link of that name is not followed. Nothing is synced: a
// power cut ends the job, too. Other users' files of these names are not read.
// Threads: one.
class UsageFiles {
 public:
  // Names that are not fit for a file have their '/' replaced.
  UsageFiles(std::string directory, std::string_view job, std::string_view node);

  Result<void> write_report(std::string_view text, std::string_view json) const;

  Result<void> write_part(std::string_view part, bool ended) const;
  struct Parts {
    std::vector<std::string> texts;
    bool all_ended = true;
  };
  Parts read_parts() const;
  void remove_parts() const;

 private:
  Result<void> replace(const std::string& name, std::string_view bytes) const;
  std::vector<std::string> part_names() const;

  const std::string directory_, job_, node_;
};

}  // namespace scriptorium::cli
