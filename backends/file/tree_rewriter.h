#pragma once

#include "backends/file/store.h"
#include "core/api/rewritable_sink.h"

namespace scriptorium::file {

// Visits each event of a tree and replaces what the editor changes (job_rewrite.h). Follows no
// symbolic link and opens only regular files; needs no layout, since it finds an event's files by
// its metadata.
//
// Owns:    nothing between calls; borrows the names for its life.
// Memory:  the names of one directory, and one event.
// Threads: as RewritableSink says.
class TreeRewriter final : public RewritableSink {
 public:
  explicit TreeRewriter(const TemporaryNames& names) : names_(names) {}

  Result<Summary> rewrite(const Pass& pass, Editor& editor) override;

 private:
  class Walk;

  const TemporaryNames& names_;
};

}  // namespace scriptorium::file
