#pragma once

#include "backends/catalog/config.h"
#include "backends/catalog/segments.h"
#include "core/api/maintained_sink.h"
#include "core/api/rewritable_sink.h"
#include "core/base/file.h"
#include "core/base/time.h"

namespace scriptorium::catalog {

// The care of a catalog (docs/catalog.md). What it repairs, packs or redacts, it does by
// move_segment().
//
// Owns:    nothing between calls; config and clock must live longer.
// Threads: as the interfaces say.
class Maintenance final : public MaintainedSink, public RewritableSink {
 public:
  Maintenance(const CatalogConfig& config, const Clock& clock) : config_(config), clock_(clock) {}

  Result<Report> check(const Control& control) override;
  Result<Report> stats() override;
  Result<Report> rewrite(Rewrite which, const Control& control) override;

  bool takes_directories() const override { return false; }
  // A segment that has nothing to remove stays as it is, unless it has remains of former versions.
  Result<Summary> rewrite(const Pass& pass, Editor& editor) override;

 private:
  Result<void> check_that_it_exists() const;
  // Two of these calls exclude each other, also in two processes.
  Result<UniqueFd> take_turn() const;
  Result<bool> needs_rewriting(Rewrite which, const SegmentInfo& segment, Connection& catalog,
                               const Control& control, Report& report) const;
  Result<void> redact_segment(const Pass& pass, const SegmentInfo& segment, Editor& editor,
                              Summary& summary) const;
  // catalog.db, made once more if it is damaged.
  Result<ConnectionPtr> repaired_catalog(Report& report) const;

  const CatalogConfig& config_;
  const Clock& clock_;
};

}  // namespace scriptorium::catalog
