#pragma once

#include <string>

#include "backends/file/store.h"
#include "core/api/rewritable_sink.h"

namespace scriptorium::file {

// Visits each event of a tree and replaces what the editor changes (job_rewrite.h). Follows no
// symbolic link and opens only regular files; needs no layout, since it finds an event's files by
// its metadata.
//
// Owns:    nothing between calls; borrows the names and the sink's root for its life.
// Memory:  the names of one directory, and one event.
// Threads: as RewritableSink says.
class TreeRewriter final : public RewritableSink {
 public:
  TreeRewriter(const TemporaryNames& names, const std::string& root) : names_(names), root_(root) {}

  Result<Summary> rewrite(const Pass& pass, Editor& editor) override;

 private:
  class Walk;

  const TemporaryNames& names_;
  const std::string& root_;
};

}  // namespace scriptorium::file
